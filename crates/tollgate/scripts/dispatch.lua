-- dispatch.lua: for asks whose checks are of several kinds. The first byte of a check's arguments
-- says which; the order here is the order of the kinds in store/redis/scripts.rs.
local function nothing_to_mend() end

local KINDS = {
  { token_bucket_visit, token_bucket_write, token_bucket_mend, token_bucket_refund },
  { sliding_log_visit, sliding_log_write, sliding_log_mend, sliding_log_refund },
  { sliding_window_visit, sliding_window_write, nothing_to_mend, sliding_window_refund },
  { fixed_window_visit, fixed_window_write, nothing_to_mend, fixed_window_refund },
}

local function visit(key, now, args)
  return KINDS[string.byte(args)][1](key, now, args)
end

local function write(key, ttl, body, found, args)
  return KINDS[string.byte(args)][2](key, ttl, body, found)
end

local function mend(key, now, args)
  return KINDS[string.byte(args)][3](key, now, args)
end

local function refund(key, now, args, ttl, taken_at, entry)
  return KINDS[string.byte(args)][4](key, now, args, ttl, taken_at, entry)
end
