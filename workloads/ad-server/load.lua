-- The users of the ad server for wrk. Each of wrk's threads is one user with one connection, who asks, waits for the
-- answer, compares it with the right one and asks again at once.
--
-- Usage: wrk --threads N --connections N --script load.lua URL -- QUESTIONS BEGIN WAVE
--
-- QUESTIONS  a Lua file that returns the questions: path, answer, is_large of each
-- BEGIN      when the load begins, in seconds of CLOCK_MONOTONIC
-- WAVE       seconds: large questions come in the first part of each such period, and then only
--
-- Prints `sample BEGIN END IS_LARGE` for each answer, `wrong ...` for one that is not right.

local ffi = require("ffi")
ffi.cdef("typedef struct { long seconds, nanoseconds; } instant; int clock_gettime(int clock, instant *to);")
local CLOCK_MONOTONIC = 1
local read = ffi.new("instant")

local WAVE_PART = 0.3 -- of a period, from its beginning
local LARGE_EVERY = 3 -- questions of a user during a wave

local threads = {}

function setup(thread)
  thread:set("user", #threads)
  table.insert(threads, thread)
end

-- The rest, up to done(), runs in each thread by itself. Global: what done() reads.

begins, ends, larges = {}, {}, {}
local small, large = {}, {}
local asked, at, count

local function now()
  ffi.C.clock_gettime(CLOCK_MONOTONIC, read)
  return tonumber(read.seconds) + tonumber(read.nanoseconds) * 1e-9
end

function init(arguments)
  for _, question in ipairs(dofile(arguments[1])) do
    question.text = wrk.format("GET", question.path)
    table.insert(question.is_large and large or small, question)
  end
  begin, wave = tonumber(arguments[2]), tonumber(arguments[3])
  count = user -- so that no two users ask the same at once
end

-- wrk may call this more often than it sends something: the last call before an answer counts.
function request()
  at = now()
  local is_wave = (at - begin) % wave < WAVE_PART * wave
  local questions = is_wave and count % LARGE_EVERY == 0 and #large > 0 and large or small
  asked = questions[count % #questions + 1]
  return asked.text
end

function response(status, headers, body)
  local ended = now()
  if status ~= 200 or body ~= asked.answer then
    io.write("wrong ", status, " ", asked.path, "\n")
    io.flush()
    wrk.thread:stop()
  end
  local n = #begins + 1
  begins[n], ends[n], larges[n] = at, ended, asked.is_large and 1 or 0
  count = count + 1
end

function done(summary, latency)
  for kind, number in pairs(summary.errors) do
    print("errors " .. kind .. " " .. number)
  end
  for _, thread in ipairs(threads) do
    local from, to, is_large = thread:get("begins"), thread:get("ends"), thread:get("larges")
    for i = 1, #from do
      print(string.format("sample %.6f %.6f %d", from[i], to[i], is_large[i]))
    end
  end
end
