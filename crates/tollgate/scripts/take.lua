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

-- Look at everything before touching anything: a refusal must leave no trace.
local reply, spends, finds, is_refused, is_stale = { now }, {}, {}, false, false
for i, key in ipairs(KEYS) do
  local outcome, remaining, retry_after, reset_after, mark, found, spend = visit(key, now, ARGV[2 * i])
  is_refused, is_stale = is_refused or outcome ~= ALLOWED, is_stale or outcome == STALE
  spends[i], finds[i] = spend or false, found
  local at = 5 * i - 3
  reply[at], reply[at + 1], reply[at + 2] = outcome + 4 * found, remaining, retry_after
  reply[at + 3], reply[at + 4] = reset_after, mark
end

-- A stale ask is asked again, and then finds everything as this one did.
if not PEEKING and not is_stale then
  for i, key in ipairs(KEYS) do
    local body
    if is_refused then body = mend(key, now, ARGV[2 * i]) else body = spends[i] end
    if body then write(key, ARGV[2 * i + 1], body, finds[i], ARGV[2 * i]) end
  end
end
return reply
