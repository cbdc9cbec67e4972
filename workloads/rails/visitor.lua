-- A visitor of the telephone directory for wrk: reads the table of all people, opens the form of one
-- of them, stores a new number for them, and begins again. Each of wrk's threads is one visitor with
-- one connection. A visitor changes only people of its own, so that it knows what every page must say,
-- and stops at the first page that says something else.
--
-- Usage: wrk --threads N --connections N --script visitor.lua URL -- N ROUNDS PEOPLE
--
-- Prints `finished` for each visitor that has made its rounds and `wrong: ...` for one that stopped;
-- on wrk's end (it has to be interrupted) the time taken, the latencies and the numbers stored.

local visitors = {}

function setup(thread)
  thread:set("visitor", #visitors)
  table.insert(visitors, thread)
end

-- The rest, up to done(), runs in each thread by itself.

phones = {} -- global, for done() to read: person's id -> number, as it must be stored now

local FORM_FIELD = 'value="([^"]*)" name="person%[(%l+)%]"'
local TABLE_ROW = '<tr id="person_(%d+)">%s*<td>[^<]+</td>%s*<td class="phone">([^<]*)</td>'
local TOKEN = 'name="authenticity_token" value="([^"]+)"'

local own = {} -- ids of the people that this visitor may change
local number, rounds_left, people -- of visitors in all, of rounds to make, of people in the directory
local cookie, chosen, new_phone
local step, steps -- what is asked for next, and what follows each
local next_request

local function expect(condition, what, ...)
  if not condition then
    error(string.format(what, ...), 0)
  end
end

local function unescape(text)
  local characters = { ["&#39;"] = "'", ["&quot;"] = '"', ["&lt;"] = "<", ["&gt;"] = ">" }
  return (text:gsub("&[#%w]+;", characters):gsub("&amp;", "&"))
end

local function encode(text)
  return (text:gsub("[^%w.-]", function(byte)
    return string.format("%%%02X", byte:byte())
  end))
end

local function is_own(id)
  return id % number == visitor
end

local function ask(method, path, body)
  local headers = { Connection = "close", Cookie = cookie }
  if body then
    headers["Content-Type"] = "application/x-www-form-urlencoded"
  end
  next_request = wrk.format(method, path, headers, body)
end

local function read_table(status, headers, body)
  expect(status == 200, "the table answers %d", status)
  expect(not chosen or body:find('class="notice">Saved ', 1, true), "nothing tells of the update")
  local rows = 0
  for id, phone in body:gmatch(TABLE_ROW) do
    id, rows = tonumber(id), rows + 1
    if phones[id] then
      expect(phone == phones[id], "%d has %s in the table and not %s", id, phone, phones[id])
    elseif is_own(id) then
      phones[id] = phone
    end
  end
  expect(rows == people, "the table has %d rows and not %d", rows, people)
  chosen = own[math.random(#own)]
  ask("GET", "/people/" .. chosen .. "/edit")
end

local function read_form(status, headers, body)
  expect(status == 200, "the form of %d answers %d", chosen, status)
  local token = body:match(TOKEN)
  expect(token, "the form of %d has no token", chosen)
  local fields = { "_method=patch", "authenticity_token=" .. encode(token) }
  for value, name in body:gmatch(FORM_FIELD) do
    if name == "phone" then
      expect(value == phones[chosen], "%d has %s in its form", chosen, value)
      new_phone = string.format("+45 %04d %04d", math.random(0, 9999), math.random(0, 9999))
      value = new_phone
    end
    table.insert(fields, "person%5B" .. name .. "%5D=" .. encode(unescape(value)))
  end
  expect(#fields == 6, "the form of %d has %d fields", chosen, #fields - 2)
  ask("POST", "/people/" .. chosen, table.concat(fields, "&"))
end

local function read_update(status, headers, body)
  expect(status == 302, "the update of %d answers %d", chosen, status)
  local target = headers["Location"] or "nowhere"
  expect(target:match("/people$"), "the update of %d leads to %s", chosen, target)
  phones[chosen] = new_phone
  rounds_left = rounds_left - 1
  ask("GET", "/people")
end

function init(arguments)
  number, rounds_left, people = tonumber(arguments[1]), tonumber(arguments[2]), tonumber(arguments[3])
  for id = 1, people do
    if is_own(id) then
      table.insert(own, id)
    end
  end
  math.randomseed(visitor + 1)
  steps = { [read_table] = read_form, [read_form] = read_update, [read_update] = read_table }
  step = read_table
  ask("GET", "/people")
end

-- wrk calls this more often than it sends something, so nothing happens here.
function request()
  return next_request
end

local function stop(word)
  io.write(word, "\n")
  io.flush()
  wrk.thread:stop()
end

function response(status, headers, body)
  if headers["Set-Cookie"] then
    cookie = headers["Set-Cookie"]:match("^[^;]+")
  end
  local right, complaint = pcall(step, status, headers, body)
  if not right then
    stop("wrong: " .. complaint)
  elseif rounds_left == 0 then
    stop("finished")
  end
  step = steps[step]
end

function done(summary, latency)
  print("duration_us " .. summary.duration)
  print("requests " .. summary.requests)
  for kind, count in pairs(summary.errors) do
    print("errors " .. kind .. " " .. count)
  end
  print("latency_us " .. latency:percentile(50) .. " " .. latency:percentile(99))
  for _, thread in ipairs(visitors) do
    for id, phone in pairs(thread:get("phones")) do
      print("stored " .. id .. " " .. phone)
    end
  end
end
