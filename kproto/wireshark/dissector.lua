-- Wireshark dissector of Kafka's LeaderAndIsr, StopReplica and UpdateMetadata, and of the Fetch by which nodes follow
-- KRaft's metadata log, with its records; written by `kproto wireshark`.
-- Messages, fields, APIs and errors below come from kproto's own declarations; the rest of Kafka's APIs is left to
-- Wireshark's dissector "kafka". Runs with Lua 5.1 to 5.4.

--@DECLARATIONS@

local kproto = Proto("kproto", "Kafka control plane")
local MAX_TEXT = 32767
local MAX_FRAME = 100 * 1024 * 1024
local FETCH, FOLLOWER = 1, "raft-client"  -- the client id of a node that follows the metadata log begins so

-- ---- fields -------------------------------------------------------------------------------------------------------

local f = {
  length = ProtoField.int32("kproto.length", "Length"),
  api_key = ProtoField.int16("kproto.api_key", "API key", base.DEC, APIS),
  api_version = ProtoField.int16("kproto.api_version", "API version"),
  correlation_id = ProtoField.int32("kproto.correlation_id", "Correlation id"),
  client_id = ProtoField.string("kproto.client_id", "Client id"),
  request_in = ProtoField.framenum("kproto.request_in", "Request in", base.NONE, frametype.REQUEST),
  response_in = ProtoField.framenum("kproto.response_in", "Response in", base.NONE, frametype.RESPONSE),
  latency = ProtoField.relative_time("kproto.latency", "Time from request to response"),
  tag = ProtoField.bytes("kproto.unknown_tagged_field", "Unknown tagged field"),
  record_type = ProtoField.string("kproto.record_type", "Record type"),
  record_version = ProtoField.uint32("kproto.record_version", "Record version"),
  log_offset = ProtoField.uint64("kproto.log_offset", "Offset"),
  quorum_epoch = ProtoField.int32("kproto.quorum_epoch", "Epoch of the quorum"),
}
FIELDS.records = nil
for name, kind in pairs(FIELDS) do
  local abbreviation, label = "kproto." .. name, name
  if name == "error_code" then
    f[name] = ProtoField.int16(abbreviation, label, base.DEC, ERRORS)
  elseif kind == "string" or kind == "uuid" then
    f[name] = ProtoField.string(abbreviation, label)
  elseif kind == "bool" then
    f[name] = ProtoField.bool(abbreviation, label)
  else
    f[name] = ProtoField[kind](abbreviation, label)
  end
end
local every = {}
for _, field in pairs(f) do every[#every + 1] = field end
kproto.fields = every

local e = {
  refused = ProtoExpert.new("kproto.refused", "Request refused", expert.group.RESPONSE_CODE, expert.severity.WARN),
  partition = ProtoExpert.new("kproto.partition_error", "Partition error", expert.group.RESPONSE_CODE, expert.severity.NOTE),
  malformed = ProtoExpert.new("kproto.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR),
  version = ProtoExpert.new("kproto.unknown_version", "Unknown version", expert.group.UNDECODED, expert.severity.WARN),
  unmatched = ProtoExpert.new("kproto.unmatched", "Request not captured", expert.group.SEQUENCE, expert.severity.NOTE),
}
kproto.experts = { e.refused, e.partition, e.malformed, e.version, e.unmatched }

kproto.prefs.ports = Pref.range("TCP ports", "9092", "Ports of brokers; control connections at other ports are found by their first request", 65535)

-- ---- reading ------------------------------------------------------------------------------------------------------
-- A reader holds the frame's bytes as a Lua string (s), the offset of the next byte (at) and the frame's buffer (tvb).

local function fail(r, text) error({ reason = text, at = r.at }, 0) end

local function need(r, count)
  if r.at + count > r.size then fail(r, string.format("the message ends early: %d bytes needed, %d left", count, r.size - r.at)) end
end

local function signed(value, span) if value >= span / 2 then return value - span end return value end

local byte = string.byte

local function i16_at(s, at)
  local a, b = byte(s, at + 1, at + 2)
  if a < 128 then return a * 256 + b end
  return a * 256 + b - 65536
end

local function i32_at(s, at)
  local a, b, c, d = byte(s, at + 1, at + 4)
  if a < 128 then return ((a * 256 + b) * 256 + c) * 256 + d end
  return ((a * 256 + b) * 256 + c) * 256 + d - 4294967296
end

local function u8(r)
  need(r, 1)
  r.at = r.at + 1
  return byte(r.s, r.at)
end

local function i16(r)
  need(r, 2)
  r.at = r.at + 2
  return i16_at(r.s, r.at - 2)
end

local function i32(r)
  need(r, 4)
  r.at = r.at + 4
  return i32_at(r.s, r.at - 4)
end

local function varint(r)  -- at most five bytes, its low 32 bits, as Java reads it
  local value, factor = 0, 1
  for _ = 1, 5 do
    local digit = u8(r)
    value = value + (digit % 128) * factor
    if digit < 128 then return value % 4294967296 end
    factor = factor * 128
  end
  fail(r, "a varint of more than five bytes")
end

local function compact_length(r)
  local length = varint(r) - 1
  if length >= 2147483648 then length = length - 4294967296 end
  return length
end

local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
local function base64(bytes)
  local out = {}
  for i = 1, #bytes, 3 do
    local a, b, c = bytes:byte(i, i + 2)
    local bits = a * 65536 + (b or 0) * 256 + (c or 0)
    for shift = 0, (c and 3) or (b and 2) or 1 do
      local digit = math.floor(bits / 64 ^ (3 - shift)) % 64
      out[#out + 1] = ALPHABET:sub(digit + 1, digit + 1)
    end
  end
  return table.concat(out)
end

local WIDTH = { int8 = 1, bool = 1, int16 = 2, uint16 = 2, int32 = 4, int64 = 8, double = 8, uuid = 16 }

-- Lua text for a field's value, from its first byte at `at`. Where nobody sees the bytes, an item of the value alone costs
-- half of one with its range. An int64 has no Lua number.
local VALUE = {
  int8 = "signed(byte(s, at + 1), 256)",
  bool = "byte(s, at + 1) ~= 0",
  int16 = "i16_at(s, at)",
  int32 = "i32_at(s, at)",
  uuid = "base64(sub(s, at + 1, at + 16))",
}

local function text_length(r, flexible, is_text)
  local length
  if flexible then length = compact_length(r) elseif is_text then length = i16(r) else length = i32(r) end
  if is_text and length > MAX_TEXT then fail(r, string.format("a string of %d bytes; %d is the most", length, MAX_TEXT)) end
  if length >= 0 then need(r, length) end
  return length
end

local function count_of(r, flexible, nullable, width)
  local start = r.at
  local count
  if flexible then count = compact_length(r) else count = i32(r) end
  if count < 0 and not nullable then r.at = start; fail(r, "null, where null is not allowed") end
  if count > r.size - r.at then fail(r, string.format("%d elements in %d bytes", count, r.size - r.at)) end
  if width and count > 0 then need(r, width * count) end
  return count
end

local add, range, set_len, append_text  -- methods of Wireshark's classes: looking them up anew costs as much as the call

local function add_error(r, tree, at, info)
  local code = i16_at(r.s, at)
  local item = add(tree, f.error_code, range(r.tvb, at, 2))
  if code == 0 then return end
  local text = ERRORS[code] or tostring(code)
  if info.depth == 0 then
    item:add_proto_expert_info(e.refused, "The broker refused the request: " .. text)
  else
    item:add_proto_expert_info(e.partition, "Partition error: " .. text)
  end
end

local function add_text(r, tree, name, start, length)
  local value = ""
  if length > 0 then value = range(r.tvb, r.at - length, length):string(ENC_UTF_8) end
  add(tree, f[name], range(r.tvb, start, r.at - start), value)
end

local LABELS = { topic_name = true, name = true, host_name = true, host = true }

-- The readers below are made as Lua source, one for each struct, version and set of wanted fields: fields that nobody
-- wants are passed over together. A reader takes r, the tree's item, info and the struct's offset p, and returns its end.
-- r.at is p where a function is called that reads or fails.
local reader_of

local function add_line(name, kind, visible)  -- adds the item of the field at `at`
  local value = VALUE[kind]
  if value and not visible then return string.format("add(tree, f_%s, %s)", name, value) end
  if kind == "uuid" then return string.format("add(tree, f_%s, range(tvb, at, 16), %s)", name, value) end
  return string.format("add(tree, f_%s, range(tvb, at, %d))", name, WIDTH[kind])
end

local function emit_value(out, declared, kind, flexible, visible, wanted)
  local name, width = declared.name, WIDTH[kind]
  local function line(text) out[#out + 1] = text end
  if width then
    line(string.format("if p + %d > size then r.at = p; need(r, %d) end; at = p; p = p + %d", width, width, width))
    if name == "error_code" then
      line("if info.depth == 0 then info.error_code = i16_at(s, at) end")
      if wanted then line("add_error(r, tree, at, info)") end
    elseif wanted then
      line(add_line(name, kind, visible))
    end
    return
  end
  if kind == "struct" then
    line(string.format('p = read_struct(r, tree, info, p, "%s", "%s")', name, declared.struct))
    return
  end
  local is_text = kind == "string"
  line(string.format("start = p; r.at = p; length = text_length(r, %s, %s); p = r.at", tostring(flexible), tostring(is_text)))
  line("if length < 0 then")
  if not declared.nullable then
    line('  r.at = start; fail(r, "null, where null is not allowed")')
  elseif visible then
    line(string.format('  add(tree, range(tvb, start, p - start), "%s: null")', name))
  end
  line("else p = p + length end")
  if kind == "records" then
    line("if length > 0 then read_batches(r, tree, info, p - length, p) end")
  elseif wanted and is_text then
    line(string.format('if length >= 0 then r.at = p; add_text(r, tree, "%s", start, length) end', name))
  elseif wanted then
    line(string.format("if length > 0 then add(tree, f_%s, range(tvb, p - length, length)) end", name))
  end
  if visible and LABELS[name] then
    line('if length > 0 and not info.label then info.label = " " .. sub(s, p - length + 1, p) end')
  end
end

local function emit_array(out, declared, flexible, visible, wanted)
  local name, kind = declared.name, declared.of
  local width = kind and WIDTH[kind]
  local function line(text) out[#out + 1] = text end
  line("start = p")
  local counted = string.format("count_of(r, %s, %s, %s)", tostring(flexible), tostring(declared.nullable or false), width or "nil")
  if flexible then  -- most counts are one byte
    line("count = byte(s, p + 1)")
    line(string.format("if count and count > 0 and count < 128 and p + count * %d <= size then", width or 1))
    line("  p = p + 1; count = count - 1")
    line("else r.at = p; count = " .. counted .. "; p = r.at end")
  else
    line("r.at = p; count = " .. counted .. "; p = r.at")
  end
  if declared.counted then line("if count > 0 then info.partitions = info.partitions + count end") end
  if width then
    if wanted then
      line(string.format("for at = p, p + (count - 1) * %d, %d do %s end", width, width, add_line(name, kind, visible)))
    end
    line(string.format("if count > 0 then p = p + count * %d end", width))
  elseif kind then
    line("for _ = 1, count do")
    emit_value(out, declared, kind, flexible, visible, wanted)
    line("end")
  elseif not visible then  -- fields hang on the message's own item; nobody sees the levels between
    line(string.format('below = reader_of(r, "%s")', declared.struct))
    line("info.depth = info.depth + 1; for _ = 1, count do p = below(r, tree, info, p) end; info.depth = info.depth - 1")
  else
    line(string.format('p = read_items(r, tree, info, p, "%s", "%s", start, count)', name, declared.struct))
  end
end

local function read_items(r, tree, info, p, name, struct, start, count)
  local below = reader_of(r, struct)
  local list = add(tree, range(r.tvb, start, p - start), string.format("%s: %d", name, count))
  local indexed = STRUCTS[struct][r.version][1].name == "partition_index"
  local inner = { depth = info.depth + 1, partitions = 0 }
  for i = 0, count - 1 do
    local first = p
    local label
    if indexed and first + 4 <= r.size then
      label = "partition " .. i32_at(r.s, first)
    else
      label = string.format("%s[%d]", name, i)
    end
    local item = add(list, range(r.tvb, first, 0), label)
    inner.label = nil
    p = below(r, item, inner, first)
    set_len(item, p - first)
    if inner.label then append_text(item, inner.label) end
  end
  info.partitions = info.partitions + inner.partitions
  set_len(list, p - start)
  return p
end

local function read_struct(r, tree, info, p, name, struct)
  if not r.visible then return reader_of(r, struct)(r, tree, info, p) end
  local item = add(tree, range(r.tvb, p, 0), name)
  local finish = reader_of(r, struct)(r, item, info, p)
  set_len(item, finish - p)
  return finish
end

local function read_tagged(r, tree, known, elsewhere, read_known)
  local count = varint(r)
  if count >= 2147483648 then count = 0 end
  for _ = 1, count do
    local start = r.at
    local tag, size = varint(r), varint(r)
    if known[tag] then
      read_known(tag)
    elseif elsewhere[tag] then
      r.at = start
      fail(r, string.format("tag %d belongs to other versions of this message", tag))
    else
      if size >= 2147483648 then fail(r, "a tagged field of negative size") end
      need(r, size)
      if r.wanted.tag then
        add(tree, f.tag, range(r.tvb, start, r.at + size - start)):prepend_text(string.format("tag %d, ", tag))
      end
      r.at = r.at + size
    end
  end
end

-- ---- records of the metadata log ----------------------------------------------------------------------------------

local BATCH_HEADER, FRAME_VERSION = 61, 1

local function signature(version, flexible, r)
  return string.format("%d %s %s %s ", version, tostring(flexible), tostring(r.visible), r.wanted_names)
end

local function signed_varint(r)  -- of up to ten bytes; the least bits of times, which are longer, nobody needs
  local value, factor = 0, 1
  for _ = 1, 10 do
    local digit = u8(r)
    value = value + (digit % 128) * factor
    if digit < 128 then
      if value % 2 == 0 then return value / 2 end
      return -(value + 1) / 2
    end
    factor = factor * 128
  end
  fail(r, "a varint of more than ten bytes")
end

local function part(r)  -- the bytes of a record's key or value: from where, to where; null is empty
  local length = math.max(signed_varint(r), 0)
  need(r, length)
  r.at = r.at + length
  return r.at - length, r.at
end

-- Reads a record in a reader that ends with its batch.
local function read_record(r, tree, base, is_control)
  local start = r.at
  local length = signed_varint(r)
  if length < 0 then fail(r, "a record of negative size") end
  need(r, length)
  local finish = r.at + length
  u8(r)
  signed_varint(r)
  local offset = base + signed_varint(r)
  local key, key_end = part(r)
  local from, to = part(r)
  local inner = setmetatable({ at = from, size = to, flexible = true }, { __index = r })
  local number, version, among = nil, nil, RECORDS
  if is_control then
    inner.size = key_end
    inner.at = key
    need(inner, 4)
    inner.size, inner.at, among = to, from, CONTROL_RECORDS
    need(inner, 2)
    number, version = i16_at(r.s, key + 2), i16_at(r.s, from)
  else
    local frame = varint(inner)
    if frame ~= FRAME_VERSION then fail(inner, "a record of frame version " .. frame) end
    number, version = varint(inner), varint(inner)
  end
  local declared = among[number]
  local title = declared and declared.title or "UNKNOWN_" .. number
  local item = tree
  if r.visible then item = add(tree, range(r.tvb, start, finish - start), title) end
  if r.wanted.record_type then add(item, f.record_type, range(r.tvb, from, to - from), title) end
  if r.wanted.record_version then add(item, f.record_version, range(r.tvb, from, to - from), version) end
  if r.wanted.log_offset then add(item, f.log_offset, range(r.tvb, start, finish - start), UInt64(offset % 4294967296, math.floor(offset / 4294967296))) end
  r.told.records = r.told.records + 1
  if declared and version >= 0 and version <= declared.newest then
    inner.version, inner.signature = version, signature(version, true, r)
    inner.at = reader_of(inner, declared.struct)(inner, item, { depth = 1, partitions = 0 }, inner.at)
    if inner.at > to then fail(inner, "a record that ends early") end
  else
    append_text(item, string.format(" (version %d is not known)", version))
  end
  r.at = finish
end

-- Reads batches; brokers cut the last one of an answer.
local function read_batches(r, tree, info, p, finish)
  while p + BATCH_HEADER <= finish do
    local size = i32_at(r.s, p + 8) + 12
    if size < BATCH_HEADER or p + size > finish or byte(r.s, p + 17) ~= 2 then return end
    local item = tree
    if r.visible then item = add(tree, range(r.tvb, p, size), "batch") end
    if r.wanted.quorum_epoch then add(item, f.quorum_epoch, range(r.tvb, p + 12, 4)) end
    local attributes = byte(r.s, p + 23)
    if attributes % 8 > 0 then
      append_text(item, ", compressed")
    else
      local base = i32_at(r.s, p) * 4294967296 + i32_at(r.s, p + 4) % 4294967296
      local inner = setmetatable({ at = p + BATCH_HEADER, size = p + size }, { __index = r })
      local ok, problem = pcall(function()
        for _ = 1, i32_at(r.s, p + 57) do read_record(inner, item, base, math.floor(attributes / 32) % 2 == 1) end
      end)
      if not ok then
        if type(problem) ~= "table" then error(problem, 0) end
        r.told.malformed = problem.reason
        item:add_tvb_expert_info(e.malformed, range(r.tvb, p, size), "Malformed record: " .. problem.reason)
      end
    end
    p = p + size
  end
end

local HEAD = [[
local f, fields, add, range, byte, sub, need, fail, signed, base64, i16_at, i32_at, text_length, count_of, add_error,
  add_text, read_items, read_struct, read_batches, read_tagged, reader_of = ...
%s
return function(r, tree, info, p)
local s, tvb, size = r.s, r.tvb, r.size
local at, start, count, length, below
]]

local function compile(struct, version, flexible, visible, wanted)
  local fields = STRUCTS[struct][version]
  local names, out = {}, {}
  local skipped = 0  -- bytes of fields that nobody wants, to be passed over together
  local function flush()
    if skipped > 0 then
      out[#out + 1] = string.format("if p + %d > size then r.at = p; need(r, %d) end; p = p + %d", skipped, skipped, skipped)
    end
    skipped = 0
  end
  local function emit(declared)
    if f[declared.name] then names[#names + 1] = string.format("local f_%s = f.%s", declared.name, declared.name) end
    if declared.type == "array" then emit_array(out, declared, flexible, visible, wanted[declared.name])
    else emit_value(out, declared, declared.type, flexible, visible, wanted[declared.name]) end
  end
  for i = 1, #fields do
    local declared = fields[i]
    local width = WIDTH[declared.type]
    if width and not wanted[declared.name] and not visible and declared.name ~= "error_code" then
      skipped = skipped + width
    else
      flush()
      emit(declared)
    end
  end
  flush()
  if flexible then
    out[#out + 1] = "if byte(s, p + 1) == 0 then p = p + 1 else"
    out[#out + 1] = "r.at = p; read_tagged(r, tree, fields.tags, fields.elsewhere, function(tag) p = r.at"
    for tag, declared in pairs(fields.tags) do
      out[#out + 1] = string.format("if tag == %d then", tag)
      emit(declared)
      out[#out + 1] = "end"
    end
    out[#out + 1] = "r.at = p end); p = r.at end"
  end
  out[#out + 1] = "return p end"
  local source = string.format(HEAD, table.concat(names, "\n")) .. table.concat(out, "\n")
  local chunk = assert((loadstring or load)(source, "=kproto " .. struct))
  return chunk(f, fields, add, range, byte, string.sub, need, fail, signed, base64, i16_at, i32_at, text_length,
    count_of, add_error, add_text, read_items, read_struct, read_batches, read_tagged, reader_of)
end

local compiled = {}
reader_of = function(r, struct)
  local key = r.signature .. struct
  local reader = compiled[key]
  if not reader then
    reader = compile(struct, r.version, r.flexible, r.visible, r.wanted)
    compiled[key] = reader
  end
  return reader
end

-- ---- requests and responses of a connection -----------------------------------------------------------------------

local stream_number = Field.new("tcp.stream")
local kafka = Dissector.get("kafka")
local others  -- hands other APIs to Wireshark's own dissector, which takes the server's port from this table
pcall(function() others = DissectorTable.new("kproto.server_port", "Kafka server port", ftypes.UINT16, base.DEC, kproto) end)
local servers = {}   -- TCP stream -> port of the broker
local brokers = {}   -- address and port of each end that a control request was sent to
local pending = {}   -- TCP stream -> correlation id -> requests without a response, oldest first
local answered = {}  -- "frame/stream/correlation id" of either half -> the exchange

function kproto.init()
  servers, brokers, pending, answered = {}, {}, {}, {}
end

local function stream_of()
  local field = stream_number()
  return field and field.value or -1
end

local function is_followers(tvb, offset)  -- whether a request is of a node that follows the metadata log
  return tvb:captured_len() >= offset + 14 + #FOLLOWER and tvb:raw(offset + 14, #FOLLOWER) == FOLLOWER
end

-- Whether bytes begin like a request: known API and version, a client id of printable characters.
local function like_request(tvb, offset, control)
  if tvb:captured_len() - offset < 14 then return false end
  local size = tvb:range(offset, 4):int()
  local api, version = tvb:range(offset + 4, 2):int(), tvb:range(offset + 6, 2):int()
  if size < 10 or size > MAX_FRAME or APIS[api] == nil then return false end
  local newest = api ~= FETCH and NEWEST[api]
  if control and not newest and not is_followers(tvb, offset) then return false end
  if version < 0 or version > (newest or 32) or tvb:range(offset + 8, 4):int() < 0 then return false end
  local length = tvb:range(offset + 12, 2):int()
  if length < -1 or length > size - 10 or length > 512 then return false end
  local shown = math.min(length, tvb:captured_len() - offset - 14)
  for i = 0, shown - 1 do
    local letter = tvb:range(offset + 14 + i, 1):uint()
    if letter < 0x20 or letter > 0x7e then return false end
  end
  return true
end

-- Whether a segment to a known broker may begin a request: all of its header, or less than one.
local function begins_request(tvb)
  if tvb:captured_len() < 14 then return tvb:range(0, 1):uint() == 0 end
  return like_request(tvb, 0, false)
end

local function exchange_key(pinfo, stream, correlation, at)
  return pinfo.number .. "/" .. stream .. "/" .. correlation .. "/" .. at
end

local function note_request(pinfo, stream, correlation, api, version, at, is_read)
  local key = exchange_key(pinfo, stream, correlation, at)
  if not pinfo.visited then
    local exchange = { api = api, version = version, is_read = is_read, request = pinfo.number, time = pinfo.abs_ts }
    local streams = pending[stream] or {}
    pending[stream] = streams
    local waiting = streams[correlation] or {}
    streams[correlation] = waiting
    waiting[#waiting + 1] = exchange
    answered[key] = exchange
  end
  return answered[key]
end

local function note_response(pinfo, stream, correlation, at)
  local key = exchange_key(pinfo, stream, correlation, at)
  if not pinfo.visited and not answered[key] then
    local waiting = pending[stream] and pending[stream][correlation]
    local exchange = waiting and table.remove(waiting, 1)
    if exchange then
      if #waiting == 0 then pending[stream][correlation] = nil end
      exchange.response, exchange.answered = pinfo.number, pinfo.abs_ts
      answered[key] = exchange
    end
  end
  return answered[key]
end

-- ---- frames -------------------------------------------------------------------------------------------------------

local can_ask  -- whether Wireshark tells which fields are used
local all_wanted = {}
for name in pairs(f) do all_wanted[name] = true end

-- The fields to add, and a text of them.
local function wanted_fields(tree)
  if tree.visible then return all_wanted, "all" end
  if can_ask == nil then can_ask = pcall(function() return tree:referenced(f.length) end) end
  if not can_ask then return all_wanted, "all" end
  local referenced = tree.referenced
  local wanted, names = { error_code = true }, {}  -- expert information hangs on the error code
  for name, field in pairs(f) do
    if referenced(tree, field) then
      wanted[name] = true
      names[#names + 1] = name
    end
  end
  return wanted, table.concat(names, " ")
end

local function add_if(r, tree, name, start, length, value)
  if not r.wanted[name] then return nil end
  if value ~= nil then return tree:add(f[name], r.tvb:range(start, length), value) end
  return tree:add(f[name], r.tvb:range(start, length))
end

local function body(r, api, kind, version, tree, info)
  local message = MESSAGES[api][kind]
  r.version, r.flexible = version, version >= message.flexible
  r.signature = signature(version, r.flexible, r)
  local ok, problem = pcall(reader_of(r, message.struct), r, tree, info, r.at)
  if ok then return true end
  if type(problem) ~= "table" then error(problem, 0) end
  info.malformed = problem.reason
  local at = math.min(problem.at, r.size)
  tree:add_tvb_expert_info(e.malformed, r.tvb:range(at, r.size - at), "Malformed at byte " .. at .. ": " .. problem.reason)
  return false
end

local function describe(pinfo, text)
  if tostring(pinfo.cols.protocol) ~= "Kafka control" then
    pinfo.cols.protocol = "Kafka control"
    pinfo.cols.info = text
  else
    pinfo.cols.info:append(", " .. text)
  end
end

local function dissect_frame(tvb, pinfo, root)
  local stream = stream_of()
  local is_request = pinfo.dst_port == servers[stream]
  local size = tvb:captured_len()
  local api, version, correlation, exchange
  if is_request then
    if size < 12 then return size end
    api, version, correlation = tvb:range(4, 2):int(), tvb:range(6, 2):int(), tvb:range(8, 4):int()
    local is_read = MESSAGES[api] and (api ~= FETCH or is_followers(tvb, 0))
    exchange = note_request(pinfo, stream, correlation, api, version, tvb:offset(), is_read)
  else
    if size < 8 then return size end
    correlation = tvb:range(4, 4):int()
    exchange = note_response(pinfo, stream, correlation, tvb:offset())
    if exchange then api, version = exchange.api, exchange.version end
  end
  local message = exchange and exchange.is_read and MESSAGES[api]
  if api and not message then
    if others and kafka then
      local port = servers[stream]
      if not others:get_dissector(port) then others:add(port, kafka) end
      others:try(port, tvb, pinfo, root)
    end
    return size
  end
  local tree = root:add(kproto, tvb:range(0, size))
  local r = { s = tvb:raw(0, size), size = size, at = 0, tvb = tvb, visible = tree.visible, told = { records = 0 } }
  r.wanted, r.wanted_names = wanted_fields(tree)
  add, range, set_len, append_text = tree.add, tvb.range, tree.set_len, tree.append_text
  add_if(r, tree, "length", 0, 4)
  if not message then
    add_if(r, tree, "correlation_id", 4, 4)
    tree:add_proto_expert_info(e.unmatched, "The request of this response is not in the capture")
    describe(pinfo, "response to a request that was not captured")
    return size
  end
  local kind = is_request and "request" or "response"
  local info = { depth = 0, partitions = 0 }
  local newest = NEWEST[api]
  local known = version >= 0 and version <= newest
  local flexible = known and version >= message[kind].flexible
  local name = APIS[api]
  if is_request then
    add_if(r, tree, "api_key", 4, 2)
    add_if(r, tree, "api_version", 6, 2)
    add_if(r, tree, "correlation_id", 8, 4)
  else
    add_if(r, tree, "correlation_id", 4, 4)
    for _, field in ipairs({ "api_key", "api_version" }) do
      if r.wanted[field] then tree:add(f[field], field == "api_key" and api or version):set_generated() end
    end
  end
  local whole = false
  if not known then
    tree:add_proto_expert_info(e.version, string.format("%s has versions 0 to %d; this is version %d", name, newest, version))
  else
    local ok, problem = pcall(function()
      if is_request then
        r.at = 12
        local start = r.at
        local length = i16(r)
        if length >= 0 then
          need(r, length)
          local from = r.at
          r.at = from + length
          add_if(r, tree, "client_id", start, length + 2, length > 0 and tvb:range(from, length):string(ENC_UTF_8) or "")
        end
      else
        r.at = 8
      end
      if flexible then read_tagged(r, tree, {}, {}) end
    end)
    if ok then
      whole = body(r, api, kind, version, tree, info)
    else
      if type(problem) ~= "table" then error(problem, 0) end
      info.malformed = problem.reason
      tree:add_proto_expert_info(e.malformed, "Malformed header: " .. problem.reason)
    end
  end
  local text = string.format("%s v%d %s", name, version, kind)
  if info.partitions > 0 then
    text = text .. string.format(" (%d partition%s)", info.partitions, info.partitions == 1 and "" or "s")
  end
  if info.error_code and info.error_code ~= 0 then text = text .. " " .. (ERRORS[info.error_code] or info.error_code) end
  if r.told.records > 0 then
    text = text .. string.format(" (%d record%s)", r.told.records, r.told.records == 1 and "" or "s")
  end
  info.malformed = info.malformed or r.told.malformed
  if info.malformed then text = text .. " [malformed]" end
  tree:append_text(", " .. text)
  describe(pinfo, text)
  if exchange then
    if is_request and exchange.response then
      if r.wanted.response_in then tree:add(f.response_in, exchange.response):set_generated() end
    elseif not is_request then
      if r.wanted.request_in then tree:add(f.request_in, exchange.request):set_generated() end
      if r.wanted.latency then
        local delta = exchange.answered - exchange.time
        local seconds = math.floor(delta)
        tree:add(f.latency, NSTime.new(seconds, math.floor((delta - seconds) * 1e9 + 0.5))):set_generated()
      end
    end
  end
  return size
end

-- Cuts a segment, or several that Wireshark has put together, into frames. Not by dissect_tcp_pdus: a Lua error that
-- passes through it ends the program.
local function dissect_frames(tvb, pinfo, root)
  local offset, captured, reported = 0, tvb:captured_len(), tvb:reported_len()
  while offset < captured do
    local left = reported - offset
    local size = left >= 4 and captured - offset >= 4 and tvb:range(offset, 4):int() + 4
    if size and (size < 4 or size > MAX_FRAME) then return end  -- no frame begins here
    if (not size or size > left) and pinfo.can_desegment > 0 then
      pinfo.desegment_offset = offset
      pinfo.desegment_len = size and size - left or DESEGMENT_ONE_MORE_SEGMENT
      return
    end
    local length = math.min(size or left, captured - offset)
    local ok, problem = pcall(dissect_frame, tvb:range(offset, length):tvb(), pinfo, root)
    if not ok then root:add(kproto, tvb:range(offset, length)):add_proto_expert_info(e.malformed, tostring(problem)) end
    offset = offset + (size or left)
  end
end

-- Finds out which end of a connection is the broker: the one that a request is sent to.
local function server_of(tvb, pinfo, stream)
  if servers[stream] then return true end
  if pinfo.match_uint == pinfo.dst_port and like_request(tvb, 0, false) or like_request(tvb, 0, true) then
    servers[stream] = pinfo.dst_port
  elseif pinfo.match_uint == pinfo.src_port then
    servers[stream] = pinfo.src_port
  end
  return servers[stream] ~= nil
end

-- Called by name, not as kproto.dissector: each call through Wireshark takes away one level of reassembly.
local function dissect_segment(tvb, pinfo, root)
  local stream = stream_of()
  if not server_of(tvb, pinfo, stream) then return 0 end
  dissect_frames(tvb, pinfo, root)
  return tvb:captured_len()
end

kproto.dissector = dissect_segment
kproto:register_heuristic("tcp", function(tvb, pinfo, root)
  local stream = stream_of()
  local broker = tostring(pinfo.dst) .. ":" .. pinfo.dst_port
  if like_request(tvb, 0, true) then
    brokers[broker] = true
  elseif not brokers[broker] or not begins_request(tvb) then
    return false
  end
  servers[stream] = pinfo.dst_port
  pinfo.conversation = kproto
  dissect_segment(tvb, pinfo, root)
  return true
end)

local tcp = DissectorTable.get("tcp.port")
local registered = ""
local function register_ports()
  if registered ~= "" then tcp:remove(registered, kproto) end
  registered = tostring(kproto.prefs.ports)
  if registered ~= "" then tcp:add(registered, kproto) end
end
kproto.prefs_changed = register_ports
pcall(function() tcp:add_for_decode_as(kproto) end)
register_ports()
