-- Part `clock`: clock() is the time of Redis in milliseconds. Inside one script it stands still.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
