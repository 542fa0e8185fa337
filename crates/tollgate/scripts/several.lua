-- several.lua: checks that are spent all together, or none of them, at one instant.
--
-- Follows take.lua in a script; in the library and in batches it is a function. It brings now, KEYS and
-- ARGV as take.lua has them, and answers the same.

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
