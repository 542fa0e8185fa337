-- sliding_window.lua: two counters stand for a log, in constant memory.
--
-- Twin of core/src/algorithm/sliding_window.rs: change both or neither.
--
-- State    window (8 bytes): where the current window begins; count (4); previous (4).
-- Args     kind (1), cost (4), limit (4), span (8).

-- How far into a window the share of `previous` has shrunk to `room`.
local function sliding_window_shrunk_at(span, previous, room)
  local excess = previous - room - 1
  if excess < 0 then return 0 end
  return mul_div(excess, span, previous) + 1
end

local function sliding_window_look(key, now, span)
  local found, window, current, previous = load(key, '<I8I4I4', 16)
  local behind = 0
  if found == STATE then
    if now < window and window - now <= 1000000 then
      behind, now = window - now, window
    elseif now < window then
      window, current, previous = 0, 0, 0
    end
  else
    window, current, previous = 0, 0, 0
  end
  local into = now % span
  local start = now - into
  if window < start then
    previous = window + span >= start and current or 0
    current = 0
  end
  return start, into, current, previous, behind, found
end

-- Until nothing counts any more.
local function sliding_window_whole(span, into, current, previous, behind)
  local whole = current > 0 and span + sliding_window_shrunk_at(span, current, 0)
    or sliding_window_shrunk_at(span, previous, 0)
  return whole > into and behind + whole - into or 0
end

local function sliding_window_visit(key, now, args)
  local _, cost, limit, span = struct.unpack('<BI4I4I8', args)
  local start, into, current, previous, behind, found = sliding_window_look(key, now, span)
  local share = mul_div(previous, span - into, span)

  local outcome, retry_after, spend = ALLOWED, 0, nil
  if cost > limit then
    outcome = NEVER
  elseif current + share + cost > limit then
    local room, fits_at = limit - current - cost, nil
    if room >= 0 then
      fits_at = sliding_window_shrunk_at(span, previous, room)
    else
      fits_at = span + sliding_window_shrunk_at(span, current, limit - cost)
    end
    outcome, retry_after = DENIED, behind + fits_at - into
  elseif not PEEKING then
    current = current + cost
    spend = struct.pack('<I8I4I4', start, current, previous)
  end
  local reset_after = sliding_window_whole(span, into, current, previous, behind)
  return outcome, math.max(limit - current - share, 0), retry_after, reset_after, 0, found, spend
end

local function sliding_window_write(key, ttl, body, found)
  save(key, ttl, body, '<I8I4I4', found)
end

local function sliding_window_refund(key, now, args, ttl, taken_at)
  local _, cost, limit, span = struct.unpack('<BI4I4I8', args)
  local start, into, current, previous, behind, found = sliding_window_look(key, now, span)
  local given = 0
  if taken_at >= start and taken_at < start + span then given = math.min(cost, current) end
  current = current - given
  if given > 0 then
    sliding_window_write(key, ttl, struct.pack('<I8I4I4', start, current, previous), found)
  end
  local returned = given == 0 and RETURNED_NOTHING or (given < cost and RETURNED_PART or RETURNED_ALL)
  local share = mul_div(previous, span - into, span)
  return returned, math.max(limit - current - share, 0),
    sliding_window_whole(span, into, current, previous, behind)
end
