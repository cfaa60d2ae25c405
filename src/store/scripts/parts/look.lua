-- Part `look`: reads that check a key's type before the first write.
-- look(command, key, ...): the reply, or the whole script ends with "WRONGTYPE <key>" and nothing written.
-- be(type, key ...): checks keys that nothing has to be read from.
-- Scripts are not rolled back, so every key a script writes goes through one of the two first.
local function look(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    if string.sub(reply.err, 1, 9) == 'WRONGTYPE' then
      error({err = 'WRONGTYPE key ' .. key .. ' holds another type'})
    end
    error({err = reply.err})
  end
  return reply
end

local function be(want, ...)
  for _, key in ipairs({...}) do
    local found = redis.call('TYPE', key).ok
    if found ~= want and found ~= 'none' then
      error({err = 'WRONGTYPE key ' .. key .. ' holds a ' .. found .. ', not a ' .. want})
    end
  end
end
