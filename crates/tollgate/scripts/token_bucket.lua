-- token_bucket.lua: tokens in units small enough that a microsecond refills a whole number.
--
-- Twin of core/src/algorithm/token_bucket.rs: the same integers, compared in the same order.
-- Change both or neither; `cargo xtask test twin` replays random histories through both.
--
-- State    units and last_refill (8 bytes each: doubles, which cost half as much to read as
--          integers, and hold only whole numbers), and the limit it was written under: capacity
--          (4), unit (8), pour (4). Absent means full.
-- Args     kind (1), cost (4), capacity (4), unit (8): units per token, pour (4): units per
--          microsecond. capacity * unit + pour <= 2^51, so every sum here is exact.
-- Work     one load to look, at most one save to spend.

-- The bucket brought up to the present, under the numbers that hold now. `mended` if it was carried
-- over from another limit, or freed from a clock that ran ahead: then it is to be written down even
-- if the ask is refused.
local function token_bucket_look(key, now, capacity, unit, pour)
  local found, units, last_refill, was_capacity, was_unit, was_pour = load(key, '<ddI4I8I4', 32)
  local was_full = found == STATE and was_capacity * was_unit
  if found == STATE and not (was_full > 0 and was_full + was_pour <= 2251799813685248 and was_pour > 0
      and units >= 0 and units <= was_full and units == math.floor(units)
      and last_refill >= 0 and last_refill < 9007199254740992 and last_refill == math.floor(last_refill)) then
    found = MALFORMED
  end
  if found ~= STATE then return capacity * unit, now, 0, false, found end

  local behind, elapsed, stepped = 0, now - last_refill, false
  if elapsed >= 0 then
    units = math.min(units + elapsed * was_pour, was_full)
  elseif elapsed >= -1000000 then
    behind, now = -elapsed, last_refill
  else
    -- A clock that stepped back further is re-anchored: the tokens stay, at now.
    stepped = true
  end

  if was_capacity == capacity and was_unit == unit and was_pour == pour then
    return units, now, behind, stepped, found
  end
  -- The same share of the new bucket, down to the unit.
  return mul_div(units, capacity * unit, was_full), now, behind, true, found
end

local function token_bucket_visit(key, now, args)
  local _, cost, capacity, unit, pour = struct.unpack('<BI4I4I8I4', args)
  local units, behind, mended, found
  units, now, behind, mended, found = token_bucket_look(key, now, capacity, unit, pour)
  local needed, full, left = cost * unit, capacity * unit, units

  local outcome, retry_after = ALLOWED, 0
  if cost > capacity then
    outcome = NEVER
  elseif units < needed then
    outcome, retry_after = DENIED, behind + math.ceil((needed - units) / pour)
  elseif not PEEKING then
    left = units - needed
  end

  local reset_after = left < full and behind + math.ceil((full - left) / pour) or 0
  local spend, mend
  if outcome == ALLOWED and not PEEKING then
    spend = struct.pack('<ddI4I8I4', left, now, capacity, unit, pour)
  elseif outcome ~= ALLOWED and mended then
    mend = struct.pack('<ddI4I8I4', units, now, capacity, unit, pour)
  end
  return outcome, math.floor(left / unit), retry_after, reset_after, 0, found, spend, mend
end

local function token_bucket_write(key, ttl, body, found)
  save(key, ttl, body, '<ddI4I8I4', found)
end

-- In an ask that another check refused, what this one would have mended.
local function token_bucket_mend(key, now, args)
  local _, _, capacity, unit, pour = struct.unpack('<BI4I4I8I4', args)
  local units, at, _, mended = token_bucket_look(key, now, capacity, unit, pour)
  return mended and struct.pack('<ddI4I8I4', units, at, capacity, unit, pour)
end

local function token_bucket_refund(key, now, args, ttl, taken_at)
  local _, cost, capacity, unit, pour = struct.unpack('<BI4I4I8I4', args)
  local units, behind, mended, found
  units, now, behind, mended, found = token_bucket_look(key, now, capacity, unit, pour)
  local full = capacity * unit
  -- No more than a bucketful can be missing; the units of more would not be exact.
  local owed = math.min(cost, capacity) * unit
  local elapsed = math.max(now - taken_at, 0)
  local after = math.min(units + math.max(owed - elapsed * pour, 0), full)
  local given = after - units
  if found == STATE and (given > 0 or mended) then
    token_bucket_write(key, ttl, struct.pack('<ddI4I8I4', after, now, capacity, unit, pour), found)
  end
  local returned = given == 0 and RETURNED_NOTHING or (given < cost * unit and RETURNED_PART or RETURNED_ALL)
  local reset_after = after < full and behind + math.ceil((full - after) / pour) or 0
  return returned, math.floor(after / unit), reset_after
end
