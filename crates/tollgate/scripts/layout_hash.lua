-- layout_hash.lua: state as the decision records have it, a hash with binary fields and `v`.
--
-- Slower than packed by a command, and readable field by field with HGETALL. Defines what
-- layout_packed.lua defines; a body is the fields one after the other, as packed has them. The
-- size of a body tells the algorithms apart: 32 bytes for a bucket, 16 for a sliding and 12 for a
-- fixed window. (A table of fields would be tidier, and would cost half a check to build.)
local NOTHING, STATE, MALFORMED = 0, 1, 2

local function load(key, format, size)
  local values
  if size == 32 then
    values = redis.pcall('HMGET', key, 'v', 'tokens', 'last_refill', 'limit')
  elseif size == 16 then
    values = redis.pcall('HMGET', key, 'v', 'window', 'count', 'previous')
  else
    values = redis.pcall('HMGET', key, 'v', 'window', 'count')
  end
  if values.err then
    if string.sub(values.err, 1, 9) ~= 'WRONGTYPE' then redis.call('HMGET', key, 'v') end
    return MALFORMED
  end
  local version, first, second, third = values[1], values[2], values[3], values[4]
  if not version and not first and not second and not third then
    -- A hash with none of our fields is somebody else's; no hash at all is a whole limit.
    return redis.call('HLEN', key) > 0 and MALFORMED or NOTHING
  end
  if version ~= '1' or not first or not second or #first ~= 8 then return MALFORMED end
  local body = first .. second .. (third or '')
  if #body ~= size or #second ~= (size == 32 and 8 or 4) then return MALFORMED end
  return STATE, struct.unpack(format, body)
end

local function save(key, ttl, body, format, found)
  if found == MALFORMED then redis.call('DEL', key) end
  local first = string.sub(body, 1, 8)
  if #body == 32 then
    redis.call('HSET', key, 'v', '1', 'tokens', first, 'last_refill', string.sub(body, 9, 16),
      'limit', string.sub(body, 17))
  elseif #body == 16 then
    redis.call('HSET', key, 'v', '1', 'window', first, 'count', string.sub(body, 9, 12),
      'previous', string.sub(body, 13))
  else
    redis.call('HSET', key, 'v', '1', 'window', first, 'count', string.sub(body, 9))
  end
  redis.call('PEXPIRE', key, ttl)
end
