-- register: puts a queue into the list of all queues. A script only so that it works on a full Redis, which
-- refuses SADD even of a member that is there: a server must be able to start and drain it.
-- KEYS  1 <prefix>:queues
-- ARGV  1 the queue
-- Reply 1 if it is new, else 0
-- Cost  1 call
-- Atomic: one command
return look('SADD', KEYS[1], ARGV[1])
