-- batch.lua: many asks at one instant, each answered as if it had come alone, in the order they came.
--
-- Most are for one packed bucket each, and for buckets that no other ask of the batch is for. Those can
-- be read with one MGET, and decided in a loop that does nothing else; asks of different keys are alike
-- in any order. The others follow one after the other. An error is the answer to its ask alone.
--
-- KEYS     every key once; first those of the single buckets
-- ARGV[1]  now in microseconds; 0 asks Redis' own clock
-- ARGV[2]  the plan, a number to a byte. How many buckets are single; runs of them: where in ARGV they
--          find what they are asked, and how many ask so. Then the others, each either
--            0, its key, where in ARGV, how often: one bucket, asked the same again and again
--            n, then n times its key, where in ARGV: an ask of n checks
-- ARGV     then what is asked: of buckets as token_bucket_fast.lua has it, of checks as take.lua has
-- Reply    doubles in one string, which costs a tenth of as many integers: now; for every single bucket
--          4 * units + 0 if spent, 1 if refused, 2 if there was nothing and it is spent;
--          3 if five numbers follow below, as take.lua has them; 3 + 4 * i if error i was all that came of it.
--          Then those five numbers; then for the others: units and how often it was spent, of buckets
--          asked more than once; or for each ask 3 and its five numbers a check, or an error.
--          In an array with the errors, if there are any.
local protect = pcall
local call, pcall, pack, parse = redis.call, redis.pcall, struct.pack, struct.unpack
local now = tonumber(ARGV[1])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local plan = { string.byte(ARGV[2], 1, -1) }
local singles, at, start = plan[1], 2, 1
local values, errors, odd = {}, {}, {}
if singles > 0 then
  values = pcall('MGET', unpack(KEYS, 1, singles))
  if values.err then
    -- A user from before it was needed.
    for i = 1, singles do values[i] = pcall('GET', KEYS[i]) end
  end
end

local function failed(why)
  errors[#errors + 1] = type(why) == 'table' and why.err or tostring(why)
  return 3 + 4 * #errors
end

-- Results take the places of values: a table that has its size costs less than one that grows to it.
while start <= singles do
  local asked, stop = ARGV[plan[at]], start + plan[at + 1] - 1
  local pour, needed, full, renew_every, ttl = parse('<ddddd', asked)
  local limit = string.sub(asked, 41)
  local size, shape = 17 + #limit, #limit == 12 and '<Bddc12' or '<Bddc16'
  -- In text once it is needed: Redis would print the number anew for every key, with 17 digits.
  local renewed, ttl_text = now - now % renew_every, nil
  for i = start, stop do
    local value, result = values[i], 3
    if not value then
      local units = full - needed
      ttl_text = ttl_text or string.format('%.0f', ttl)
      local set = pcall('SET', KEYS[i], pack('<Bdd', 1, units, now) .. limit, 'PX', ttl_text, 'NX')
      -- Not set: it is of another type, which MGET does not tell.
      if set then result = set.ok and 4 * units + 2 or failed(set) end
    elseif #value == size then
      local version, units, last_refill, under = parse(shape, value)
      if under == limit and version == 1 and last_refill <= now and units >= 0 and units <= full then
        units = units + (now - last_refill) * pour
        if units > full then units = full end
        if units < needed then
          result = 4 * units + 1
        else
          units = units - needed
          result = 4 * units
          local is_kept = 1
          if last_refill < renewed then
            ttl_text = ttl_text or string.format('%.0f', ttl)
            is_kept = pcall('PEXPIRE', KEYS[i], ttl_text)
          end
          local length = is_kept == 1 and pcall('SETRANGE', KEYS[i], '1', pack('<dd', units, now)) or is_kept
          if length ~= size then result = failed(length) end
        end
      end
    end
    if result == 3 then odd[#odd + 1], odd[#odd + 2] = i, asked end
    values[i] = result
  end
  at, start = at + 2, stop + 1
end
local function packed()
  return pack('<d' .. string.rep('d', singles), now, unpack(values, 1, singles))
end
-- Mostly that is all.
if #odd == 0 and #errors == 0 and at > #plan then return packed() end

local results = {}

-- A single bucket's arguments as take.lua has them.
local function spelt_out(asked)
  local pour, needed, full, _, ttl = parse('<ddddd', asked)
  local capacity = parse('<I4', asked, 41)
  local unit = full / capacity
  return pack('<BI4I4I8I4', 1, needed / unit, capacity, unit, pour), string.format('%.0f', ttl)
end

local function one(key, args, ttl)
  local outcome, remaining, retry_after, reset_after, mark, found, spend, mend = visit(key, now, args)
  if spend or mend then write(key, ttl, spend or mend, found, args) end
  local n = #results
  results[n + 1], results[n + 2], results[n + 3] = outcome + 4 * found, remaining, retry_after
  results[n + 4], results[n + 5] = reset_after, mark
end

-- One ask of its own, and what comes of it.
local function each(ask, ...)
  local n = #results + 1
  results[n] = 3
  local is_done, why = protect(ask, ...)
  if not is_done then results[n] = failed(why) end
end

-- One bucket, asked the same again and again. Says whether there was nothing unusual about it.
local function repeatedly(key, asked, times)
  local pour, needed, full, renew_every, ttl = parse('<ddddd', asked)
  local limit = string.sub(asked, 41)
  local value, created, renews = pcall('GET', key), 0, false
  local units = full
  if not value then
    created = 2
  elseif type(value) == 'string' and #value == 17 + #limit then
    local version, last_refill
    version, units, last_refill = parse('<Bdd', value)
    local under = string.sub(value, 18)
    if under ~= limit or version ~= 1 or last_refill > now or units < 0 or units > full then return false end
    units = math.min(units + (now - last_refill) * pour, full)
    renews = last_refill < now - now % renew_every
  else
    return false
  end
  local spent = math.min(math.floor(units / needed), times)
  units = units - spent * needed
  if spent > 0 and created > 0 then
    call('PSETEX', key, ttl, pack('<Bdd', 1, units, now) .. limit)
  elseif spent > 0 then
    if renews then call('PEXPIRE', key, ttl) end
    call('SETRANGE', key, '1', pack('<dd', units, now))
  end
  results[#results + 1] = 4 * units + created
  results[#results + 1] = spent
  return true
end

local function of_checks(at, count)
  if count == 1 then return one(KEYS[plan[at + 1]], ARGV[plan[at + 2]], ARGV[plan[at + 2] + 1]) end
  local keys, arguments = {}, {}
  for i = 1, count do
    keys[i] = KEYS[plan[at + 2 * i - 1]]
    local where = plan[at + 2 * i]
    arguments[2 * i], arguments[2 * i + 1] = ARGV[where], ARGV[where + 1]
  end
  local reply, n = several(now, keys, arguments), #results
  for i = 2, #reply do results[n + i - 1] = reply[i] end
end

for i = 1, #odd, 2 do
  local args, ttl = spelt_out(odd[i + 1])
  local is_done, why = protect(one, KEYS[odd[i]], args, ttl)
  if not is_done then values[odd[i]] = failed(why) end
end
while at <= #plan do
  local count = plan[at]
  if count > 0 then
    each(of_checks, at, count)
    at = at + 1 + 2 * count
  else
    local key, asked, times = KEYS[plan[at + 1]], ARGV[plan[at + 2]], plan[at + 3]
    local is_done, is_plain = protect(repeatedly, key, asked, times)
    if not is_done then
      for _ = 1, times do results[#results + 1] = failed(is_plain) end
    elseif not is_plain then
      local args, ttl = spelt_out(asked)
      for _ = 1, times do each(one, key, args, ttl) end
    end
    at = at + 4
  end
end
local all = packed() .. pack('<' .. string.rep('d', #results), unpack(results))
if #errors > 0 then return { all, unpack(errors) } end
return all
