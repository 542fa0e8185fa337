-- layout_packed.lua: state as one string, a version byte and then fixed-width binary fields.
--
-- The default: one GET to look and one PSETEX, TTL included, to spend. Fields are little-endian.
--
-- A bucket's unit has eight bytes, of which four are mostly zero. They are then left out: 29 bytes are one piece of 32
-- in Redis, and 33 are one of 48.
--
-- Everything else begins with these; layout_hash.lua defines the same functions.
local NOTHING, STATE, MALFORMED = 0, 1, 2

-- Returns what was found and, for STATE, the fields that `format` describes, `size` bytes of them.
-- A value that is not ours counts as absent for this check alone; any other error is Redis' own
-- (an ACL, say) and is raised by asking again without the p.
local function load(key, format, size)
  local value = redis.pcall('GET', key)
  if not value then return NOTHING end
  if type(value) == 'table' then
    if string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then redis.call('GET', key) end
    return MALFORMED
  end
  if size == 32 and #value == 29 then
    value = string.sub(value, 1, 25) .. '\0\0\0\0' .. string.sub(value, 26)
  end
  if #value ~= size + 1 or string.byte(value) ~= 1 then return MALFORMED end
  return STATE, struct.unpack(format, value, 2)
end

-- Writes a body of packed fields, whatever was there before.
local function save(key, ttl, body)
  if #body == 32 and string.sub(body, 25, 28) == '\0\0\0\0' then
    body = string.sub(body, 1, 24) .. string.sub(body, 29)
  end
  redis.call('PSETEX', key, ttl, '\1' .. body)
end
