-- Removes what a client has in one queue. Outcomes that come later are not written to anybody.
--
-- KEYS   1 s  2 clients  3 producers  4 receiver of the client
-- ARGV   1 client
-- Reply  1 if the queue knew it
-- Cost   about 20 us; the receiver is freed in the background
-- Atomic a settle between the steps would make a receiver that nobody owns.
look('ZCARD', KEYS[2])
look('HLEN', KEYS[3])
redis.call('UNLINK', KEYS[4])
redis.call('HDEL', KEYS[3], ARGV[1])
return redis.call('ZREM', KEYS[2], ARGV[1])
