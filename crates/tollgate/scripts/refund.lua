-- refund.lua: give back earlier takes, each by itself, as far as they still count.
--
-- KEYS     one per refund
-- ARGV[1]  now in microseconds; 0 asks Redis' own clock
-- ARGV     then three per refund: packed arguments, TTL in milliseconds as text, and the take it
--          undoes, packed: instant (8 bytes), entry (4)
-- Reply    now, then three integers per refund: returned, remaining, reset_after
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local reply = { now }
for i, key in ipairs(KEYS) do
  local taken_at, entry = struct.unpack('<I8I4', ARGV[3 * i + 1])
  local returned, remaining, reset_after = refund(key, now, ARGV[3 * i - 1], ARGV[3 * i], taken_at, entry)
  reply[3 * i - 1], reply[3 * i], reply[3 * i + 1] = returned, remaining, reset_after
end
return reply
