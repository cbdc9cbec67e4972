-- What wrk asks for, and what it makes of the answers: each one is checked, and after a given number
-- of them, or the first wrong one, it ends.
--
-- Arguments: PLAN COUNT. The plan's lines are fields with tabs between them, percent-encoded:
--   path, text that the answer must hold, cookie, its status, what to post, "then" if it is to wait for
--   the answer to the line before it; and for a form: its id, the field to append to, the text to
--   append, action, status, and further fields name=value joined by "&"
-- The plan is gone through in order, and again from its start. A form is submitted as soon as the
-- page that it is on has come. One thread, so that the order is the same in every run.

local ffi = require("ffi")
ffi.cdef([[
  int kill(int pid, int signal);
  int getpid(void);
  struct event { void *value; int signal; int how; char more[48]; }; // struct sigevent
  struct times { long interval_s, interval_ns, first_s, first_ns; }; // struct itimerspec
  int timer_create(int clock, struct event *event, void **timer);
  int timer_settime(void *timer, int flags, const struct times *wanted, struct times *previous);
]])

local INTERRUPT, SEND_SIGNAL, MONOTONIC = 2, 0, 1
local AGAIN_NS = 100000000
local PLAN_FIELDS = 12
local EXCERPT = 300

-- Shared with done(), which runs in a Lua state of its own; strings and numbers only.
answers, first_failure, submitted = 0, "", ""

local plan, next_step, count = {}, 0, 0
local in_flight, number = {}, 0 -- by the number that a request bears in its header
local lines = 0
local ready = {} -- steps whose turn has come by an answer: forms filled in, and what waited for it

local function decoded(text)
  return (text:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

local function encoded(text)
  return (text:gsub("[^%w%-_.~]", function(c) return string.format("%%%02X", c:byte()) end))
end

local ENTITIES = { amp = "&", lt = "<", gt = ">", quot = '"', apos = "'" }

local function unescaped(html)
  html = html:gsub("&#(%d+);", function(code)
    return tonumber(code) < 128 and string.char(tonumber(code)) or nil
  end)
  return (html:gsub("&(%a+);", ENTITIES))
end

local function attribute(tag, name)
  local value = tag:match("%s" .. name .. '="([^"]*)"') or tag:match("%s" .. name .. "='([^']*)'")
  return value and unescaped(value)
end

-- The hidden fields of the form with this id, its text area, and where it goes; nil: no such form.
local function read_form(html, wanted)
  for attributes, inside in html:gmatch("<form(%s[^>]*)>(.-)</form>") do
    if attribute(attributes, "id") == wanted.form then
      local fields = {}
      for tag in inside:gmatch("<input(%s[^>]*)>") do
        local name = attribute(tag, "name")
        if name and attribute(tag, "type") == "hidden" then
          fields[name] = attribute(tag, "value") or ""
        end
      end
      for tag, text in inside:gmatch("<textarea(%s[^>]*)>(.-)</textarea>") do
        local name = attribute(tag, "name")
        if name then
          fields[name] = unescaped(text:gsub("^\r?\n", ""))
        end
      end
      return fields, attribute(attributes, "action")
    end
  end
end

local function body_of(fields)
  local names, parts = {}, {}
  for name in pairs(fields) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    parts[#parts + 1] = encoded(name) .. "=" .. encoded(fields[name])
  end
  return table.concat(parts, "&")
end

local function read_submit(fields)
  local submit = {
    form = fields[7], textarea = fields[8], append = fields[9],
    action = fields[10], status = tonumber(fields[11]), fields = {},
  }
  for pair in fields[12]:gmatch("[^&]+") do
    local name, value = pair:match("^(.-)=(.*)$")
    submit.fields[decoded(name)] = decoded(value)
  end
  return submit
end

local function read_plan(path)
  local last
  for line in io.lines(path) do
    local fields = {}
    for field in (line .. "\t"):gmatch("(.-)\t") do
      fields[#fields + 1] = decoded(field)
    end
    assert(#fields == PLAN_FIELDS, "a line of the plan has " .. #fields .. " fields")
    lines = lines + 1
    local step = {
      path = fields[1], contains = fields[2], cookie = fields[3], status = tonumber(fields[4]),
    }
    if fields[5] ~= "" then
      step.body, step.submits = fields[5], lines
    end
    if fields[7] ~= "" then
      step.submit = read_submit(fields)
      step.submit.line = lines
    end
    if fields[6] == "then" then
      last.next = step
    else
      plan[#plan + 1] = step
    end
    last = step
  end
end

local threads = {}

function setup(thread)
  threads[#threads + 1] = thread
end

function init(arguments)
  read_plan(arguments[1])
  count = tonumber(arguments[2])
end

local function take_step()
  if #ready > 0 then
    return table.remove(ready, 1)
  end
  next_step = next_step % #plan + 1
  return plan[next_step]
end

function request()
  local step = take_step()
  number = number + 1
  in_flight[number] = step
  local headers = { ["X-Step"] = tostring(number) }
  if step.cookie ~= "" then
    headers["Cookie"] = step.cookie
  end
  if step.body then
    headers["Content-Type"] = "application/x-www-form-urlencoded"
    return wrk.format("POST", step.path, headers, step.body)
  end
  return wrk.format("GET", step.path, headers)
end

-- wrk itself sleeps for its whole duration unless it is interrupted. On a busy machine the last answer may come before it
-- listens to interrupts, or before it sleeps, and then it would sleep all the same: so it is interrupted again and again.
local function stop()
  wrk.thread:stop()
  local timer = ffi.new("void *[1]")
  ffi.C.timer_create(MONOTONIC, ffi.new("struct event", { signal = INTERRUPT, how = SEND_SIGNAL }), timer)
  ffi.C.timer_settime(timer[0], 0, ffi.new("struct times", { 0, AGAIN_NS, 0, AGAIN_NS }), nil)
  ffi.C.kill(ffi.C.getpid(), INTERRUPT)
end

local function fail(step, status, body, why)
  first_failure = string.format(
    "%s: %s (status %d): %s", step.path, why, status, body:sub(1, EXCERPT))
  stop()
end

local function queue_form(step, status, body)
  local wanted = step.submit
  local fields, action = read_form(body, wanted)
  if not fields or not fields[wanted.textarea] then
    return fail(step, status, body, "no form " .. wanted.form .. " with " .. wanted.textarea)
  end
  fields[wanted.textarea] = fields[wanted.textarea] .. wanted.append
  for name, value in pairs(wanted.fields) do
    fields[name] = value
  end
  ready[#ready + 1] = {
    path = wanted.action ~= "" and wanted.action or action or step.path,
    contains = "", cookie = step.cookie, status = wanted.status, body = body_of(fields),
    submits = wanted.line, next = step.next,
  }
end

function response(status, headers, body)
  if first_failure ~= "" or answers >= count then
    return
  end
  local step = in_flight[tonumber(headers["X-Step"])]
  if not step then
    return fail({ path = "?" }, status, body, "an answer to no request")
  end
  in_flight[tonumber(headers["X-Step"])] = nil
  if status ~= step.status then
    return fail(step, status, body, "not the status " .. step.status)
  end
  if not body:find(step.contains, 1, true) then
    return fail(step, status, body, "does not hold '" .. step.contains .. "'")
  end
  if step.submits then
    submitted = submitted .. step.submits .. " "
  end
  if step.submit then
    queue_form(step, status, body)
  elseif step.next then
    ready[#ready + 1] = step.next
  end
  answers = answers + 1
  if answers == count then
    stop()
  end
end

function done(summary, latency, requests)
  local thread = threads[1]
  local errors = summary.errors
  print(string.format("answers %d", thread:get("answers")))
  print(string.format("seconds %.6f", summary.duration / 1e6))
  print(string.format("p50 %.6f", latency:percentile(50) / 1e6))
  print(string.format("p99 %.6f", latency:percentile(99) / 1e6))
  print(string.format("errors %d", errors.connect + errors.read + errors.write + errors.timeout))
  print("submitted " .. thread:get("submitted"))
  print("failure " .. thread:get("first_failure"):gsub("%s+", " "))
end
