-- fast_library.lua: what token_bucket_fast.lua starts from, as a function; its end is in scripts.rs.
--
-- What is outside of a function outlives its call. Busy limits are asked for the same cost again and
-- again, many times a second, so the last arguments are kept as they were parsed, and the last
-- second as a number. Together that is a thirtieth of a check. Equal strings are one string in Lua,
-- so comparing them costs nothing.
local parsed, pour, needed, full, renew_every, ttl, ttl_text, limit, shape
local second, second_us

redis.register_function('LIBRARY_fast', function(KEYS, ARGV)
  if not call then set_up() end
  local key = KEYS[1]
  local value = pcall('GET', key)
  local time = call('TIME')
  if time[1] ~= second then second, second_us = time[1], time[1] * 1000000 end
  local now = second_us + time[2]
  if ARGV[1] ~= parsed then
    parsed = ARGV[1]
    pour, needed, full, renew_every, ttl = parse('<ddddd', parsed)
    limit = string.sub(parsed, 41)
    shape = #limit == 12 and '<Bddc12' or '<Bddc16'
    ttl_text = nil
  end
