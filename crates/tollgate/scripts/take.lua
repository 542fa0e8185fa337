-- take.lua: spend every check, or none, at one instant. With PEEKING, only look.
--
-- KEYS     one per check, all on one cluster slot, no two alike
-- ARGV[1]  now in microseconds; 0 asks Redis' own clock
-- ARGV     then two per check: its packed arguments, and its TTL in milliseconds as text
-- Reply    now, then five integers per check: outcome + 4 * found, remaining, retry_after,
--          reset_after, mark
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- One check needs no looking ahead.
if #KEYS == 1 then
  local outcome, remaining, retry_after, reset_after, mark, found, spend, mend = visit(KEYS[1], now, ARGV[2])
  if not PEEKING and (spend or mend) then write(KEYS[1], ARGV[3], spend or mend, found, ARGV[2]) end
  return { now, outcome + 4 * found, remaining, retry_after, reset_after, mark }
end

-- More than one: several.lua follows.
