-- library.lua: the end of the library that Redis keeps; `general` and the twins stand before it.
--
-- A library's text runs once, when it is loaded, and not on every call as a script's does. But Redis
-- lends `redis.call` and `struct` only to functions that are being called, so the first call sets
-- the rest up. LIBRARY stands for the library's name, which no other text shares.
local call, pcall, pack, parse, take, peek, refund, batch

local function set_up()
  call, pcall, pack, parse = redis.call, redis.pcall, struct.pack, struct.unpack
  take, refund, batch = general(false)
  peek = general(true)
end

redis.register_function('LIBRARY_take', function(keys, arguments)
  if not call then set_up() end
  return take(keys, arguments)
end)

-- Flagged, so that a full Redis and a replica answer it too.
redis.register_function({
  function_name = 'LIBRARY_peek',
  flags = { 'no-writes' },
  callback = function(keys, arguments)
    if not call then set_up() end
    return peek(keys, arguments)
  end,
})

redis.register_function('LIBRARY_refund', function(keys, arguments)
  if not call then set_up() end
  return refund(keys, arguments)
end)

redis.register_function('LIBRARY_batch', function(keys, arguments)
  if not call then set_up() end
  return batch(keys, arguments)
end)
