-- post.lua: put a notice on the board, or take one down.
--
-- Each notice ends by itself, and the whole board a minute after the last of them. What has ended is
-- cleared away when room is needed, and not before: posting stays cheap however full the board is.
--
-- KEYS[1]  the notices, a hash by name: when it ends (a double, in microseconds), and then as it was packed
-- KEYS[2]  the head: version, bytes of all notices and the end of the last one, as doubles
-- ARGV     name; the notice as it was packed, or nothing to take it down; how long it stays up, in
--          microseconds; now, or 0; the most notices; the most bytes
-- Reply    0 if it is done, 1 if there is no room
local now = tonumber(ARGV[4])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local name, packed = ARGV[1], ARGV[2]

-- Every number of ours is below it; one that is not finite is not ours.
local EXACT = 9007199254740992
local version, bytes, last = 0, 0, 0
local function recount()
  bytes = 0
  for _, value in ipairs(redis.call('HVALS', KEYS[1])) do
    -- What is not ours is left alone, and has no end.
    local ends, length = math.huge, 0
    if #value >= 12 then ends, length = struct.unpack('<dH', value) end
    if ends <= now then
      redis.call('HDEL', KEYS[1], string.sub(value, 13, 12 + length))
    else
      bytes = bytes + #value
      if ends < EXACT then last = math.max(last, ends) end
    end
  end
end
local head = redis.call('GET', KEYS[2])
if head and #head == 24 then version, bytes, last = struct.unpack('<ddd', head) end
local is_ours = version >= 0 and version < EXACT and bytes >= 0 and bytes < EXACT and last >= 0 and last < EXACT
if not (head and #head == 24 and is_ours) then
  version, last = 0, 0
  recount()
end

local function standing()
  local value = redis.call('HMGET', KEYS[1], name)[1]
  return value and #value or 0
end
local before = standing()

-- A version never comes again, not even on a board that was lost and begun anew.
version = math.max(version + 1, now)
if packed == '' then
  redis.call('HDEL', KEYS[1], name)
  bytes = bytes - before
else
  local most, bytes_most = tonumber(ARGV[5]), tonumber(ARGV[6])
  local size = 8 + #packed
  local function is_full()
    local others = redis.call('HLEN', KEYS[1]) - (before > 0 and 1 or 0)
    return others >= most or bytes - before + size > bytes_most
  end
  if is_full() then
    recount()
    before = standing()
    if is_full() then return 1 end
  end
  local ends = now + tonumber(ARGV[3])
  redis.call('HSET', KEYS[1], name, struct.pack('<d', ends) .. packed)
  bytes = bytes - before + size
  last = math.max(last, ends)
end
local ttl = string.format('%.0f', math.ceil(math.max(last - now, 0) / 1000) + 60000)
redis.call('PEXPIRE', KEYS[1], ttl)
redis.call('SET', KEYS[2], struct.pack('<ddd', version, bytes, last), 'PX', ttl)
return 0
