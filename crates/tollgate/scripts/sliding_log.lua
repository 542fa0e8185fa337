-- sliding_log.lua: every admitted instant is kept, so any window holds at most the limit.
--
-- Twin of core/src/algorithm/sliding_log.rs: change both or neither.
--
-- State    a sorted set in either layout. Score: the instant, in microseconds. Member: the instant
--          (8 bytes, big-endian) and a number (4) that tells entries of one microsecond apart.
-- Args     kind (1), cost (4), limit (4), span (8), lease (4): how far ahead of the clock entries may be
--          booked, ahead (4): how far ahead these are.
-- Work     ZRANGE and ZCOUNT to look; trims only when it spends.

-- Never `..` a time: see numbers.lua.
local function score(number)
  return string.format('%.0f', number)
end

-- What the log says now: the time to decide at, what counts, and the last entry that does; and the number of
-- the next entry at the instant that is `ahead` of now.
local function sliding_log_look(key, now, span, lease, ahead)
  local found, behind, drops = STATE, 0, false
  local last = redis.pcall('ZRANGE', key, '-1', '-1', 'WITHSCORES')
  if last.err then
    if string.sub(last.err, 1, 9) ~= 'WRONGTYPE' then redis.call('ZRANGE', key, '-1', '-1') end
    found, last = MALFORMED, {}
  elseif not last[1] then
    found = NOTHING
  elseif #last[1] ~= 12 or struct.unpack('>I8', last[1]) ~= tonumber(last[2]) then
    found, last = MALFORMED, {}
  end

  local latest = last[2] and tonumber(last[2])
  -- What was booked that far ahead was booked no earlier than then.
  if latest and latest - lease > now then
    if latest - lease - now <= 1000000 then
      behind, now = latest - lease - now, latest - lease
    else
      drops = true
      last = redis.call('ZRANGE', key, score(now), '-inf', 'BYSCORE', 'REV', 'LIMIT', '0', '1', 'WITHSCORES')
      latest = last[2] and tonumber(last[2])
    end
  end

  local used = 0
  local after, upto = '(' .. score(now - span), drops and score(now) or '+inf'
  if found == STATE then used = redis.call('ZCOUNT', key, after, upto) end
  if used == 0 then latest = nil end
  local entry, at = 0, now + ahead
  if latest and latest > at then
    -- Not the last one: others are booked further ahead.
    last = redis.call('ZRANGE', key, score(at), score(at), 'BYSCORE', 'REV', 'LIMIT', '0', '1')
    if last[1] and #last[1] == 12 then entry = struct.unpack('>I4', last[1], 9) + 1 end
  elseif latest == at and #last[1] == 12 then
    entry = struct.unpack('>I4', last[1], 9) + 1
  end
  return now, behind, drops, used, latest, entry, found, after, upto
end

local function sliding_log_visit(key, now, args)
  local _, cost, limit, span, lease, ahead = struct.unpack('<BI4I4I8I4I4', args)
  local behind, drops, used, latest, entry, found, after, upto
  now, behind, drops, used, latest, entry, found, after, upto = sliding_log_look(key, now, span, lease, ahead)

  local outcome, retry_after, counted = ALLOWED, 0, used
  local reset_after = latest and behind + latest + span - now or 0
  local spend, mend
  if cost > limit then
    outcome = NEVER
  elseif used + cost > limit then
    -- The entry whose leaving makes room.
    local leaving = score(used + cost - limit - 1)
    local oldest = redis.call('ZRANGE', key, after, upto, 'BYSCORE', 'LIMIT', leaving, '1', 'WITHSCORES')
    outcome, retry_after = DENIED, behind + tonumber(oldest[2]) + span - now
  elseif not PEEKING then
    counted, reset_after = used + cost, math.max(reset_after, behind + ahead + span)
    spend = struct.pack('<I8I8I4I4BI4I4', now, span, entry, cost, drops and 1 or 0, ahead, behind)
  end
  if drops and not spend then mend = struct.pack('<I8I8I4I4BI4I4', now, span, 0, 0, 1, 0, 0) end
  -- The entry's name: its number, and how far its instant is from the call's now.
  local mark = (behind + ahead) * 4294967296 + entry
  return outcome, math.max(limit - counted, 0), retry_after, reset_after, mark, found, spend, mend
end

local function sliding_log_write(key, ttl, body, found)
  local now, span, entry, cost, drops, ahead, behind = struct.unpack('<I8I8I4I4BI4I4', body)
  if found == MALFORMED then redis.call('DEL', key) end
  if drops == 1 then redis.call('ZREMRANGEBYSCORE', key, '(' .. score(now), '+inf') end
  if cost == 0 then return end
  -- By the clock itself, not by the latest entry: see the twin.
  redis.call('ZREMRANGEBYSCORE', key, '-inf', score(now - behind - span))
  local booked_at = now + ahead
  local at, arguments = score(booked_at), {}
  for i = entry, entry + cost - 1 do
    arguments[#arguments + 1] = at
    arguments[#arguments + 1] = struct.pack('>I8I4', booked_at, i)
    if #arguments == 2000 then
      redis.call('ZADD', key, unpack(arguments))
      arguments = {}
    end
  end
  if #arguments > 0 then redis.call('ZADD', key, unpack(arguments)) end
  redis.call('PEXPIRE', key, ttl)
end

local function sliding_log_mend(key, now, args)
  local _, _, _, span, lease = struct.unpack('<BI4I4I8I4', args)
  local at, _, drops = sliding_log_look(key, now, span, lease, 0)
  return drops and struct.pack('<I8I8I4I4BI4I4', at, span, 0, 0, 1, 0, 0)
end

local function sliding_log_refund(key, now, args, _, taken_at, entry)
  local _, cost, limit, span, lease = struct.unpack('<BI4I4I8I4', args)
  local at, _, drops, _, _, _, found = sliding_log_look(key, now, span, lease, 0)
  local removed = 0
  if found == STATE then
    -- By what is there, not by what is asked for: a cost may be four thousand million.
    for _, member in ipairs(redis.call('ZRANGE', key, score(taken_at), score(taken_at), 'BYSCORE')) do
      local number = #member == 12 and struct.unpack('>I4', member, 9) or -1
      if number >= entry and number < entry + cost then removed = removed + redis.call('ZREM', key, member) end
    end
  end
  if drops and taken_at > at or taken_at + span <= at then removed = 0 end
  local behind, used, latest
  at, behind, _, used, latest = sliding_log_look(key, now, span, lease, 0)
  local returned = removed == 0 and RETURNED_NOTHING or (removed < cost and RETURNED_PART or RETURNED_ALL)
  return returned, math.max(limit - used, 0), latest and behind + latest + span - at or 0
end
