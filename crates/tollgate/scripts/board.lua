-- board.lua: everything on the board, unless it is what the caller has seen.
--
-- KEYS[1]  the notices, as post.lua writes them
-- KEYS[2]  the head
-- ARGV     the version that was seen; now, or 0
-- Reply    the version alone if it is that one; else the version, now, and all notices in one string
local version = 0
local head = redis.call('GET', KEYS[2])
if head and #head == 24 then version = struct.unpack('<d', head) end
if version == tonumber(ARGV[1]) then return { version } end
local now = tonumber(ARGV[2])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
return { version, now, table.concat(redis.call('HVALS', KEYS[1])) }
