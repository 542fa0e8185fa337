-- token_bucket_fast.lua: the commonest ask of all, decided before anything else is set up.
--
-- One token bucket, packed, on Redis' clock, its limit unchanged and its time not stepped back.
-- Defining the functions of the general script costs as much as the whole decision, and so does
-- answering in integers, so this comes first and answers with the bucket itself; the caller works
-- the numbers out. Whatever is unusual falls through to the general script below, and the twin
-- tests hold both to the same numbers.
--
-- Reply    the value written, for a spend; the same in an array of one, for a spend on a bucket
--          that was absent; units and instant behind a zero byte, for a refusal. (Unless it falls
--          through: then what take.lua says.)
-- ARGV[1]  empty where this applies
-- ARGV[4]  the limit (capacity, unit, pour) as it stands at the end of a value
if ARGV[1] == '' then
  local key, limit = KEYS[1], ARGV[4]
  local value = redis.pcall('GET', key)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local pour, needed, full, renew_every = struct.unpack('<I4I8I8I8', ARGV[2], 18)
  if not value then
    if needed <= full then
      local written = struct.pack('<BI8I8c16', 1, full - needed, now, limit)
      redis.call('SET', key, written, 'PX', ARGV[3])
      return { written }
    end
  elseif #value == 33 then
    local version, units, last_refill, under = struct.unpack('<BI8I8c16', value)
    if under == limit and version == 1 and last_refill <= now and units <= full then
      units = units + (now - last_refill) * pour
      if units > full then units = full end
      if units >= needed then
        local written = struct.pack('<BI8I8c16', 1, units - needed, now, limit)
        -- Setting a TTL costs a fifth of a check, so it is set by the first spend of each period
        -- of `renew_every`, long enough to outlast both that period and the refill after it.
        if last_refill >= now - now % renew_every then
          redis.call('SET', key, written, 'KEEPTTL')
        else
          redis.call('SET', key, written, 'PX', ARGV[3])
        end
        return written
      elseif needed <= full then
        return struct.pack('<BI8I8', 0, units, now)
      end
    end
  end
end
