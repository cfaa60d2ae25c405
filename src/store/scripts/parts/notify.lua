-- Part `notify`: the receiver stream `r:<client>` gets one entry, field `o`, per ended task. Needs `look`.
-- receiver(base, client): the key to write to, or nil if nobody waits. Call it before the first write.
--   Whether a client lives is decided by `clients`, not by the stream: a stream made for a client that
--   was swept would have no owner.
-- notify(receiver, notice): writes, if there is a receiver.
local function receiver(base, client)
  if not client or client == '' or not look('ZSCORE', base .. 'clients', client) then return nil end
  local key = base .. 'r:' .. client
  look('XLEN', key)
  return key
end

local function notify(receiver_, notice)
  if receiver_ then redis.call('XADD', receiver_, '*', 'o', notice) end
end
