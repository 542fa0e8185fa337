-- breaker.lua: one event happens to one breaker.
--
-- Twin of core/src/breaker: the same phases, causes and numbers, in the same order. Change both or neither.
--
-- KEYS     all on one slot:
--          1  the record, a hash in plain text: state, failures, successes, opened_at, and what is in FIELDS
--          2  the window, a hash: how many were well, by a bucket's place; that and 'f', how many failed; and 's', slow
--          3  who is there, a sorted set: each reporter by where the window stood at its last word
--          4  who of them is in trouble; 5  who of these fails. Both as 3
--          6  the probes under way, a sorted set: the tokens of leases by when each ends
--          7  a stream of what has changed
-- ARGV     1 the event; 2 now, or 0; 3 the dice; 4 the settings, packed doubles in the order of SETTINGS;
--          5 how long all of it is kept after an event, in milliseconds; 6 the channel of pushes; 7 what the breaker is
--          called there; then what the event says:
--            report    who, epoch, ok, failed, slow, health, hint (0 for none)
--            lease     token
--            settle    token, epoch, outcome, hint (0 for none)
--            return    token, epoch
--            override  mode, for how long, reason, who
--            lift, look
-- Reply    answer, its span; epoch, phase, its span; mode, what is left of it; and eleven numbers for each
--          change: cause, phase and span before and after, epoch, ok, failed, slow, reporters, troubled
-- Pushed   'epoch phase span mode left name', as in the reply, when something has changed
--
-- A half-open record with `since` is ramping: outwardly those are one state. `trouble` says whether anybody may
-- be in 4 or 5, and `kept` when the keys' lives were last lengthened: while all is well, neither is touched. `failures`,
-- `well` and `slow` are the sums of the window, the last two only where there is trouble; `counted` counts calls where the
-- window does, and `counted_by` tells which window that is.
--
-- Nearly every event is a report of calls that went well, to a record that is closed and where nobody is in trouble. It
-- can trip nothing, so little is read for it and less written: see report_calmly.

local function breaker()
  local CLOSED, OPEN, HALF_OPEN, RAMPING = 0, 1, 2, 3
  local DONE, LATE, GRANTED, FULL, MOOT = 0, 1, 2, 3, 4
  local FORCED_OPEN, FORCED_CLOSED, METRICS_ONLY = 1, 2, 3
  local FAILURES, FAILURE_RATIO, SLOW_RATIO, HINT, WAITED, PROBE_FAILED = 1, 2, 3, 4, 5, 6
  local PROBE_SLOW, PROBED, RAMPED, OVERRIDDEN, LIFTED = 7, 8, 9, 10, 11
  local CAUSES = { 'failures', 'failure_ratio', 'slow_ratio', 'hint', 'waited', 'probe_failed', 'probe_slow',
    'probed', 'ramped', 'overridden', 'lifted' }
  local OUTCOMES = { [''] = 'ok', f = 'failed', s = 'slow' }
  local STATES = { [0] = 'closed', 'open', 'half-open', 'half-open' }
  local FIELDS = { 'failures', 'well', 'slow', 'successes', 'opened_at', 'epoch', 'since', 'until', 'trips', 'seen',
    'counted', 'counted_by', 'override', 'override_until', 'trouble', 'kept' }
  local SETTINGS = { 'failures', 'failure_ratio', 'slow_ratio', 'by_calls', 'reach', 'width', 'minimum_calls',
    'quorum', 'open_for', 'open_max', 'jitter', 'decay_every', 'hint_max', 'probes', 'probe_for',
    'successes_to_close', 'ramp_step', 'steps' }
  local RAMP_MAX, REPORTERS_MAX, TRIPS_MAX, COUNT_MAX = 8, 1024, 32, 4294967295
  local EXACT_MAX, SECOND, OVERRIDE_MAX = 9007199254740991, 1000000, 2592000000000

  local KEYS, it, was, now, dice, told, packed, settings, keep_ms
  local max, min, floor, ceil, try = math.max, math.min, math.floor, math.ceil, pcall

  -- Never `..` a time: Lua prints 14 digits, a time has 16.
  local function text(number)
    return string.format('%.0f', number)
  end

  local function read_settings(argument)
    if argument == packed then return end
    local values = { struct.unpack('<' .. string.rep('d', #SETTINGS + RAMP_MAX), argument) }
    settings = { ramp = {} }
    for i, name in ipairs(SETTINGS) do settings[name] = values[i] end
    for step = 1, settings.steps do settings.ramp[step] = values[#SETTINGS + step] end
    -- Tells its window from every other.
    settings.mark = 2 * settings.reach + settings.by_calls
    packed = argument
  end

  local function share(elapsed)
    return settings.ramp[floor(elapsed / settings.ramp_step) + 1] or 1000
  end

  -- What is not a record of ours is none at all.
  local function read_record()
    local values = redis.call('HMGET', KEYS[1], 'state', 'reason', 'who', unpack(FIELDS))
    it, was = { reason = values[2] or '', who = values[3] or '' }, {}
    local is_ours = values[1] == 'closed' or values[1] == 'open' or values[1] == 'half-open'
    for i, name in ipairs(FIELDS) do
      local number = is_ours and tonumber(values[i + 3] or '')
      is_ours = number and number >= 0 and number <= EXACT_MAX and number == floor(number)
      it[name] = is_ours and number or 0
      was[name] = it[name]
    end
    was.state, was.reason, was.who = values[1], values[2], values[3]
    if not is_ours or it.override > METRICS_ONLY then
      redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
      was = {}
      it = { reason = '', who = '', phase = CLOSED }
      for _, name in ipairs(FIELDS) do it[name] = 0 end
    elseif values[1] == 'half-open' then
      it.phase = it.since > 0 and RAMPING or HALF_OPEN
    else
      it.phase = values[1] == 'open' and OPEN or CLOSED
    end
  end

  local function clear_window()
    redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
    it.failures, it.well, it.slow, it.trouble = 0, 0, 0, 0
  end

  -- Begins to count anew where another window has counted so far, as after a reload.
  local function count_by()
    if it.counted_by == settings.mark then return end
    it.counted_by = settings.mark
    clear_window()
  end

  -- A clock that is behind by up to a second is waited for; one that was set back is followed.
  local function read_clock()
    local behind = it.seen - now
    if behind > SECOND then
      it.kept = 0
      for _, name in ipairs({ 'since', 'opened_at', 'until', 'override_until' }) do
        it[name] = max(it[name] - behind, 0)
      end
      local leases = redis.call('ZRANGE', KEYS[6], '0', '-1', 'WITHSCORES')
      for i = 1, #leases, 2 do
        redis.call('ZADD', KEYS[6], text(max(tonumber(leases[i + 1]) - behind, 0)), leases[i])
      end
      if settings.by_calls == 0 then clear_window() end
    elseif behind > 0 then
      now = it.seen
    end
    it.seen = now
  end

  -- Takes a bucket out of the window, and out of its sums.
  local function drop(bucket, sum)
    local field = text(bucket.at)
    redis.call('HDEL', KEYS[2], field, field .. 'f', field .. 's')
    for _, which in pairs(OUTCOMES) do sum[which] = sum[which] - bucket[which] end
    sum.calls = sum.calls - bucket.calls
  end

  -- Buckets, the oldest first, and all of them together.
  local function read_window()
    local fields, buckets, places = redis.call('HGETALL', KEYS[2]), {}, {}
    local sum = { ok = 0, failed = 0, slow = 0, calls = 0 }
    for i = 1, #fields, 2 do
      local at, end_of_field = string.match(fields[i], '^(%d+)([fs]?)$')
      local number, which = tonumber(string.match(fields[i + 1], '^%d+$') or ''), OUTCOMES[end_of_field]
      if at and number then
        local bucket = places[at]
        if not bucket then
          bucket = { at = tonumber(at), ok = 0, failed = 0, slow = 0, calls = 0 }
          places[at], buckets[#buckets + 1] = bucket, bucket
        end
        bucket[which], bucket.calls = number, bucket.calls + number
        sum[which], sum.calls = sum[which] + number, sum.calls + number
      else
        redis.call('HDEL', KEYS[2], fields[i])
      end
    end
    table.sort(buckets, function(one, other) return one.at < other.at end)
    return buckets, sum
  end

  local function position()
    return settings.by_calls == 1 and it.counted or now
  end

  -- Of those with calls in the window: how many are there (3), in trouble (4), or fail (5).
  local function muster(which)
    if which > 3 and it.trouble == 0 then return 0 end
    return redis.call('ZCOUNT', KEYS[which], '(' .. text(position() - settings.reach), '+inf')
  end

  -- How long a key lives from now on. Lengthened only now and then, so with what may pass meanwhile; and none
  -- ends before the record does, though the clock may be a second behind.
  local function live(key)
    local left = it.override > 0 and max(it.override_until - now, 0) or 0
    local longer = key == KEYS[1] and 0 or 2000
    redis.call('PEXPIRE', key, text(keep_ms + ceil(keep_ms / 8) + ceil(left / 1000) + longer))
  end

  local function span()
    if it.phase == OPEN then return max(it['until'] - now, 0) end
    if it.phase == RAMPING then return max(now - it.since, 0) end
    return 0
  end

  -- Tells of a cause, and what was known; so far nothing has changed.
  local function note(cause)
    local _, sum = read_window()
    told[#told + 1] = { cause, it.phase, span(), it.phase, span(), it.epoch, sum.ok, sum.failed, sum.slow,
      muster(3), muster(4) }
  end

  -- Forgets the outcomes and who was in trouble, but not who is there.
  local function begin_anew()
    it.failures, it.well, it.slow, it.trouble = 0, 0, 0, 0
    redis.call('DEL', KEYS[2], KEYS[4], KEYS[5])
  end

  local function begin(phase, open_for)
    it.epoch = min(max(it.epoch + 1, now), EXACT_MAX)
    it.phase, it.successes, it.since = phase, 0, 0
    if phase == OPEN then
      it.opened_at, it['until'] = now, now + open_for
    elseif phase ~= HALF_OPEN then
      it.since = now
    end
    redis.call('DEL', KEYS[6])
    begin_anew()
  end

  local function enter(phase, cause, open_for)
    note(cause)
    begin(phase, open_for)
    local noted = told[#told]
    noted[4], noted[5], noted[6] = it.phase, span(), it.epoch
  end

  -- Forced open -> half-open, any other -> closed.
  local function lift(cause)
    local mode = it.override
    it.override, it.override_until, it.reason, it.who = 0, 0, '', ''
    if mode == FORCED_OPEN then
      enter(HALF_OPEN, cause)
    elseif mode > 0 then
      enter(CLOSED, LIFTED)
    end
    return DONE, 0
  end

  -- What time alone does.
  local function elapse()
    if it.phase == HALF_OPEN then redis.call('ZREMRANGEBYSCORE', KEYS[6], '-inf', text(now)) end
    if it.override > 0 and it.override_until <= now then lift(WAITED) end
    if it.phase == CLOSED and it.since == 0 then
      begin(CLOSED)
    elseif it.phase == OPEN and it['until'] <= now then
      enter(HALF_OPEN, WAITED)
    elseif it.phase == RAMPING and now - it.since >= settings.ramp_step * settings.steps then
      enter(CLOSED, RAMPED)
    end
  end

  local function open_for(trips)
    local span = settings.open_for
    for _ = 2, trips do span = min(span * 2, settings.open_max) end
    local spread = floor(floor(span * min(dice, 1000) / 1000) * settings.jitter / 1000)
    if span == settings.open_max then return span - spread end
    return min(span + spread, settings.open_max)
  end

  local function trip(cause, hint)
    local trips = it.trips
    if it.phase == CLOSED then trips = max(trips - floor((now - it.since) / settings.decay_every), 0) end
    trips = min(trips + 1, TRIPS_MAX)
    hint = min(hint, settings.hint_max)
    it.trips = trips
    enter(OPEN, cause, cause == HINT and hint or max(open_for(trips), hint))
  end

  local function reason_to_trip()
    local gather_for = settings.by_calls == 1 and SECOND or min(floor(settings.reach / 2), SECOND)
    if settings.quorum > 0 and now - it.since < gather_for then return nil end
    local troubled = muster(4)
    if troubled == 0 or troubled < max(ceil(settings.quorum * muster(3) / 1000), 1) then return nil end
    if muster(5) > 0 then return FAILURES end
    local passing = it.phase == RAMPING and share(now - it.since) or 1000
    local calls = it.well + it.failures + it.slow
    if calls < ceil(settings.minimum_calls * passing / 1000) then return nil end
    local function is_reached(ratio, part) return ratio > 0 and part * 1000 >= ratio * calls end
    if is_reached(settings.failure_ratio, it.failures) then return FAILURE_RATIO end
    if is_reached(settings.slow_ratio, it.slow) then return SLOW_RATIO end
    return nil
  end

  -- Adds to one number of a bucket; says whether the window's sums are to be taken anew.
  local function increase(field, by)
    local sum = redis.call('HINCRBY', KEYS[2], field, by)
    if sum > COUNT_MAX then redis.call('HSET', KEYS[2], field, COUNT_MAX) end
    return sum == by or sum > COUNT_MAX
  end

  -- By calls, the last bucket of the window, if there is room in it, or the next.
  local function last_bucket(buckets)
    local last = buckets[#buckets]
    if last and last.calls < settings.width then return last end
    last = { at = it.counted, ok = 0, failed = 0, slow = 0, calls = 0 }
    buckets[#buckets + 1] = last
    return last
  end

  -- Adds to the window, and forgets what it no longer looks back to. By time, something is there to be forgotten only where a
  -- bucket begins; by calls, there may be each time.
  local function count(ok, failed, slow)
    local at, buckets, sum = floor(now / settings.width), nil, nil
    if settings.by_calls == 1 then
      buckets, sum = read_window()
      local last = last_bucket(buckets)
      for which, by in pairs({ ok = ok, failed = failed, slow = slow }) do
        local more = min(by, COUNT_MAX - last[which])
        last[which], last.calls = last[which] + more, last.calls + more
        sum[which], sum.calls = sum[which] + more, sum.calls + more
      end
      at, it.counted = last.at, min(it.counted + ok + failed + slow, EXACT_MAX)
    end
    local field, is_new = text(at), false
    if ok > 0 then is_new = increase(field, ok) end
    if failed > 0 then is_new = increase(field .. 'f', failed) or is_new end
    if slow > 0 then is_new = increase(field .. 's', slow) or is_new end
    it.well, it.failures, it.slow = it.well + ok, it.failures + failed, it.slow + slow
    if is_new then live(KEYS[2]) end
    if settings.by_calls == 0 then
      if not is_new then return end
      buckets, sum = read_window()
    end
    for _, oldest in ipairs(buckets) do
      local is_spare = sum.calls - oldest.calls >= settings.reach
      if settings.by_calls == 0 then is_spare = oldest.at + 10 <= at end
      if not is_spare then break end
      drop(oldest, sum)
    end
    it.well, it.failures, it.slow = sum.ok, sum.failed, sum.slow
  end

  -- Puts a name among others, of whom those are forgotten that were not heard of in the window.
  local function enrol(key, at, who)
    if redis.call('ZADD', key, at, who) == 0 then return true end
    live(key)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', text(position() - settings.reach))
    if redis.call('ZCARD', key) <= REPORTERS_MAX then return true end
    redis.call('ZREM', key, who)
    return false
  end

  -- What a reporter last said of itself.
  local function hear(who, health)
    local at = text(position())
    if not enrol(KEYS[3], at, who) or it.trouble == 0 and health == 0 then return end
    for i = 1, 2 do
      if health < i then redis.call('ZREM', KEYS[i + 3], who) else enrol(KEYS[i + 3], at, who) end
    end
    if it.trouble == 0 then
      local _, sum = read_window()
      it.well, it.slow = sum.ok, sum.slow
    end
    it.trouble = 1
    -- Whoever fails is in trouble, so where nobody is in 4 nobody is in 5.
    if health == 0 then it.trouble = min(muster(4), 1) end
  end

  local EVENTS = { lift = function() return lift(LIFTED) end, look = function() return DONE, 0 end }

  function EVENTS.report(who, epoch, ok, failed, slow, health, hint)
    if tonumber(epoch) ~= it.epoch then return LATE, 0 end
    if it.phase == OPEN or it.phase == HALF_OPEN then return DONE, 0 end
    ok, failed, slow, hint = tonumber(ok), tonumber(failed), tonumber(slow), tonumber(hint)
    if ok + failed + slow > 0 then
      count(ok, failed, slow)
      hear(who, tonumber(health))
    end
    if settings.hint_max == 0 then hint = 0 end
    local cause = hint > 0 and HINT or reason_to_trip()
    if cause and it.override == METRICS_ONLY then
      note(cause)
      begin_anew()
    elseif cause and it.override ~= FORCED_CLOSED then
      trip(cause, hint)
    end
    return DONE, 0
  end

  function EVENTS.lease(token)
    if it.phase ~= HALF_OPEN then return MOOT, 0 end
    local ends = redis.call('ZSCORE', KEYS[6], token)
    if ends then return GRANTED, tonumber(ends) - now end
    if redis.call('ZCARD', KEYS[6]) >= settings.probes then
      return FULL, tonumber(redis.call('ZRANGE', KEYS[6], '0', '0', 'WITHSCORES')[2]) - now
    end
    redis.call('ZADD', KEYS[6], text(now + settings.probe_for), token)
    live(KEYS[6])
    return GRANTED, settings.probe_for
  end

  EVENTS['return'] = function(token, epoch)
    if tonumber(epoch) ~= it.epoch or redis.call('ZREM', KEYS[6], token) == 0 then return LATE, 0 end
    return DONE, 0
  end

  function EVENTS.settle(token, epoch, outcome, hint)
    if EVENTS['return'](token, epoch) == LATE or it.phase ~= HALF_OPEN then return LATE, 0 end
    if outcome == '1' then
      trip(PROBE_FAILED, tonumber(hint))
    elseif outcome == '2' then
      trip(PROBE_SLOW, tonumber(hint))
    elseif it.successes + 1 < settings.successes_to_close then
      it.successes = it.successes + 1
    else
      enter(settings.steps > 0 and RAMPING or CLOSED, PROBED)
    end
    return DONE, 0
  end

  function EVENTS.override(mode, keep_for, reason, who)
    it.override, it.reason, it.who = tonumber(mode), reason, who
    it.override_until = now + min(tonumber(keep_for), OVERRIDE_MAX)
    if it.override == FORCED_OPEN then
      enter(OPEN, OVERRIDDEN, it.override_until - now)
    else
      enter(CLOSED, OVERRIDDEN)
    end
    return DONE, 0
  end

  -- What has changed of it.
  local function write_record()
    local is_due = #told > 0 or now - it.kept >= keep_ms * 125
    if is_due then it.kept = now end
    local words = {}
    it.state = STATES[it.phase]
    for _, name in ipairs({ 'state', 'reason', 'who' }) do
      if it[name] ~= was[name] then words[#words + 1], words[#words + 2] = name, it[name] end
    end
    for _, name in ipairs(FIELDS) do
      if it[name] ~= was[name] then words[#words + 1], words[#words + 2] = name, text(it[name]) end
    end
    if #words > 0 then redis.call('HSET', KEYS[1], unpack(words)) end
    if is_due then
      for i = 1, 7 do live(KEYS[i]) end
    end
  end

  local function tell(channel, name, left)
    for _, one in ipairs(told) do
      redis.call('XADD', KEYS[7], 'MAXLEN', '~', '1000', '*', 'cause', CAUSES[one[1]],
        'from', STATES[one[2]], 'to', STATES[one[4]], 'epoch', text(one[6]), 'for_us', text(one[5]),
        'ok', text(one[7]), 'failed', text(one[8]), 'slow', text(one[9]),
        'reporters', text(one[10]), 'troubled', text(one[11]), 'who', it.who, 'reason', it.reason)
    end
    if #told > 0 then
      local words = { text(it.epoch), text(it.phase), text(span()), text(it.override), text(left), name }
      -- As core/src/push.rs has it. Whoever may not publish is still heard by those who look.
      redis.pcall('PUBLISH', channel, '\1b' .. table.concat(words, ' '))
    end
  end

  -- A report that can trip nothing. Nothing is done where it is not certain to be one.
  local function report_calmly(who, epoch, ok, failed, slow, health, hint)
    if health ~= '0' or hint ~= '0' or settings.by_calls == 1 then return nil end
    local values = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'override', 'trouble', 'seen', 'kept', 'failures',
      'counted_by')
    if values[1] ~= 'closed' or values[2] ~= epoch or values[3] ~= '0' or values[4] ~= '0' then return nil end
    local seen, kept, failures = tonumber(values[5] or ''), tonumber(values[6] or ''), tonumber(values[7] or '')
    if not (seen and kept and failures) or seen - now > SECOND then return nil end
    if tonumber(values[8] or '') ~= settings.mark then return nil end
    now = max(now, seen)
    if now - kept >= keep_ms * 125 then return nil end
    it = { epoch = tonumber(epoch), failures = failures, well = 0, slow = 0, override = 0, trouble = 0 }
    ok, failed, slow = tonumber(ok), tonumber(failed), tonumber(slow)
    if ok + failed + slow > 0 then
      count(ok, failed, slow)
      hear(who, 0)
    end
    if it.failures == failures then
      redis.call('HSET', KEYS[1], 'seen', text(now))
    else
      redis.call('HSET', KEYS[1], 'seen', text(now), 'failures', text(it.failures))
    end
    return { DONE, 0, it.epoch, CLOSED, 0, 0, 0 }
  end

  local function step(ARGV)
    now, dice, told, keep_ms = tonumber(ARGV[2]), tonumber(ARGV[3]), {}, tonumber(ARGV[5])
    if now == 0 then
      local time = redis.call('TIME')
      now = time[1] * 1000000 + time[2]
    end
    read_settings(ARGV[4])
    local reply = ARGV[1] == 'report' and report_calmly(unpack(ARGV, 8))
    if reply then return reply end
    read_record()
    read_clock()
    count_by()
    elapse()
    local answer, answer_span = EVENTS[ARGV[1]](unpack(ARGV, 8))
    local left = it.override > 0 and max(it.override_until - now, 0) or 0
    tell(ARGV[6], ARGV[7], left)
    write_record()
    reply = { answer, answer_span, it.epoch, it.phase, span(), it.override, left }
    for _, one in ipairs(told) do
      for _, number in ipairs(one) do reply[#reply + 1] = number end
    end
    return reply
  end

  return function(keys, arguments)
    KEYS = keys
    local is_done, reply = try(step, arguments)
    if is_done then return reply end
    local why = type(reply) == 'table' and reply.err or tostring(reply)
    local is_foreign = string.find(why, 'WRONGTYPE', 1, true) or string.find(why, 'hash value is not', 1, true)
    if not is_foreign then error(reply, 0) end
    -- Somebody else's value stands under one of our keys, and counts as absent.
    redis.call('DEL', unpack(keys))
    return step(arguments)
  end
end
