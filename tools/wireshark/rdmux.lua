-- SPDX-License-Identifier: BSD-2-Clause-Patent
--
-- Wireshark dissector of rdmux: the control channel (docs/WIRE.md) and the data sockets of the tcp
-- provider (docs/WIRE-TCP.md). It reads captures that rdmux writes itself (RDMUX_CAPTURE), and
-- captures of TCP: connections whose begin was captured are found by their first bytes, others need
-- "Decode As". docs/OBSERVABILITY.md says how to use it.
--
-- Bytes that a peer sent are never trusted: a Reader gives out only what was captured, and lengths
-- are compared with what is left. What breaks the protocol is an item, never an error of Lua.

local rdmux = Proto("rdmux", "rdmux")

local HELLO_MAGIC = "RDMUX\1\r\n"
local JOIN_MAGIC = "RDMUJ\1\r\n"
local HELLO_SIZE, JOIN_SIZE, HEADER_SIZE = 96, 64, 8
local CONTROL_MAX = 65536   -- bytes of a control frame's payload
local CHUNK = 1048576       -- payload of a frame of data, on one socket
local MARK, STRIPED, PLACED, IMM = 0x40, 0x80, 0x20, 0x10

-- --------------------------------------------------------------------------------------- names

local statuses = {
    [0] = "OK", "AGAIN", "IN_PROGRESS", "INVALID", "UNSUPPORTED", "NO_MEMORY", "NO_PATH", "REFUSED",
    "TIMED_OUT", "DENIED", "OUT_OF_RANGE", "LENGTH", "FLUSHED", "PEER_GONE", "OUTCOME_UNKNOWN",
    "PROTOCOL", "VERSION", "AUTH", "IO",
}
local reasons = {
    [0] = "NONE", "CHOSEN", "SLOWER", "NO_LIBRARY", "BAD_PLUGIN", "NO_DEVICE", "PORT_DOWN",
    "NO_USABLE_GID", "PEER_HAS_NONE", "OTHER_HOST", "OTHER_NAMESPACE", "NOT_REACHABLE",
    "CAPABILITY_MISSING", "FILTERED", "MEMLOCK_TOO_LOW", "MTU_MISMATCH", "OPEN_FAILED",
    "CONNECT_FAILED", "CONNECT_TIMED_OUT", "PROOF_FAILED", "PROOF_TIMED_OUT", "NOT_ENCRYPTED",
    "SOFTWARE_DEVICE", "NO_PERMISSION", "LIMIT_MISMATCH", "PEER_FAILED", "USABLE",
    "OTHER_BYTE_ORDER", "PATH_LOST",
}
local stages = { [0] = "PROBE", "MATCH", "OPEN", "CONNECT", "PROOF", "COMMIT" }
local securities = { [0] = "NONE", "TOKEN", "SAME_USER", "BOUND_KEY", "ENCRYPTED" }
local capabilities = {
    [0] = "SEND", "SEND_IMM", "WRITE", "WRITE_IMM", "READ", "FETCH_ADD", "COMPARE_SWAP", "PLACED",
    "SRQ", "FENCE", "ATOMIC_DEVICE", "TARGET_PASSIVE",
}
local accesses = {
    [0] = "LOCAL_WRITE", "REMOTE_READ", "REMOTE_WRITE", "REMOTE_ATOMIC", "READ_SINK", "NO_MAP",
    "ATOMIC_DEVICE",
}
local hello_flags = {
    [0] = "EXPLAIN_ONLY", "NO_SERVICE", "HASH", "ADOPTED", "MEASURE", "FAILOVER",
}
local methods = { [0] = "PSK", "CERT" }
local control_names = {
    [0x01] = "OFFER", [0x02] = "RANKING", [0x03] = "TRY", [0x04] = "READY", [0x05] = "UP",
    [0x06] = "WRITTEN", [0x07] = "PROVED", [0x08] = "COMMIT", [0x09] = "CONFIRM",
    [0x0a] = "FAILED", [0x0b] = "NO_PATH", [0x0c] = "REJECT",
    [0x20] = "HEARTBEAT", [0x21] = "IMPORT", [0x22] = "IMPORTED", [0x23] = "REVOKE",
    [0x24] = "REVOKED", [0x25] = "FAULT", [0x26] = "END", [0x27] = "ENDED", [0x28] = "SILENT",
    [0x29] = "MOVE", [0x2a] = "RECEIVED", [0x2b] = "RESUME", [0x2c] = "RESUMED", [0x2d] = "BACK",
    [0x2e] = "RELEASED",
}
local data_names = {
    [0] = "SEND", "WRITE", "MORE", "FLUSH", "READ", "FETCH_ADD", "COMPARE_SWAP", "DATA", "RESULT",
    "ACK", "CREDIT", "ASK", "RECALL", "RETURN", "NAK", "PING",
}

-- -------------------------------------------------------------------------------------- fields

local f = {}

local function define(kind, name, text, ...)
    f[name] = ProtoField[kind]("rdmux." .. name, text, ...)
end

define("string", "name", "Frame")
define("bytes", "raw", "Bytes")

define("uint16", "hello.version_min", "Lowest version")
define("uint16", "hello.version_max", "Highest version")
define("string", "hello.byte_order", "Byte order of the host")
define("uint32", "hello.flags", "Flags", base.HEX)
define("string", "hello.flag_names", "Names of the flags")
define("uint32", "hello.epoch", "Epoch")
define("uint32", "hello.auth", "Authentication methods", base.HEX)
define("string", "hello.auth_names", "Names of the methods")
define("bytes", "hello.process", "Process")
define("bytes", "hello.nonce", "Nonce")
define("bytes", "hello.resume", "Connection to resume")

define("uint16", "join.version", "Version")
define("uint16", "join.sealed", "Sealed")
define("bytes", "join.secret", "Secret, or its name")
define("uint32", "join.epoch", "Epoch")
define("uint32", "join.attempt", "Attempt")
define("uint32", "join.index", "Data socket")
define("bytes", "join.code", "Code")

define("uint8", "control.type", "Type", base.HEX, control_names)
define("uint8", "control.flags", "Flags", base.HEX)
define("uint32", "control.length", "Length")

define("uint32", "offer.prefer", "Prefers", base.DEC, { [1] = "latency", [2] = "bandwidth" })
define("uint64", "offer.message_size", "Typical message")
define("uint64", "offer.max_send", "Longest message sent")
define("uint64", "offer.max_recv", "Longest message received")
define("uint64", "offer.require", "Capabilities required", base.HEX)
define("uint64", "offer.require_native", "Capabilities required natively", base.HEX)
define("uint32", "offer.liveness_ms", "Liveness time in ms")
define("uint32", "offer.data_sockets", "Data sockets wished")
define("uint32", "offer.path_ms", "Time for one path in ms")
define("uint32", "offer.setup_ms", "Time for the set-up in ms")
define("uint32", "offer.encrypted_only", "Only encrypted or trusted paths")
define("bytes", "offer.private", "Private data of the program")
define("string", "offer.filter1", "First path filter")
define("string", "offer.filter2", "Second path filter")
define("bytes", "offer.secret", "Secret")
define("uint32", "offer.max_send_is_wish", "The longest message sent is a wish")
define("uint16", "offer.unknown", "Unknown value, type")

define("string", "path.provider", "Provider")
define("uint32", "path.flags", "Flags of the provider", base.HEX)
define("string", "path.device", "Device")
define("string", "path.address", "Address")
define("uint32", "path.reason", "Reason", base.DEC, reasons)
define("uint32", "path.software", "Device in software")
define("string", "path.text", "Reason in words")
define("string", "path.hint", "Remedy")
define("uint64", "path.bandwidth", "Bandwidth in bytes per second")
define("uint32", "path.latency_ns", "Latency in ns")
define("uint32", "path.mtu", "MTU")
define("uint64", "path.native", "Capabilities, native", base.HEX)
define("uint64", "path.emulated", "Capabilities, emulated", base.HEX)
define("uint64", "path.max_message", "Longest message")
define("uint32", "path.max_sge", "Most entries of a scatter/gather list")
define("uint32", "path.max_inline", "Most bytes inline")
define("uint32", "path.security", "Security", base.DEC, securities)
define("bytes", "path.reach", "Reach bytes")
define("uint32", "path.encrypted", "Taken for encrypted")

define("uint16", "ranking.entries", "Candidates")
define("uint16", "candidate.rank", "Rank")
define("uint16", "candidate.reason", "Reason", base.DEC, reasons)
define("uint16", "candidate.stage", "Stage", base.DEC, stages)
define("uint16", "candidate.acceptor_path", "Acceptor's path")
define("uint16", "candidate.connector_path", "Connector's path")
define("uint16", "candidate.measured", "Cost was measured", base.HEX)
define("uint64", "candidate.cost_ns", "Cost in ns")
define("uint64", "candidate.native", "Capabilities, native", base.HEX)
define("uint64", "candidate.emulated", "Capabilities, emulated", base.HEX)
define("string", "candidate.text", "Reason in words")
define("string", "candidate.hint", "Remedy")

define("uint32", "attempt", "Attempt")
define("uint16", "acceptor_path", "Acceptor's path")
define("uint16", "connector_path", "Connector's path")
define("bytes", "connection_data", "Connection data")
define("bytes", "description", "Description")
define("bytes", "nonce", "Nonce")
define("uint8", "hash_kind", "Kind of hash", base.DEC, { [0] = "none", [1] = "SHA-256" })
define("bytes", "hash", "Transcript hash")
define("uint16", "stage", "Stage", base.DEC, stages)
define("uint16", "reason", "Reason", base.DEC, reasons)
define("uint32", "status", "Status", base.DEC, statuses)
define("string", "text", "Text")

define("uint8", "tcp.version", "Version of the connection data")
define("uint8", "tcp.sockets", "Data sockets")
define("uint16", "tcp.answers", "Reads and atomics in flight")
define("uint8", "tcp.flags", "Flags", base.HEX)
define("bool", "tcp.on_demand", "Credits on demand")
define("bool", "tcp.encrypted", "Encrypted")
define("bool", "tcp.early", "Takes early messages")

define("uint32", "id", "Id")
define("bytes", "token", "Token")
define("uint32", "access", "Access granted", base.HEX)
define("string", "access_names", "Names of the rights")
define("string", "capability_names", "Names of the capabilities")
define("uint64", "length", "Length of the region")
define("uint64", "region", "Region")
define("uint32", "count", "Imports closed")
define("uint32", "silent", "Silent", base.DEC, { [0] = "asks", [1] = "answers" })
define("uint32", "epoch", "Epoch")
define("uint64", "total", "Messages received")
define("uint64", "rank", "Rank of the better path")
define("uint32", "steady", "Path of the epoch in use")
define("bytes", "proof", "Proof")
define("uint32", "reject.reason", "Reason of the program")
define("bytes", "reject.private", "Private data of the program")

define("uint8", "data.type", "Type", base.HEX)
define("string", "data.kind", "Kind")
define("bool", "data.striped", "Spread over all sockets")
define("bool", "data.placed", "Acknowledgment wanted")
define("bool", "data.has_imm", "Immediate data follow")
define("uint8", "data.credits", "Credits granted")
define("uint64", "data.length", "Length")
define("uint64", "data.status", "Status", base.DEC, statuses)
define("bytes", "data.key", "Key of the region")
define("uint64", "data.offset", "Offset", base.HEX)
define("uint64", "data.add", "Number added")
define("uint64", "data.desired", "Desired")
define("uint64", "data.expected", "Expected")
define("uint64", "data.before", "Value before")
define("uint64", "data.request", "Number of the request")
define("uint32", "data.imm", "Immediate data", base.HEX)
define("bytes", "data.filler", "Filler")
define("bytes", "data.payload", "Payload")
define("uint64", "data.payload_length", "Payload in this frame, on this socket")
define("bytes", "data.share", "Share of a payload")

local list = {}
for _, one in pairs(f) do
    list[#list + 1] = one
end
rdmux.fields = list

local violation = ProtoExpert.new("rdmux.violation", "Breaks the protocol", expert.group.PROTOCOL,
    expert.severity.WARN)
local unknown = ProtoExpert.new("rdmux.unknown", "Begins no frame of rdmux", expert.group.UNDECODED,
    expert.severity.NOTE)
local cut = ProtoExpert.new("rdmux.cut", "Not captured completely", expert.group.PROTOCOL,
    expert.severity.CHAT)
rdmux.experts = { violation, unknown, cut }

rdmux.prefs.sockets = Pref.uint("Data sockets", 1,
    "Number of data sockets of connections whose set-up was not captured (1 to 16)")

local stream_of = Field.new("tcp.stream")

-- -------------------------------------------------------------------------------------- Reader

-- The bytes [at, stop) of a tvb. take() returns a range, or nil: then `short` says that the frame
-- does not have these bytes, or `lost` that the capture does not.
local Reader = {}
Reader.__index = Reader

local function reader(tvb, at, stop)
    return setmetatable({ tvb = tvb, at = at, stop = stop }, Reader)
end

function Reader:left()
    return self.stop - self.at
end

function Reader:take(size)
    if self.short or self.lost then
        return nil
    end
    if size > self.stop - self.at then
        self.short = true
        return nil
    end
    if self.at + size > self.tvb:captured_len() then
        self.lost = true
        return nil
    end
    local range = self.tvb(self.at, size)
    self.at = self.at + size
    return range
end

-- Adds a field of this size. Returns its range, or nil.
function Reader:add(tree, name, size)
    local range = self:take(size)
    if range ~= nil and size > 0 then
        tree:add(f[name], range)
    end
    return range
end

-- Adds a number of at most 4 bytes, and returns it, or nil.
function Reader:number(tree, name, size)
    local range = self:add(tree, name, size)
    return range ~= nil and range:uint() or nil
end

-- Adds what is left, as far as it was captured.
function Reader:rest(tree, name)
    local have = math.min(self.stop, self.tvb:captured_len()) - self.at
    if have > 0 then
        tree:add(f[name], self.tvb(self.at, have))
    end
    self.lost = self.lost or self.stop > self.tvb:captured_len()
    self.at = self.stop
end

-- Says what the frame lacks, or has too much.
function Reader:finish(tree)
    if self.lost then
        tree:add_proto_expert_info(cut)
    elseif self.short then
        tree:add_proto_expert_info(violation, "The frame is too short")
    elseif self.at < self.stop then
        tree:add_proto_expert_info(violation, "The frame is too long")
    end
end

local function names_of(number, names)
    local found = {}
    for i = 0, #names do
        if bit32.band(bit32.rshift(number, i), 1) == 1 then
            found[#found + 1] = names[i]
        end
    end
    return #found > 0 and table.concat(found, " ") or "none"
end

local function add_names(tree, name, text)
    tree:add(f[name], text):set_generated()
end

-- Capabilities: 8 bytes, of which the last 4 have all that are known.
local function add_capabilities(r, tree, name)
    local range = r:add(tree, name, 8)
    if range ~= nil then
        add_names(tree, "capability_names", names_of(range(4, 4):uint(), capabilities))
    end
end

-- --------------------------------------------------------------------------- what is remembered

-- By connection: kind ("data", "share"), is_tls, offers by sender, attempts, secret.
local connections = {}
local by_secret = {}

function rdmux.init()
    connections = {}
    by_secret = {}
end

local function connection_of(pinfo)
    local stream = stream_of()
    local key
    if stream ~= nil then
        key = stream.value
    else
        local a = tostring(pinfo.src) .. " " .. pinfo.src_port
        local b = tostring(pinfo.dst) .. " " .. pinfo.dst_port
        key = a < b and a .. " " .. b or b .. " " .. a
    end
    local connection = connections[key]
    if connection == nil then
        connection = { offers = {}, attempts = {} }
        connections[key] = connection
    end
    return connection
end

local function sender_of(pinfo)
    return tostring(pinfo.src) .. " " .. pinfo.src_port
end

local function sockets_of(connection)
    local owner = connection.owner
    local attempt = owner ~= nil and owner.attempts[connection.attempt] or nil
    return attempt ~= nil and attempt.sockets or math.max(1, math.min(16, rdmux.prefs.sockets))
end

-- ------------------------------------------------------------------------------- control channel

local function begins_with(tvb, at, magic)
    return tvb:captured_len() - at >= #magic and tvb:raw(at, #magic) == magic
end

local function dissect_hello(tvb, pinfo, tree, connection)
    local r = reader(tvb, 8, HELLO_SIZE)
    r:add(tree, "hello.version_min", 2)
    r:add(tree, "hello.version_max", 2)
    local marker = r:take(4)
    if marker ~= nil then
        local number = marker:uint()
        tree:add(f["hello.byte_order"], marker, number == 0x04030201 and "little-endian"
            or number == 0x01020304 and "big-endian" or "neither")
    end
    local flags = r:number(tree, "hello.flags", 4)
    if flags ~= nil then
        add_names(tree, "hello.flag_names", names_of(flags, hello_flags))
    end
    r:add(tree, "hello.epoch", 4)
    local auth = r:number(tree, "hello.auth", 4)
    if auth ~= nil then
        add_names(tree, "hello.auth_names", names_of(auth, methods))
        connection.is_tls = connection.is_tls or auth ~= 0
    end
    r:take(4)
    r:add(tree, "hello.process", 16)
    r:add(tree, "hello.nonce", 16)
    r:add(tree, "hello.resume", 16)
    r:take(16)
    r:finish(tree)
    return flags ~= nil and flags ~= 0 and names_of(flags, hello_flags) or nil
end

local function dissect_join(tvb, pinfo, tree, connection)
    local r = reader(tvb, 8, JOIN_SIZE)
    r:add(tree, "join.version", 2)
    local sealed = r:number(tree, "join.sealed", 2)
    local secret = r:add(tree, "join.secret", 16)
    r:add(tree, "join.epoch", 4)
    local attempt = r:number(tree, "join.attempt", 4)
    local index = r:number(tree, "join.index", 4)
    r:add(tree, "join.code", 16)
    r:take(8)
    r:finish(tree)
    if index == nil then
        return nil
    end
    connection.is_tls = connection.is_tls or sealed ~= 0
    connection.kind = index == 0 and "data" or "share"
    connection.attempt = attempt
    connection.owner = by_secret[secret:bytes():tohex()]
    return "attempt " .. attempt .. ", socket " .. index
end

local path_values = {
    { "path.provider" }, { "path.flags", 4 }, { "path.device" }, { "path.address" },
    { "path.reason", 4 }, { "path.software", 4 }, { "path.text" }, { "path.hint" },
    { "path.bandwidth", 8 }, { "path.latency_ns", 4 }, { "path.mtu", 4 }, { "path.native", 8 },
    { "path.emulated", 8 }, { "path.max_message", 8 }, { "path.max_sge", 4 },
    { "path.max_inline", 4 }, { "path.security", 4 }, { "path.reach" }, { "path.encrypted", 4 },
}
local PATH, PATH_PROVIDER, PATH_DEVICE = 16, 1, 3
local SECRET = 15
local offer_values = {
    { "offer.prefer", 4 }, { "offer.message_size", 8 }, { "offer.max_send", 8 },
    { "offer.max_recv", 8 }, { "offer.require", 8 }, { "offer.require_native", 8 },
    { "offer.liveness_ms", 4 }, { "offer.data_sockets", 4 }, { "offer.path_ms", 4 },
    { "offer.setup_ms", 4 }, { "offer.encrypted_only", 4 }, { "offer.private" },
    { "offer.filter1" }, { "offer.filter2" }, { "offer.secret" }, [17] = {
        "offer.max_send_is_wish", 4,
    },
}

-- Calls each(type, size) with r at each value of a sequence of TLVs. each() takes the value.
local function each_value(r, each)
    while r:left() > 0 do
        local type, size = r:take(2), r:take(2)
        if size == nil then
            return
        end
        local stop = r.at + size:uint()
        if stop > r.stop then
            r.short = true
            return
        end
        local value = reader(r.tvb, r.at, stop)
        each(type:uint(), value)
        r.lost = r.lost or value.lost
        r.at = stop
    end
end

-- Adds a value by its table. Returns whether the type is listed.
local function add_value(values, type, value, tree)
    local known = values[type]
    if known == nil then
        return false
    end
    if known[2] ~= nil and known[2] ~= value:left() then
        tree:add_proto_expert_info(violation, "A number of the wrong size")
        value:rest(tree, "raw")
    elseif value:left() > 0 then
        value:add(tree, known[1], value:left())
    end
    return true
end

local function dissect_path(value, tree)
    local subtree = tree:add(rdmux, value.tvb(value.at, math.max(0,
        math.min(value.stop, value.tvb:captured_len()) - value.at)), "Path")
    local provider, device = "?", ""
    each_value(value, function(type, inner)
        local whole = inner.stop <= inner.tvb:captured_len()
        if whole and inner:left() > 0 and type == PATH_PROVIDER then
            provider = inner.tvb(inner.at, inner:left()):string()
        elseif whole and inner:left() > 0 and type == PATH_DEVICE then
            device = inner.tvb(inner.at, inner:left()):string()
        end
        add_value(path_values, type, inner, subtree)
    end)
    value:finish(subtree)
    subtree:append_text(" " .. provider .. " " .. device)
    return provider
end

local function dissect_offer(r, pinfo, tree, connection)
    local paths = {}
    connection.offers[sender_of(pinfo)] = paths
    each_value(r, function(type, value)
        if type == PATH then
            paths[#paths + 1] = dissect_path(value, tree)
        elseif type == SECRET and value:left() == 16 then
            local secret = value:add(tree, "offer.secret", 16)
            if secret ~= nil then
                by_secret[secret:bytes():tohex()] = connection
            end
        elseif not add_value(offer_values, type, value, tree) then
            tree:add(f["offer.unknown"], type):set_generated()
        end
    end)
    return table.concat(paths, " ")
end

local function dissect_ranking(r, pinfo, tree)
    local count = r:number(tree, "ranking.entries", 2)
    r:take(2)
    for _ = 1, math.min(count or 0, 64) do
        local first = r.at
        local subtree = tree:add(rdmux, r.tvb(math.min(first, r.tvb:captured_len()), 0),
            "Candidate")
        local rank = r:number(subtree, "candidate.rank", 2)
        local reason = r:number(subtree, "candidate.reason", 2)
        r:add(subtree, "candidate.stage", 2)
        r:add(subtree, "candidate.acceptor_path", 2)
        r:add(subtree, "candidate.connector_path", 2)
        local text, hint = r:take(2), r:take(2)
        r:add(subtree, "candidate.measured", 2)
        r:add(subtree, "candidate.cost_ns", 8)
        add_capabilities(r, subtree, "candidate.native")
        add_capabilities(r, subtree, "candidate.emulated")
        if hint == nil then
            return nil
        end
        r:add(subtree, "candidate.text", text:uint())
        r:add(subtree, "candidate.hint", hint:uint())
        subtree:append_text((rank == 0 and "" or " of rank " .. (rank or "?")) .. ", "
            .. (reasons[reason or -1] or "?"))
    end
    return count ~= nil and count .. " candidates" or nil
end

-- Connection data of a provider, which is `size` bytes. Only that of tcp is known.
local function add_connection_data(r, tree, size, provider, attempt)
    local range = r:add(tree, "connection_data", size)
    if range == nil or provider ~= "tcp" or size < 8 then
        return
    end
    attempt.sockets = range(1, 1):uint()
    tree:add(f["tcp.version"], range(0, 1))
    tree:add(f["tcp.sockets"], range(1, 1))
    tree:add(f["tcp.answers"], range(2, 2))
    local flags = range(4, 1)
    tree:add(f["tcp.flags"], flags)
    tree:add(f["tcp.on_demand"], flags, bit32.btest(flags:uint(), 1))
    tree:add(f["tcp.encrypted"], flags, bit32.btest(flags:uint(), 2))
    tree:add(f["tcp.early"], flags, bit32.btest(flags:uint(), 4))
end

local function dissect_try(r, pinfo, tree, connection)
    local number = r:number(tree, "attempt", 4)
    local path = r:number(tree, "acceptor_path", 2)
    r:add(tree, "connector_path", 2)
    local size = r:take(2)
    r:take(2)
    if size == nil or number == nil then
        return nil
    end
    local paths = connection.offers[sender_of(pinfo)]
    local attempt = { provider = paths ~= nil and paths[path + 1] or nil }
    connection.attempts[number] = attempt
    add_connection_data(r, tree, size:uint(), attempt.provider, attempt)
    return "attempt " .. number .. (attempt.provider ~= nil and ", " .. attempt.provider or "")
end

local function dissect_bytes(name)
    return function(r, pinfo, tree, connection)
        local number = r:number(tree, "attempt", 4)
        local size = r:take(2)
        r:take(2)
        if size == nil or number == nil then
            return nil
        end
        local attempt = connection.attempts[number] or {}
        if name == "connection_data" then
            add_connection_data(r, tree, size:uint(), attempt.provider, attempt)
        else
            r:add(tree, name, size:uint())
        end
        return "attempt " .. number
    end
end

local function dissect_commit(r, pinfo, tree)
    local number = r:number(tree, "attempt", 4)
    r:add(tree, "hash_kind", 1)
    r:take(3)
    r:add(tree, "hash", 32)
    return number ~= nil and "attempt " .. number or nil
end

local function dissect_failed(r, pinfo, tree)
    local number = r:number(tree, "attempt", 4)
    r:add(tree, "stage", 2)
    local reason = r:number(tree, "reason", 2)
    r:add(tree, "status", 2)
    local size = r:take(2)
    if size ~= nil then
        r:add(tree, "text", size:uint())
    end
    return number ~= nil and "attempt " .. number .. ", " .. (reasons[reason or -1] or "?") or nil
end

local function add_access(r, tree)
    local access = r:number(tree, "access", 4)
    if access ~= nil then
        add_names(tree, "access_names", names_of(access, accesses))
    end
end

local function status_and_text(r, pinfo, tree)
    local status = r:number(tree, "status", 4)
    r:rest(tree, "text")
    return status ~= nil and (statuses[status] or "?") or nil
end

local function id_and_region(r, pinfo, tree)
    local id = r:number(tree, "id", 4)
    r:take(4)
    r:add(tree, "region", 8)
    return id ~= nil and "id " .. id or nil
end

local function dissect_resume(r, pinfo, tree)
    r:add(tree, "steady", 4)
    local epoch = r:number(tree, "epoch", 4)
    r:add(tree, "total", 8)
    r:add(tree, "proof", 32)
    return epoch ~= nil and "epoch " .. epoch or nil
end

local control = {
    OFFER = dissect_offer,
    RANKING = dissect_ranking,
    TRY = dissect_try,
    READY = dissect_bytes("connection_data"),
    UP = dissect_bytes("description"),
    WRITTEN = function(r, pinfo, tree)
        local number = r:number(tree, "attempt", 4)
        r:add(tree, "nonce", 16)
        return number ~= nil and "attempt " .. number or nil
    end,
    PROVED = function(r, pinfo, tree)
        local number = r:number(tree, "attempt", 4)
        return number ~= nil and "attempt " .. number or nil
    end,
    COMMIT = dissect_commit,
    CONFIRM = dissect_commit,
    FAILED = dissect_failed,
    REJECT = function(r, pinfo, tree)
        local reason = r:number(tree, "reject.reason", 4)
        r:rest(tree, "reject.private")
        return reason ~= nil and "reason " .. reason or nil
    end,
    IMPORT = function(r, pinfo, tree)
        local id = r:number(tree, "id", 4)
        r:add(tree, "token", 64)
        return id ~= nil and "id " .. id or nil
    end,
    IMPORTED = function(r, pinfo, tree)
        local id = r:number(tree, "id", 4)
        local status = r:number(tree, "status", 4)
        add_access(r, tree)
        r:take(4)
        r:add(tree, "length", 8)
        r:add(tree, "region", 8)
        r:rest(tree, "description")
        return id ~= nil and "id " .. id .. ", " .. (statuses[status or -1] or "?") or nil
    end,
    REVOKE = id_and_region,
    REVOKED = id_and_region,
    RELEASED = function(r, pinfo, tree)
        local id = r:number(tree, "id", 4)
        r:add(tree, "count", 4)
        r:add(tree, "region", 8)
        return id ~= nil and "id " .. id or nil
    end,
    FAULT = status_and_text,
    END = status_and_text,
    SILENT = function(r, pinfo, tree)
        local id = r:number(tree, "silent", 4)
        return id == 0 and "asks" or id == 1 and "answers" or nil
    end,
    MOVE = function(r, pinfo, tree)
        local status = r:number(tree, "status", 4)
        local epoch = r:number(tree, "epoch", 4)
        r:add(tree, "total", 8)
        r:rest(tree, "text")
        return epoch ~= nil and "epoch " .. epoch .. ", " .. (statuses[status] or "?") or nil
    end,
    RECEIVED = function(r, pinfo, tree)
        r:take(4)
        local epoch = r:number(tree, "epoch", 4)
        r:add(tree, "total", 8)
        return epoch ~= nil and "epoch " .. epoch or nil
    end,
    RESUME = dissect_resume,
    RESUMED = dissect_resume,
    BACK = function(r, pinfo, tree)
        local status = r:number(tree, "status", 4)
        local epoch = r:number(tree, "epoch", 4)
        r:add(tree, "rank", 8)
        return epoch ~= nil and "epoch " .. epoch .. ", " .. (statuses[status] or "?") or nil
    end,
}

local function dissect_control(tvb, pinfo, tree, connection)
    local r = reader(tvb, 0, math.max(HEADER_SIZE, tvb:reported_len()))
    local type = r:number(tree, "control.type", 1)
    local flags = r:number(tree, "control.flags", 1)
    r:take(2)
    local length = r:number(tree, "control.length", 4)
    if length == nil then
        r:finish(tree)
        return nil
    end
    if length > CONTROL_MAX then
        tree:add_proto_expert_info(violation, "The frame is longer than allowed")
        return nil
    end
    r = reader(tvb, HEADER_SIZE, HEADER_SIZE + length)
    local name = control_names[type]
    local about
    if control[name] ~= nil then
        about = control[name](r, pinfo, tree, connection)
    elseif name == nil then
        r:rest(tree, "raw")
        if not bit32.btest(flags, 1) then
            tree:add_proto_expert_info(violation, "An unknown frame that is not optional")
        end
    end
    r:finish(tree)
    return about
end

-- ---------------------------------------------------------------------------------- data frames

local HAS_KEY = { SEND = false, WRITE = true, READ = true, FETCH_ADD = true, COMPARE_SWAP = true }
local OPERAND = {
    FETCH_ADD = "data.add", COMPARE_SWAP = "data.desired", RESULT = "data.before",
    NAK = "data.request",
}
local PAYLOAD = { SEND = true, WRITE = true, MORE = true, DATA = true }
local MAY = { -- flags beside MARK
    SEND = STRIPED + PLACED + IMM, WRITE = STRIPED + PLACED + IMM, MORE = STRIPED, FLUSH = PLACED,
    DATA = STRIPED,
}

-- Size of the header that begins with this byte, without a PING's filler; nil: no such frame.
local function data_header(type)
    local name = data_names[bit32.band(type, 0x0f)]
    local flags = bit32.band(type, STRIPED + PLACED + IMM)
    if not bit32.btest(type, MARK) or bit32.band(flags, bit32.bnot(MAY[name] or 0)) ~= 0
        or (name == "FLUSH" and flags ~= PLACED) then
        return nil
    end
    return HEADER_SIZE + (HAS_KEY[name] and 24 or 0) + (OPERAND[name] and 8 or 0)
        + (name == "COMPARE_SWAP" and 8 or 0) + (bit32.btest(type, IMM) and 4 or 0), name
end

-- Bytes of payload on socket 0 behind a header whose length field has this value.
local function payload_on_socket(name, type, length, sockets)
    if not PAYLOAD[name] then
        return 0
    end
    local striped = bit32.btest(type, STRIPED)
    local most = striped and CHUNK * sockets or CHUNK
    local payload = math.min(length, most)
    if striped then
        local share = math.ceil(payload / sockets)
        payload = math.min(payload, math.ceil(share / 4096) * 4096)
    end
    return payload
end

local function data_length(range)
    return range(2, 2):uint() * 4294967296 + range(4, 4):uint()
end

local function dissect_data(tvb, pinfo, tree)
    local type = tvb(0, 1):uint()
    local size, name = data_header(type)
    local r = reader(tvb, 0, math.max(HEADER_SIZE, tvb:reported_len()))
    r:add(tree, "data.type", 1)
    tree:add(f["data.kind"], tvb(0, 1), name)
    tree:add(f["data.striped"], tvb(0, 1), bit32.btest(type, STRIPED))
    tree:add(f["data.placed"], tvb(0, 1), bit32.btest(type, PLACED))
    tree:add(f["data.has_imm"], tvb(0, 1), bit32.btest(type, IMM))
    r:add(tree, "data.credits", 1)
    local range = r:take(6)
    if range == nil then
        r:finish(tree)
        return nil
    end
    local length = data_length(tvb)
    local about = name == "NAK" and (statuses[length] or "?") or string.format("%.0f", length)
    tree:add(f[name == "NAK" and "data.status" or "data.length"], range)
    if HAS_KEY[name] then
        r:add(tree, "data.key", 16)
        r:add(tree, "data.offset", 8)
    end
    if OPERAND[name] ~= nil then
        r:add(tree, OPERAND[name], 8)
    end
    if name == "COMPARE_SWAP" then
        r:add(tree, "data.expected", 8)
    end
    if bit32.btest(type, IMM) then
        r:add(tree, "data.imm", 4)
    end
    if name == "PING" then
        if length > 120 then
            tree:add_proto_expert_info(violation, "A PING with too much filler")
        else
            r:add(tree, "data.filler", length)
        end
    elseif PAYLOAD[name] and r:left() > 0 then
        tree:add(f["data.payload_length"], UInt64(r:left())):set_generated()
        r:rest(tree, "data.payload")
    end
    r:finish(tree)
    return about
end

-- --------------------------------------------------------------------------------------- frames

local function is_tls_record(tvb, at)
    local type = tvb(at, 1):uint()
    return type >= 0x14 and type <= 0x17 and tvb(at + 1, 1):uint() == 3
end

local function is_share(tvb, at, connection)
    return connection.kind == "share" and not begins_with(tvb, at, JOIN_MAGIC)
        and not (connection.is_tls and is_tls_record(tvb, at))
end

-- Bytes of the frame at `at`. Bytes that begin no frame are one, and so are those of a segment that
-- was not captured completely, or that Wireshark may not join to the next one. A size below
-- HEADER_SIZE would be an error of TCP's dissector.
local function frame_size(tvb, at, connection)
    local rest = math.max(HEADER_SIZE, tvb:reported_length_remaining(at))
    if tvb:captured_len() - at < HEADER_SIZE then
        return rest
    end
    if begins_with(tvb, at, HELLO_MAGIC) then
        return HELLO_SIZE
    elseif begins_with(tvb, at, JOIN_MAGIC) then
        return JOIN_SIZE
    elseif connection.is_tls and is_tls_record(tvb, at) then
        return math.max(HEADER_SIZE, 5 + tvb(at + 3, 2):uint())
    elseif is_share(tvb, at, connection) then
        return rest
    end
    local type = tvb(at, 1):uint()
    if type < MARK then
        local length = tvb(at + 4, 4):uint()
        return length <= CONTROL_MAX and HEADER_SIZE + length or rest
    end
    local size, name = data_header(type)
    if size == nil then
        return rest
    end
    local length = data_length(tvb(at, 8))
    if name == "PING" then
        return length <= 120 and size + length or rest
    end
    return size + payload_on_socket(name, type, length, sockets_of(connection))
end

local function frame_name(tvb)
    if begins_with(tvb, 0, HELLO_MAGIC) then
        return "HELLO", dissect_hello
    elseif begins_with(tvb, 0, JOIN_MAGIC) then
        return "JOIN", dissect_join
    end
    local type = tvb(0, 1):uint()
    if type < MARK then
        return control_names[type] or "unknown frame", dissect_control
    end
    local size, name = data_header(type)
    if size ~= nil then
        return name, dissect_data
    end
    return nil
end

-- tvb is one frame, or bytes that are none.
local function dissect_frame(tvb, pinfo, tree)
    local connection = connection_of(pinfo)
    if tvb:captured_len() == 0 then
        return tvb:reported_len()
    end
    if connection.is_tls and tvb:captured_len() >= 2 and is_tls_record(tvb, 0) then
        Dissector.get("tls"):call(tvb, pinfo, tree)
        return tvb:reported_len()
    end
    local subtree = tree:add(rdmux, tvb())
    local name, dissect = frame_name(tvb)
    if tvb:captured_len() >= 8 and is_share(tvb, 0, connection) then
        subtree:add(f["data.share"], tvb())
        subtree:append_text(", share of a payload")
        pinfo.cols.info:append(" share of a payload")
        return tvb:reported_len()
    end
    if name == nil then
        subtree:add_proto_expert_info(unknown)
        subtree:add(f["raw"], tvb())
        pinfo.cols.info:append(" bytes that begin no frame")
        return tvb:reported_len()
    end
    subtree:add(f["name"], tvb(0, 1), name)
    local about = dissect(tvb, pinfo, subtree, connection)
    local text = " " .. name .. (about ~= nil and " (" .. about .. ")" or "")
    subtree:append_text("," .. text)
    pinfo.cols.info:append(text)
    return tvb:reported_len()
end

local function dissect_packet(tvb, pinfo, tree)
    pinfo.cols.protocol = "rdmux"
    pinfo.cols.info = ""
    if stream_of() == nil then -- a capture of rdmux: a packet is a frame
        return dissect_frame(tvb, pinfo, tree)
    end
    dissect_tcp_pdus(tvb, tree, HEADER_SIZE, function(bytes, _, at)
        return frame_size(bytes, at, connection_of(pinfo))
    end, dissect_frame)
    return tvb:reported_len()
end

rdmux.dissector = dissect_packet

-- rdmux.dissector is an object of Wireshark; called from here it would be a layer above TCP's
-- subdissector, which must not ask for the next segment.
rdmux:register_heuristic("tcp", function(tvb, pinfo, tree)
    if not (begins_with(tvb, 0, HELLO_MAGIC) or begins_with(tvb, 0, JOIN_MAGIC)) then
        return false
    end
    pinfo.conversation = rdmux
    dissect_packet(tvb, pinfo, tree)
    return true
end)
DissectorTable.get("tcp.port"):add_for_decode_as(rdmux)
