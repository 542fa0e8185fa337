-- heartbeat.lua: show this instance alive, and count those that are.
--
-- It writes, as a take does, so that whatever keeps a take from working (memory, a replica, an
-- ACL, a missing function) shows here first.
--
-- KEYS[1]  the sorted set of instances, by the instant each was last seen
-- ARGV     this instance's name; how long a silent one counts as alive, in microseconds; now, or 0
-- Reply    now, and how many are alive
local now = tonumber(ARGV[3])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local alive_for = tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - alive_for))
-- One seen in the future was written by a clock that has since stepped back.
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now + alive_for), '+inf')
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', alive_for / 1000 + 60000))
return { now, redis.call('ZCARD', KEYS[1]) }
