-- fast_script.lua: what token_bucket_fast.lua starts from, in a script.
local call, pcall, pack, parse = redis.call, redis.pcall, struct.pack, struct.unpack
local key = KEYS[1]
local value = pcall('GET', key)
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local pour, needed, full, renew_every, ttl = parse('<ddddd', ARGV[1])
local limit, ttl_text = string.sub(ARGV[1], 41), nil
local shape = #limit == 12 and '<Bddc12' or '<Bddc16'
