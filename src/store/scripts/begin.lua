-- begin: a suspect is about to run; counts one crash ahead, so that a crash is counted by dying.
-- KEYS  1 s · 2 crashes
-- ARGV  1 me · 2 entry · 3 count
-- Reply crashes now, or nil if the delivery is not mine any more
-- Cost  2 calls
-- Atomic because a stale owner must not count against the task.
if not fenced(KEYS[1], ARGV[1], ARGV[2], ARGV[3]) then return false end
return look('HINCRBY', KEYS[2], ARGV[2], 1)
