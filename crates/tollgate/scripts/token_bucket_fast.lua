-- token_bucket_fast.lua: the commonest ask of all, decided before anything else is set up.
--
-- One token bucket, packed, on Redis' clock, its limit unchanged and its time not stepped back.
-- Defining the functions of the general script costs as much as the whole decision, and so does
-- answering in integers, so this comes first and answers with what it wrote; the caller works the
-- numbers out. Whatever is unusual falls through to the general script below, which is a function
-- of its own, and the twin tests hold both to the same numbers.
--
-- ARGV[1]  the limit as it stands at the end of a value (16 bytes), pour, cost * unit,
--          capacity * unit and renew_every (8 each, doubles), then the general script's arguments
-- ARGV[2]  the TTL in milliseconds as text
-- Reply    for a spend, units and instant as written (16 bytes) or the whole value (33); the value in
--          an array of one if there was none; for a refusal, units, instant and a zero byte (17).
--          If it falls through, what take.lua says.
local call, key = redis.call, KEYS[1]
local value = redis.pcall('GET', key)
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local limit, pour, needed, full, renew_every = struct.unpack('<c16dddd', ARGV[1])
if not value then
  if needed <= full then
    local written = struct.pack('<Bddc16', 1, full - needed, now, limit)
    call('SET', key, written, 'PX', ARGV[2])
    return { written }
  end
elseif #value == 33 then
  local version, units, last_refill, under = struct.unpack('<Bddc16', value)
  if under == limit and version == 1 and last_refill <= now and units >= 0 and units <= full then
    units = units + (now - last_refill) * pour
    if units > full then units = full end
    if units >= needed then
      -- Setting a TTL costs a fifth of a check, so it is set by the first spend of each period of
      -- `renew_every`, long enough to outlast both that period and the refill after it. The others
      -- write the two numbers that change where they stand.
      if last_refill >= now - now % renew_every then
        local written = struct.pack('<dd', units - needed, now)
        call('SETRANGE', key, '1', written)
        return written
      end
      local written = struct.pack('<Bddc16', 1, units - needed, now, limit)
      call('SET', key, written, 'PX', ARGV[2])
      return written
    elseif needed <= full then
      return struct.pack('<ddB', units, now, 0)
    end
  end
end
local ARGV = { '0', string.sub(ARGV[1], 49), ARGV[2] }
