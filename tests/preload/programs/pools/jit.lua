-- malloc called by code that LuaJIT has compiled a moment ago: nothing tells how its frames are left.
local ffi = require("ffi")
ffi.cdef [[
  void *malloc(size_t);
  void free(void *);
  struct node { struct node *next; double number; };
]]

assert(jit.status(), "the compiler is off")
local pointer = ffi.typeof("struct node *")

local function build(count)
  local list = ffi.cast(pointer, nil)
  for i = 1, count do
    local node = ffi.cast(pointer, ffi.C.malloc(ffi.sizeof("struct node")))
    node.next, node.number = list, i % 1000
    list = node
  end
  return list
end

local function sum_and_free(list)
  local sum = 0
  while list ~= nil do
    local next = list.next
    sum = sum + list.number
    ffi.C.free(list)
    list = next
  end
  return sum
end

local total = 0
for round = 1, 20 do total = total + sum_and_free(build(10000)) end
print(string.format("%d", total))
