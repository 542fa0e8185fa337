-- fixed_window.lua: one counter per window, aligned to the epoch or to a calendar.
--
-- Twin of core/src/algorithm/fixed_window.rs: change both or neither.
--
-- State    window (8 bytes): where the counted window begins; count (4).
-- Args     kind (1), cost (4), limit (4), span (8). A span of 0 means a calendar, and then four
--          boundaries follow (8 each): previous, current, next, end. Lua knows no time zones, so
--          the caller sends three windows and this picks by Redis' now. Outside all three it
--          answers STALE, and is asked again with others.

local function fixed_window_of(now, span, args)
  if span > 0 then
    local start = now - now % span
    return start, start + span
  end
  local previous, current, following, last = struct.unpack('<I8I8I8I8', args, 18)
  if now < previous or now >= last then return nil end
  if now < current then return previous, current end
  if now < following then return current, following end
  return following, last
end

local function fixed_window_look(key, now, span, args)
  local found, window, count = load(key, '<I8I4', 12)
  local behind = 0
  if found == STATE then
    if now < window and window - now <= 1000000 then
      behind, now = window - now, window
    elseif now < window then
      window, count = 0, 0
    end
  else
    window, count = 0, 0
  end
  local start, finish = fixed_window_of(now, span, args)
  -- `<`, not `~=`: a limit whose period grew keeps what its shorter window had counted.
  if start and window < start then count = 0 end
  return start, finish, count, now, behind, found
end

local function fixed_window_visit(key, now, args)
  local _, cost, limit, span = struct.unpack('<BI4I4I8', args)
  local start, finish, count, behind, found
  start, finish, count, now, behind, found = fixed_window_look(key, now, span, args)
  if not start then return STALE, 0, 0, 0, 0, found end

  local until_end, after = behind + finish - now, count
  local outcome, retry_after, spend = ALLOWED, 0, nil
  if cost > limit then
    outcome = NEVER
  elseif cost > limit - count then
    outcome, retry_after = DENIED, until_end
  elseif not PEEKING then
    after = count + cost
    spend = struct.pack('<I8I4', start, after)
  end
  return outcome, math.max(limit - after, 0), retry_after, after > 0 and until_end or 0, 0, found, spend
end

local function fixed_window_write(key, ttl, body, found)
  save(key, ttl, body, '<I8I4', found)
end

local function fixed_window_refund(key, now, args, ttl, taken_at)
  local _, cost, limit, span = struct.unpack('<BI4I4I8', args)
  local start, finish, count, behind, found
  start, finish, count, now, behind, found = fixed_window_look(key, now, span, args)
  if not start then return STALE, 0, 0 end
  local given = 0
  if taken_at >= start and taken_at < finish then given = math.min(cost, count) end
  local after = count - given
  if given > 0 then fixed_window_write(key, ttl, struct.pack('<I8I4', start, after), found) end
  local returned = given == 0 and RETURNED_NOTHING or (given < cost and RETURNED_PART or RETURNED_ALL)
  return returned, math.max(limit - after, 0), after > 0 and behind + finish - now or 0
end
