-- Removes the receivers of clients that gave no sign of life, and later what they produced.
--
-- KEYS   1 s  2 clients  3 producers  4 cfg
--        Undeclared, same slot: the receivers of those clients
-- ARGV   1 ms without a sign after which a client is dead  2 ms a producer is kept after that sign
--        3 cursor over producers, "0" at first
-- Reply  {receivers, producers, next cursor, 1 if there is more to do now}
-- Cost   about 5 us a client, at most 100 at a time; about 30 us for the page of producers
-- Atomic a sign of life between the look and the removal keeps the receiver.
local dead_after, keep = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = clock()
local base = KEYS[1]:sub(1, -2)
look('ZCARD', KEYS[2])
look('HLEN', KEYS[3])

-- While nobody swept, Redis may have been away and nobody could give a sign: all of them get their time.
local swept = look('HMGET', KEYS[4], 'sweep_at', 'sweep_from')
local at, from = tonumber(swept[1]), tonumber(swept[2]) or 0
if not at or now < at or now - at > math.max(dead_after / 2, 30000) or from > now + dead_after then
  from = now + dead_after
  redis.call('HSET', KEYS[4], 'sweep_from', from)
end
if at ~= now then redis.call('HSET', KEYS[4], 'sweep_at', now) end
if now < from then return {0, 0, ARGV[3], 0} end

local receivers, producers = 0, 0
local dead = redis.call('ZRANGE', KEYS[2], '-inf', now - dead_after, 'BYSCORE', 'LIMIT', 0, 100, 'WITHSCORES')
for i = 1, #dead, 2 do
  local client = dead[i]
  redis.call('UNLINK', base .. 'r:' .. client)
  redis.call('ZREM', KEYS[2], client)
  receivers = receivers + 1
  -- Only marked: it may come back and repeat a batch, and it has to learn that it was swept.
  local state = redis.call('HGET', KEYS[3], client)
  local head, tail = (state or ''):match('^(%d+ %S+) %d+ [01]( .*)$')
  if head then redis.call('HSET', KEYS[3], client, head .. ' ' .. dead[i + 1] .. ' 1' .. tail) end
end

local page = redis.call('HSCAN', KEYS[3], ARGV[3], 'COUNT', 100)
for i = 1, #page[2], 2 do
  local client = page[2][i]
  local last = tonumber(page[2][i + 1]:match('^%d+ %S+ (%d+) '))
  if (not last or now - last > keep) and not redis.call('ZSCORE', KEYS[2], client) then
    producers = producers + redis.call('HDEL', KEYS[3], client)
  end
end
return {receivers, producers, page[1], #dead == 200 and 1 or 0}
