-- layout_hash.lua: state as the decision records have it, a hash with binary fields and `v`.
--
-- Slower than packed by a command and some table work, and readable field by field with HGETALL.
-- Defines what layout_packed.lua defines.
local NOTHING, STATE, MALFORMED = 0, 1, 2

-- Field names and widths by algorithm, in the order the packed body has them.
local FIELDS = {
  ['<I8I8I4I8I4'] = { { 'tokens', 8 }, { 'last_refill', 8 }, { 'limit', 16 } },
  ['<I8I4I4'] = { { 'window', 8 }, { 'count', 4 }, { 'previous', 4 } },
  ['<I8I4'] = { { 'window', 8 }, { 'count', 4 } },
}

local function load(key, format, size)
  local fields = FIELDS[format]
  local names = {}
  for i, field in ipairs(fields) do names[i] = field[1] end
  local values = redis.pcall('HMGET', key, 'v', unpack(names))
  if values.err then
    if string.sub(values.err, 1, 9) ~= 'WRONGTYPE' then redis.call('HMGET', key, 'v') end
    return MALFORMED
  end
  local version, body = values[1], ''
  for i, field in ipairs(fields) do
    local value = values[i + 1]
    if value then
      if #value ~= field[2] then return MALFORMED end
      body = body .. value
    end
  end
  if not version and body == '' then
    -- A hash with none of our fields is somebody else's; no hash at all is a whole limit.
    return NOTHING
  end
  if version ~= '1' or #body ~= size then return MALFORMED end
  return STATE, struct.unpack(format, body)
end

local function save(key, ttl, body, format, found)
  if found == MALFORMED then redis.call('DEL', key) end
  local arguments, at = { 'v', '1' }, 1
  for _, field in ipairs(FIELDS[format]) do
    arguments[#arguments + 1] = field[1]
    arguments[#arguments + 1] = string.sub(body, at, at + field[2] - 1)
    at = at + field[2]
  end
  redis.call('HSET', key, unpack(arguments))
  redis.call('PEXPIRE', key, ttl)
end
