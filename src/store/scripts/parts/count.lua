-- Part `count`: the counters `n`, `n:<hours since 1970>` (field `<minute>:<word>`, kept 48 hours) and
-- `n:d:<days since 1970>` (kept 90 days). Needs `look`.
-- counters(base, now): checks the three keys (call it before the first write) and returns them.
--   `base` is the queue's key without its kind, `<prefix>:{<queue>}:`. The two younger keys are not
--   declared: their names follow from the time of Redis; they are in the queue's slot.
-- count(counters, word, by): one HINCRBY a key. An expiry is set when a field is new: once a minute.
local HOURS_KEPT, DAYS_KEPT = 48 * 3600, 90 * 86400

local function counters(base, now)
  local minutes = math.floor(now / 60000)
  local hours = math.floor(minutes / 60)
  local found = {
    total = base .. 'n',
    hour = base .. 'n:' .. hours,
    day = base .. 'n:d:' .. math.floor(hours / 24),
    minute = (minutes % 60) .. ':',
  }
  look('HLEN', found.total)
  look('HLEN', found.hour)
  look('HLEN', found.day)
  return found
end

local function count(counters_, word, by)
  if by == 0 then return end
  redis.call('HINCRBY', counters_.total, word, by)
  if redis.call('HINCRBY', counters_.hour, counters_.minute .. word, by) == by then
    redis.call('EXPIRE', counters_.hour, HOURS_KEPT)
  end
  if redis.call('HINCRBY', counters_.day, word, by) == by then
    redis.call('EXPIRE', counters_.day, DAYS_KEPT)
  end
end
