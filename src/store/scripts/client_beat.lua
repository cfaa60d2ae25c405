-- A client's sign of life in one queue, and what it may have missed.
--
-- KEYS   1 s  2 clients  3 producers  4 cfg  5 receiver of the client
-- ARGV   1 client
-- Reply  {1 if the queue knew it without a gap, epoch, now, 1 if its receiver exists}
-- Cost   about 35 us
-- Atomic a sweep between the look and the sign would go unnoticed: its outcomes would be lost in silence.
local now = clock()
local client = ARGV[1]
local known = look('ZSCORE', KEYS[2], client)
local state = look('HGET', KEYS[3], client)
local epoch = look('HGET', KEYS[4], 'epoch') or ''
if state then
  -- An enqueue signs `clients` as well, so the sweep leaves its mark here, where only a beat takes it off.
  local head, tail = state:match('^(%d+ %S+ %d+ )1( .*)$')
  if head then
    known = false
    redis.call('HSET', KEYS[3], client, head .. '0' .. tail)
  end
end
redis.call('ZADD', KEYS[2], now, client)
return {known and 1 or 0, epoch, now, redis.call('EXISTS', KEYS[5])}
