-- The Lua part of `lua`: text taken apart and put together, tables that grow and are dropped.
--
-- An order book kept in a heap made of tables, a text generator that learns word pairs and
-- rewrites itself, and a tiny interpreter whose values are fresh tables. All chance comes from a
-- generator of our own, and nothing is printed in the order in which Lua happens to walk a table:
-- the output is the same in every run. Prints what each part found; fails if one contradicts
-- itself.

local ORDERS = 350000
local SENTENCES = 36000
local PROGRAMS = 20000

-- ---- Chance: a linear congruential generator, the same on every machine ----

local state = 20240229

local function chance(limit)
  state = (state * 1103515245 + 12345) % 2147483648
  return (state >> 8) % limit + 1
end

local digest = 5381

local function note(text)
  for position = 1, #text do
    digest = (digest * 33 + text:byte(position)) % 4294967296
  end
end

-- ---- An order book: a binary heap of tables, each with a few strings ----

local function less(a, b)
  return a.price < b.price or (a.price == b.price and a.id < b.id)
end

local function push(heap, order)
  local place = #heap + 1
  heap[place] = order
  while place > 1 and less(heap[place], heap[place // 2]) do
    heap[place], heap[place // 2] = heap[place // 2], heap[place]
    place = place // 2
  end
end

local function pop(heap)
  local top, last = heap[1], table.remove(heap)
  if #heap == 0 then return top end
  heap[1] = last
  local place = 1
  while true do
    local smaller = 2 * place
    if smaller > #heap then break end
    if smaller < #heap and less(heap[smaller + 1], heap[smaller]) then smaller = smaller + 1 end
    if not less(heap[smaller], heap[place]) then break end
    heap[place], heap[smaller] = heap[smaller], heap[place]
    place = smaller
  end
  return top
end

local function trade()
  local book, filled, volume = {}, 0, 0
  for id = 1, ORDERS do
    push(book, {
      id = id,
      price = chance(10000),
      owner = string.format("client-%05d", chance(30000)),
      lines = { chance(50), chance(50), note = "order " .. id },
    })
    if #book > 2000 then
      local order = pop(book)
      filled = filled + 1
      volume = volume + order.price * (order.lines[1] + order.lines[2])
      if filled % 500 == 0 then note(order.owner .. order.lines.note) end
    end
  end
  assert(filled + #book == ORDERS, "the order book lost an order")
  print(("orders filled %d, volume %d, left %d"):format(filled, volume, #book))
end

-- ---- Text: learn which word follows which, write sentences, split them again ----

local SEED_TEXT = [[
the allocator gives the program a block and the program gives the block back when the work is
done and the allocator keeps the block for the next program that asks for a block of the same
size unless the page that holds the block has become empty and the system wants the page back
]]

local function learn(followers, text)
  local previous
  for word in text:gmatch("%a+") do
    if previous then
      local list = followers[previous]
      if not list then
        list = {}
        followers[previous] = list
      end
      if #list < 64 then list[#list + 1] = word end
    end
    previous = word
  end
end

local function sentence(followers)
  local words, word = {}, "the"
  for place = 1, 10 + chance(30) do
    words[place] = word
    local list = followers[word]
    if not list then break end
    word = list[chance(#list)]
  end
  return (table.concat(words, " "):gsub("^%l", string.upper)) .. "."
end

local function write()
  local followers, count, longest = {}, {}, ""
  learn(followers, SEED_TEXT)
  for number = 1, SENTENCES do
    local text = sentence(followers)
    if #text > #longest then longest = text end
    for word in text:lower():gmatch("%a+") do count[word] = (count[word] or 0) + 1 end
    learn(followers, text:lower())
    if number % 200 == 0 then
      note(text:rep(3, "|"):upper())
      followers = {}
      learn(followers, SEED_TEXT .. text:lower())
    end
  end
  local words, total = {}, 0
  for word, times in pairs(count) do
    words[#words + 1] = word
    total = total + times
  end
  table.sort(words, function(a, b)
    return count[a] > count[b] or (count[a] == count[b] and a < b)
  end)
  assert(#longest > 0 and total > SENTENCES, "no text came out")
  print(("words %d, in all %d, commonest %s %d"):format(#words, total, words[1], count[words[1]]))
end

-- ---- An interpreter: parse expressions into tables, evaluate them with fresh closures ----

local function expression(depth)
  if depth == 0 or chance(8) == 1 then return tostring(chance(9)) end
  local operators = { "+", "-", "*" }
  return "(" .. expression(depth - 1) .. operators[chance(3)] .. expression(depth - 1) .. ")"
end

local function parse(text, place)
  local digit = text:match("^%d", place)
  if digit then return { value = tonumber(digit) }, place + 1 end
  local left, operator, right
  left, place = parse(text, place + 1)
  operator = text:sub(place, place)
  right, place = parse(text, place + 1)
  return { operator = operator, left = left, right = right }, place + 1
end

local combine = {
  ["+"] = function(a, b) return a + b end,
  ["-"] = function(a, b) return a - b end,
  ["*"] = function(a, b) return a * b end,
}

local function compiled(tree)
  if tree.value then return function() return tree.value end end
  local left, right, operation = compiled(tree.left), compiled(tree.right), combine[tree.operator]
  return function() return operation(left(), right()) end
end

local function interpret()
  local sum = 0
  for number = 1, PROGRAMS do
    local text = expression(5)
    local tree, place = parse(text, 1)
    assert(place == #text + 1, "the parser stopped early")
    local result = compiled(tree)()
    if number % 50 == 0 then
      assert(result == load("return " .. text)(), "the interpreter and Lua disagree")
    end
    sum = (sum + result) % 1000003
  end
  print(("programs %d, sum %d"):format(PROGRAMS, sum))
end

trade()
write()
interpret()
print(("digest %08x"):format(digest))
print("lua consistent")
