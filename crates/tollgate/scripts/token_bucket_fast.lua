-- token_bucket_fast.lua: the commonest ask of all, decided before anything else is set up.
--
-- One token bucket, packed, on Redis' clock, its limit unchanged, its time not stepped back and the
-- cost within its capacity. A general answer in integers costs a third of a decision, so this one
-- answers with what it wrote, and the caller works the numbers out. Whatever is unusual falls through
-- to take.lua, with the arguments put together at the end. The twin tests hold both to the same
-- numbers.
--
-- fast_script.lua or fast_library.lua comes before it, and brings key, value, now and the arguments.
--
-- ARGV[1]  pour, cost * unit, capacity * unit, renew_every and the TTL in milliseconds (8 bytes each,
--          doubles), and the limit as it stands at the end of a value (12, or 16 for a large unit)
-- Reply    for a spend, units and instant as written (16 bytes); the whole value (29, or 33) in
--          an array of one if there was none; for a refusal, units, instant and a zero byte (17).
--          If it falls through, what take.lua says.
if not value then
  -- In text: Redis would print the number anew for every key, with 17 digits.
  ttl_text = ttl_text or string.format('%.0f', ttl)
  local written = pack('<Bdd', 1, full - needed, now) .. limit
  call('PSETEX', key, ttl_text, written)
  return { written }
elseif #value == 17 + #limit then
  local version, units, last_refill, under = parse(shape, value)
  if under == limit and version == 1 and last_refill <= now and units >= 0 and units <= full then
    units = units + (now - last_refill) * pour
    if units > full then units = full end
    if units < needed then return pack('<ddB', units, now, 0) end
    -- Setting a TTL costs a fifth of a check, so it is set by the first spend of each period of
    -- `renew_every`, long enough to outlast both that period and the refill after it. First, for
    -- if it fails nothing is spent. The two numbers that change are written where they stand.
    if last_refill < now - now % renew_every then
      ttl_text = ttl_text or string.format('%.0f', ttl)
      call('PEXPIRE', key, ttl_text)
    end
    local written = pack('<dd', units - needed, now)
    call('SETRANGE', key, '1', written)
    return written
  end
end
local capacity = parse('<I4', limit)
local unit = full / capacity
local ARGV = { '0', pack('<BI4I4I8I4', 1, needed / unit, capacity, unit, pour), string.format('%.0f', ttl) }
