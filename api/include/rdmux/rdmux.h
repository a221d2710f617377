/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdmux.h - the header that an application includes.
 *
 * A program names a peer (host:port). rdmux finds every path that both sides have (shared memory,
 * InfiniBand, RoCE, iWARP, TCP). It picks the fastest one that has the operations that the program
 * needs, proves that the path works, and reports why it chose this path.
 *
 * Conventions of every declaration in this file, unless its own comment says otherwise:
 *   Units      Lengths, sizes and offsets are bytes; depths and counts are entries; times say their
 *              unit in the name.
 *   Status     A function returns enum rdmux_status, RDMUX_OK being 0. Outputs come last and are
 *              written only on RDMUX_OK (and on RDMUX_IN_PROGRESS where that is documented); on any
 *              other status a pointer output is NULL. After a failure rdmux_last_error() gives this
 *              thread the text: the object, the cause, the remedy.
 *   Arguments  A NULL where none is allowed, a value out of range or an unknown bit is
 *              RDMUX_INVALID, and nothing has changed.
 *   timeout_ms -1 waits forever, 0 does not wait, else the most milliseconds the call may take.
 *              Signals never end a wait.
 *   Structs    Attribute and info structs begin with `size`, which their RDMUX_*_INIT macro sets.
 *              If library and program know different sizes, as one is newer, the smaller size
 *              counts. Zero in any other field means the default.
 *   Threads    "any": any thread may call the function at any time during the object's life. "its
 *              cq": the program makes calls on a completion queue, and on everything attached to
 *              it, one at a time, ordered by a lock or a hand-over. Any thread may make them.
 *   Data path  Functions marked [data path] never sleep, never allocate, never log.
 */
#ifndef RDMUX_RDMUX_H
#define RDMUX_RDMUX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RDMUX_VERSION_MAJOR 0
#define RDMUX_VERSION_MINOR 1
#define RDMUX_VERSION_PATCH 0

#define RDMUX_API __attribute__((visibility("default")))
#define RDMUX_MUST_CHECK __attribute__((warn_unused_result))

/* The expansion of the RDMUX_*_INIT macros: all zero but size. */
#ifdef __cplusplus
#define RDMUX_INIT_OF(type)                                          \
    ([] {                                                            \
        struct type init_value = {};                                 \
        init_value.size = static_cast<uint32_t>(sizeof(init_value)); \
        return init_value;                                           \
    }())
#else
#define RDMUX_INIT_OF(type)                   \
    {                                         \
        .size = (uint32_t)sizeof(struct type) \
    }
#endif

/* -------------------------------------------------------------------------------------- objects */

/* An instance of the library: providers, devices, options, threads. Threads: any. */
struct rdmux_fabric;
/* Completion queue and progress context of the endpoints attached to it. Threads: its cq. */
struct rdmux_cq;
struct rdmux_mr;       /* memory region: bytes that a fabric may read or write. Threads: any */
struct rdmux_ep;       /* reliable, ordered, connected endpoint. Threads: its cq */
struct rdmux_listener; /* one address for all paths. Threads: any */
struct rdmux_srq;      /* receives shared by many endpoints of one cq. Threads: its cq */
struct rdmux_remote;   /* a peer's memory region, imported from a token. Threads: its cq */
struct rdmux_plugin;   /* providers that a program links in; rdmux/provider.h has the struct */

/* ------------------------------------------------------------------------------------- statuses */

/* Every outcome of a call or of a request. Numbers are fixed; more may follow. */
enum rdmux_status {
    RDMUX_OK = 0,
    RDMUX_AGAIN = 1,       /* nothing was queued or nothing is there yet; poll, then try again */
    RDMUX_IN_PROGRESS = 2, /* started; the outcome arrives as an event */
    RDMUX_INVALID = 3,     /* an argument or the object's state forbids the call; nothing changed */
    RDMUX_UNSUPPORTED = 4, /* this path, provider or system cannot do it */
    RDMUX_NO_MEMORY = 5,   /* memory, descriptors, or a limit on pinned pages is exhausted */
    /* No common path meets the demands of both sides; the text has each candidate's reason. */
    RDMUX_NO_PATH = 6,
    RDMUX_REFUSED = 7,          /* nothing listens there, or the peer rejected the connection */
    RDMUX_TIMED_OUT = 8,        /* the time given is over; the attempt was undone */
    RDMUX_DENIED = 9,           /* the token, or the rights in it, do not allow the access */
    RDMUX_OUT_OF_RANGE = 10,    /* the access ends beyond the region */
    RDMUX_LENGTH = 11,          /* a message is longer than the receive it met, or than a limit */
    RDMUX_FLUSHED = 12,         /* the endpoint ended before this request was done */
    RDMUX_PEER_GONE = 13,       /* the peer closed, died, or was silent for the liveness time */
    RDMUX_OUTCOME_UNKNOWN = 14, /* the request may or may not have taken effect at the peer */
    RDMUX_PROTOCOL = 15,        /* the peer broke the protocol */
    RDMUX_VERSION = 16,         /* no common protocol version, or another byte order */
    RDMUX_AUTH = 17,            /* authentication failed or is required */
    RDMUX_IO = 18,              /* the operating system or the device reported an error */
};

/* The name of a status, such as "RDMUX_NO_PATH"; "RDMUX_?" for an unknown one. Never NULL, never
 * freed. Threads: any. */
RDMUX_API const char *rdmux_status_name(enum rdmux_status status);

/* The text of this thread's last failed call: object, cause, remedy; "" if no call failed. It is
 * valid until the thread's next call that fails. A failure that arrived as an event has its text in
 * rdmux_ep_info() instead. Threads: any. */
RDMUX_API const char *rdmux_last_error(void);

/* The library's version, "MAJOR.MINOR.PATCH". Never freed. Threads: any. */
RDMUX_API const char *rdmux_version(void);

/* ------------------------------------------------------------------------------------ constants */

enum {
    /* Bytes of a printed address, with its NUL: "192.0.2.1:7471", "[2001:db8::1]:7471". */
    RDMUX_ADDRESS_MAX = 128,
    RDMUX_NAME_MAX = 64,          /* bytes of a provider's or device's name, with its NUL */
    RDMUX_TEXT_MAX = 256,         /* bytes of an explaining text or hint, with its NUL */
    RDMUX_IDENTITY_MAX = 128,     /* bytes of an authenticated identity, with its NUL */
    RDMUX_PRIVATE_DATA_MAX = 196, /* bytes that a program may give its peer while connecting */
    RDMUX_INLINE_MIN = 64,        /* bytes that RDMUX_INLINE carries on every path */
    RDMUX_TOKEN_SIZE = 64,        /* bytes of a region token */
};

#define RDMUX_NEVER 0xffffffffu /* in a time field: no limit */
/* rdmux_ep_info.reject_reason: the peer has no room for the connection. Trying again later may
 * succeed. A listener gives it by itself to a connection that it drops beyond its limits. */
#define RDMUX_REJECT_BUSY 0xffffffffu
/* In a field whose zero means "default": the feature is off (or the value 0). */
#define RDMUX_OFF 0xffffffffu

/* Capabilities of an endpoint: for rdmux_ep_attr.require and require_native, and for the fields
 * native and emulated of info structs. */
enum {
    RDMUX_CAP_SEND = 1 << 0,
    RDMUX_CAP_SEND_IMM = 1 << 1,
    RDMUX_CAP_WRITE = 1 << 2,
    RDMUX_CAP_WRITE_IMM = 1 << 3,
    RDMUX_CAP_READ = 1 << 4,
    RDMUX_CAP_FETCH_ADD = 1 << 5,
    RDMUX_CAP_COMPARE_SWAP = 1 << 6,
    RDMUX_CAP_PLACED = 1 << 7, /* RDMUX_PLACED */
    RDMUX_CAP_SRQ = 1 << 8,    /* shared receive queues */
    RDMUX_CAP_FENCE = 1 << 9,  /* RDMUX_FENCE */
    /* Atomics on regions of device scope (RDMUX_ACCESS_ATOMIC_DEVICE). */
    RDMUX_CAP_ATOMIC_DEVICE = 1 << 10,
    /* One-sided operations need no thread of the target's process. */
    RDMUX_CAP_TARGET_PASSIVE = 1 << 11,
};

/* Access bits of a region. Remote write and remote atomic imply local write (source:
 * ibv_reg_mr(3)). */
enum {
    RDMUX_ACCESS_LOCAL_READ = 0,       /* always granted */
    RDMUX_ACCESS_LOCAL_WRITE = 1 << 0, /* may be the target of receives, reads and atomic results */
    RDMUX_ACCESS_REMOTE_READ = 1 << 1,
    RDMUX_ACCESS_REMOTE_WRITE = 1 << 2,
    RDMUX_ACCESS_REMOTE_ATOMIC = 1 << 3,
    /* May be the direct target of reads on iWARP, which exposes the region to the peer (RFC 5040,
     * 3.3). rdmux copies the data of reads into other regions, or makes a key for the duration of
     * the read. */
    RDMUX_ACCESS_READ_SINK = 1 << 4,
    /* A peer on the same host never maps the region, so that revoke is absolute. */
    RDMUX_ACCESS_NO_MAP = 1 << 5,
    /* Atomics are atomic among the users of one device only, and native there. */
    RDMUX_ACCESS_ATOMIC_DEVICE = 1 << 6,
};

/* Flags of a request; zero is the common case: one completion, nothing special. */
enum {
    /* The program may reuse the buffer on return. More bytes than rdmux_ep_info.max_inline:
     * RDMUX_LENGTH. */
    RDMUX_INLINE = 1 << 0,
    RDMUX_UNSIGNALED = 1 << 1, /* no completion unless the request fails */
    /* Starts after all earlier reads and atomics of the endpoint have finished. */
    RDMUX_FENCE = 1 << 2,
    RDMUX_PLACED = 1 << 3, /* completes only once the bytes are placed in the peer's memory */
    /* Another post follows at once, so this one may be held back; poll, wait and arm release it. */
    RDMUX_MORE = 1 << 4,
    /* Failover never repeats this request: RDMUX_OUTCOME_UNKNOWN instead. */
    RDMUX_NO_REPLAY = 1 << 5,
};

/* rdmux_wr.op */
enum {
    RDMUX_OP_SEND = 1,
    RDMUX_OP_SEND_IMM = 2,
    RDMUX_OP_RECV = 3,
    RDMUX_OP_WRITE = 4,
    RDMUX_OP_WRITE_IMM = 5,
    RDMUX_OP_READ = 6,
    RDMUX_OP_FETCH_ADD = 7,
    RDMUX_OP_COMPARE_SWAP = 8,
};

/* rdmux_wc.opcode: completions, then events */
enum {
    RDMUX_WC_SEND = 1,  /* send or send_imm */
    RDMUX_WC_RECV = 2,  /* length = bytes received */
    RDMUX_WC_WRITE = 3, /* write or write_imm */
    RDMUX_WC_READ = 4,
    RDMUX_WC_FETCH_ADD = 5,
    RDMUX_WC_COMPARE_SWAP = 6,
    /* A receive taken by a write_imm; its buffer is untouched, length = bytes written. */
    RDMUX_WC_RECV_WRITE_IMM = 7,
    RDMUX_WC_CONNECTED = 32, /* a set-up with timeout 0 has ended; status is its result */
    /* The endpoint ended: RDMUX_OK by shutdown, else the cause. The endpoint's last entry. */
    RDMUX_WC_DISCONNECTED = 33,
    /* Failover moved the endpoint. status: why it left the previous path; RDMUX_OK for a move to a
     * better one. imm: the epoch. */
    RDMUX_WC_PATH_CHANGED = 34,
    /* After RDMUX_AGAIN for a full queue: a quarter of the depth is free again. */
    RDMUX_WC_WRITABLE = 35,
    /* An import with timeout 0 has ended; context is the struct rdmux_remote. */
    RDMUX_WC_REMOTE_READY = 36,
    /* rdmux_cq_wake() was called. ep is NULL, context is the cq. */
    RDMUX_WC_WOKEN = 37,
    /* rdmux_ep_move() has brought the endpoint to this cq. Its first entry here. */
    RDMUX_WC_MOVED = 38,
    /* Fewer receives than rdmux_srq_attr.limit are left. ep is NULL, context is the SRQ. */
    RDMUX_WC_SRQ_LIMIT = 39,
    /* A read or write of a stream that returned RDMUX_AGAIN would not do so now (rdmux/stream.h).
     * ep is NULL, context is the stream. */
    RDMUX_WC_STREAM_READABLE = 40,
    RDMUX_WC_STREAM_WRITABLE = 41,
};

/* rdmux_wc.flags */
enum {
    RDMUX_WC_HAS_IMM = 1 << 0, /* imm is valid */
};

/* -------------------------------------------------------------------------------------- reasons */

/* Why a candidate path was chosen or not. Stable codes; rdmux_reason_name() gives "CHOSEN",
 * "OTHER_HOST", … */
enum rdmux_reason {
    RDMUX_REASON_NONE = 0,
    RDMUX_REASON_CHOSEN = 1,
    RDMUX_REASON_SLOWER = 2, /* eligible, but another path costs less */
    /* The provider's plug-in or the library it needs is not installed. */
    RDMUX_REASON_NO_LIBRARY = 3,
    /* A plug-in was refused: wrong ABI number, a hole in its table, a name taken. */
    RDMUX_REASON_BAD_PLUGIN = 4,
    RDMUX_REASON_NO_DEVICE = 5,
    RDMUX_REASON_PORT_DOWN = 6,
    RDMUX_REASON_NO_USABLE_GID = 7,
    RDMUX_REASON_PEER_HAS_NONE = 8, /* the peer offers no path of this provider */
    RDMUX_REASON_OTHER_HOST = 9,
    /* Same host, but another pid, ipc, user or network namespace, or another user. */
    RDMUX_REASON_OTHER_NAMESPACE = 10,
    RDMUX_REASON_NOT_REACHABLE = 11, /* addresses of different family, subnet or fabric */
    RDMUX_REASON_CAPABILITY_MISSING = 12,
    RDMUX_REASON_FILTERED = 13,
    RDMUX_REASON_MEMLOCK_TOO_LOW = 14,
    RDMUX_REASON_MTU_MISMATCH = 15,
    RDMUX_REASON_OPEN_FAILED = 16,
    RDMUX_REASON_CONNECT_FAILED = 17,
    RDMUX_REASON_CONNECT_TIMED_OUT = 18,
    RDMUX_REASON_PROOF_FAILED = 19, /* the bytes that arrived were not the bytes sent */
    RDMUX_REASON_PROOF_TIMED_OUT = 20,
    RDMUX_REASON_NOT_ENCRYPTED = 21,
    RDMUX_REASON_SOFTWARE_DEVICE = 22, /* an emulated RDMA device; never preferred to TCP */
    RDMUX_REASON_NO_PERMISSION = 23,
    RDMUX_REASON_LIMIT_MISMATCH = 24, /* max_send or another demand is beyond the path's limit */
    /* The peer could not open or connect its side; the text is the peer's. */
    RDMUX_REASON_PEER_FAILED = 25,
    RDMUX_REASON_USABLE = 26, /* a local path in good order (rdmux_fabric_paths) */
    RDMUX_REASON_OTHER_BYTE_ORDER = 27,
    RDMUX_REASON_PATH_LOST = 28, /* was in use until it failed, and failover left it */
};

/* The last stage that a candidate reached. rdmux_stage_name() gives "probe", "match", … */
enum rdmux_stage {
    RDMUX_STAGE_PROBE = 0, /* searched for on this machine */
    RDMUX_STAGE_MATCH = 1, /* paired with the peer's offer and ranked */
    RDMUX_STAGE_OPEN = 2,
    RDMUX_STAGE_CONNECT = 3,
    RDMUX_STAGE_PROOF = 4,
    RDMUX_STAGE_COMMIT = 5,
};

/* The protection of a path against others. rdmux_security_name() gives "none", "token", … */
enum rdmux_security {
    RDMUX_SECURITY_NONE = 0,
    RDMUX_SECURITY_TOKEN = 1, /* regions are guarded by unguessable tokens; bytes travel in clear */
    RDMUX_SECURITY_SAME_USER = 2, /* the kernel keeps other users out */
    RDMUX_SECURITY_BOUND_KEY = 3, /* bound to an authenticated session */
    RDMUX_SECURITY_ENCRYPTED = 4, /* TLS 1.3 carries every byte */
};

/* Names of the codes above, never NULL, never freed; "?" for an unknown one. Threads: any. */
RDMUX_API const char *rdmux_reason_name(enum rdmux_reason reason);
RDMUX_API const char *rdmux_stage_name(enum rdmux_stage stage);
RDMUX_API const char *rdmux_security_name(enum rdmux_security security);
RDMUX_API const char *rdmux_wc_opcode_name(uint32_t opcode);

/* --------------------------------------------------------------------------------------- fabric */

enum rdmux_log_level {
    RDMUX_LOG_NONE = 0,
    RDMUX_LOG_ERROR = 1, /* an operation is lost */
    RDMUX_LOG_WARN = 2,  /* an operation goes on, degraded */
    RDMUX_LOG_INFO = 3,  /* a path was chosen */
    RDMUX_LOG_DEBUG = 4, /* per object: also each step of a negotiation */
    RDMUX_LOG_TRACE = 5, /* per control message */
};

/* What a line of the log is about. Numbers are fixed; more may follow. */
enum rdmux_log_category {
    RDMUX_CATEGORY_FABRIC = 0,      /* the library itself: settings, threads, cqs */
    RDMUX_CATEGORY_PROVIDER = 1,    /* plug-ins and devices */
    RDMUX_CATEGORY_NEGOTIATION = 2, /* set-ups: dialling, offers, attempts, measuring */
    RDMUX_CATEGORY_ENDPOINT = 3,    /* connected endpoints and their end */
    RDMUX_CATEGORY_LISTENER = 4,    /* listeners and their pending connections */
    RDMUX_CATEGORY_MEMORY = 5,      /* regions and their revocation */
    RDMUX_CATEGORY_FAILOVER = 6,    /* moves, lost control channels */
    RDMUX_CATEGORY_CONTROL = 7,     /* messages of control channels */
};

/* The name of a category, such as "negotiation"; "?" for an unknown one. Never NULL, never freed.
 * Threads: any. */
RDMUX_API const char *rdmux_log_category_name(enum rdmux_log_category category);

/* One line of the log, for the duration of the call of a hook. */
struct rdmux_log_event {
    uint32_t size;
    uint32_t level;    /* enum rdmux_log_level */
    uint32_t category; /* enum rdmux_log_category */
    uint32_t spare0;
    uint64_t time_ns; /* since 1970-01-01 UTC, by the system's clock */
    const char *line; /* without newline */
    uint64_t spare[4];
};

/* rdmux_fabric_attr.flags */
enum {
    /* RDMUX_LOG, RDMUX_PATHS, RDMUX_PROVIDER_DIR, RDMUX_STATS and RDMUX_CAPTURE have no effect. */
    RDMUX_FABRIC_IGNORE_ENVIRONMENT = 1 << 0,
    /* rdmux_fabric_progress() does the work of the service thread. Rules 8 and 10 of
     * docs/SEMANTICS.md hold only as long as the program calls it. */
    RDMUX_FABRIC_NO_SERVICE_THREAD = 1 << 1,
    /* Work that may block (names, devices) is done inside the call that needs it. */
    RDMUX_FABRIC_NO_WORKER_THREAD = 1 << 2,
    RDMUX_FABRIC_NO_DEFAULT_PLUGINS = 1 << 3, /* only the plug-ins named in `plugins` are loaded */
    /* A request whose mr is NULL uses a region that covers the bytes, as rdmux_mr_find() finds it,
     * where the path needs one: over ib, roce and iwarp nothing is copied or registered then. The
     * program keeps every region that covers bytes of the request until the request completes. */
    RDMUX_FABRIC_FIND_REGIONS = 1 << 4,
    /* Shows the counts of the endpoints to other processes of this user, in a file that is replaced
     * every 250 ms: `rdmux top` reads it. The environment does the same: RDMUX_STATS=1. The file is
     * in $XDG_RUNTIME_DIR/rdmux, or else in /run/user/UID/rdmux or /tmp/rdmux-UID. The data path
     * pays nothing; threads that sleep in a call, or on an armed descriptor, wake for it. */
    RDMUX_FABRIC_SHARE_STATS = 1 << 5,
};

/* rdmux_fabric_auth.method */
enum {
    RDMUX_AUTH_PSK = 1,  /* a key that both sides have */
    RDMUX_AUTH_CERT = 2, /* certificates of an authority that both sides know */
};

/* rdmux_fabric_auth.flags */
enum {
    /* Only paths that are encrypted, or that `trusted` names. */
    RDMUX_AUTH_REQUIRE_ENCRYPTION = 1 << 0,
};

/*
 * Authentication of a fabric's connections. Both sides of each connection authenticate by TLS 1.3
 * on the control channel, which is encrypted from then on. A fabric with this option makes no
 * connection without authentication, and refuses rdma://. Bytes on tcp paths are encrypted, too;
 * those on ib, roce and iwarp travel in clear. docs/SECURITY.md says what this protects.
 * rdmux_fabric_open() reads strings and files; the caller may change them afterwards.
 *
 * key_file    PSK: lines IDENTITY:KEY, the key as 32 to 128 hexadecimal digits; lines that are
 *             empty or begin with # do not count. CERT: the private key of cert_file, PEM. The file
 *             belongs to this user or root, and is closed to all others (mode 0600).
 * identity    PSK: the identity, and so the key, with which this side connects. NULL = that of the
 *             first line.
 * cert_file   CERT: this side's certificate, and the chain to its authority, PEM.
 * ca_file     CERT: the authorities that vouch for peers, PEM. Those of the system do not count.
 * peers       peer_count identities that may connect (PSK: identities of connectors; CERT: of both
 *             sides). None listed: all peers that authenticate. Then a connector with CERT checks
 *             that the certificate is for the host that it dialled. rdmux_adopt() dials no host:
 *             its connecting side needs a list with CERT.
 * trusted     With RDMUX_AUTH_REQUIRE_ENCRYPTION: names of the providers whose paths no one else
 *             can read, as in "shm,ib"; "none". NULL = "shm".
 */
struct rdmux_fabric_auth {
    uint32_t size;
    uint32_t flags;
    uint32_t method;
    uint32_t spare0;
    const char *key_file;
    const char *identity;
    const char *cert_file;
    const char *ca_file;
    const char *const *peers;
    size_t peer_count;
    const char *trusted;
    uint64_t spare[8];
};
#define RDMUX_FABRIC_AUTH_INIT RDMUX_INIT_OF(rdmux_fabric_auth)

/*
 * Options of a fabric. Any thread of the library may call a hook, also concurrently; the hook must
 * not call rdmux. A hook that is NULL stands for the system's own function. Strings are copied.
 *
 * paths         Filter of providers, an unordered list: "auto", "roce,tcp", "!shm" (the named ones,
 *               all if none is named, minus the negated). Intersects with RDMUX_PATHS and with the
 *               filters of listeners and endpoints.
 * provider_dir  A further folder whose *.so files are loaded as plug-ins. Environment:
 *               RDMUX_PROVIDER_DIR. The folder, its files and the folders above belong to root,
 *               the user or the owner of librdmux.so, and no other user may write to them: else
 *               the plug-in is a line with RDMUX_REASON_BAD_PLUGIN.
 * plugins       plugin_count paths of plug-in files to load. A file that cannot be loaded is a line
 *               in every explanation. Only librdmux.so loads plug-ins, from here and from folders.
 *               They are bound to that library, so to a copy of rdmux that is linked into a program
 *               or another library each of them is a line with RDMUX_REASON_BAD_PLUGIN.
 * builtin       builtin_count plug-ins that are linked into the program, such as rdmux_verbs_plugin
 *               (rdmux/verbs_plugin.h). They come before those of files: if both have a provider of
 *               the same name, that of the file is not used. The structs outlive the fabric.
 * log           Receives one line without newline. log_level: the most detailed level wanted.
 *               Environment: RDMUX_LOG=LEVEL[@CATEGORY,...][:FILE]; FILE receives the lines, too,
 *               with the time and the category. Without FILE and without a hook, standard error
 *               does. Without a hook and RDMUX_LOG the library is silent. CATEGORY: only lines of
 *               these categories go to FILE or standard error.
 * allocate      Returns size bytes aligned for any type, or NULL. release gets pointers of
 *               allocate. Data and kernel mappings (regions, rings) do not come from it.
 * clock_ns      Monotonic nanoseconds. Used for timeouts and liveness, not on the data path.
 * random        Fills out with size unguessable bytes and returns 0, else -1. The default is
 *               getrandom(2).
 * auth          How connections authenticate. NULL: without authentication, every process that
 *               reaches a listener's port may connect, and the control channel is in clear.
 * log_event     Receives the same lines with their time and category. `log` is not called then.
 *               Its user is log_user.
 * capture       "[WORD,...:]FILE": the frames of control channels and of tcp paths go to FILE, a
 *               pcap-ng file for Wireshark, of mode 0600. Without it: RDMUX_CAPTURE. Words: snap=N,
 *               the first N bytes of a payload are kept (32); max=N, the capture ends after N MiB
 *               (1024); secrets, secrets and keys are kept, not replaced by zeros; decrypted,
 *               encrypted connections are captured, too, in clear. docs/SECURITY.md says what the
 *               file reveals. Without a capture the data path pays nothing.
 * thread_start  Called first on each thread of the library, to choose its processors, its priority
 *               and its name. name: "rdmux-service", "rdmux-worker" or, if peers authenticate and
 *               something connects, "rdmux-tls". rdmux_fabric_open() returns after the first two
 *               calls. A result other than 0 refuses the thread: rdmux_fabric_open() fails, and
 *               without rdmux-tls the service thread computes the handshakes. Threads that the
 *               plug-in for RDMA makes for a single call that may block are not shown.
 *
 * In a program with rights that its user lacks (setuid, setgid, file capabilities) the environment
 * has no effect: secure_getenv(3). It searches for plug-ins only in the folder that was compiled
 * in.
 */
struct rdmux_fabric_attr {
    uint32_t size;
    uint32_t flags;
    const char *paths;
    const char *provider_dir;
    const char *const *plugins;
    size_t plugin_count;
    void (*log)(void *user, enum rdmux_log_level level, const char *line);
    void *log_user;
    uint32_t log_level;
    uint32_t spare0;
    void *(*allocate)(void *user, size_t size);
    void (*release)(void *user, void *memory);
    void *allocate_user;
    uint64_t (*clock_ns)(void *user);
    void *clock_user;
    int (*random)(void *user, void *out, size_t size);
    void *random_user;
    const struct rdmux_fabric_auth *auth;
    const struct rdmux_plugin *const *builtin;
    size_t builtin_count;
    int (*thread_start)(void *user, const char *name);
    void *thread_user;
    void (*log_event)(void *user, const struct rdmux_log_event *event);
    const char *capture;
    uint64_t spare[1];
};
#define RDMUX_FABRIC_ATTR_INIT RDMUX_INIT_OF(rdmux_fabric_attr)

/*
 * Opens an instance of the library: loads plug-ins, searches for paths, starts its threads. Two
 * fabrics in one process do not see each other. A provider that cannot be used is a line in
 * rdmux_fabric_paths(), not an error.
 * The process may exit, by exit() or at the end of main(), with the fabric open. Handlers of exit()
 * that were registered before the first fabric of the process run when the service thread and the
 * thread of TLS handshakes have stopped: they call no hook and touch no buffer any more. Peers see
 * the end of the process. If OpenSSL is not in use yet, it lasts until the process is gone.
 * attr       NULL: all defaults.
 * Ownership  The caller owns the fabric and ends it by rdmux_fabric_close().
 * Threads    Any. May sleep.
 * Errors     RDMUX_INVALID (a filter that names an unknown provider, an unknown flag, a file that
 *            has no key or that others may read, an unknown word of capture), RDMUX_NO_MEMORY,
 *            RDMUX_IO (a file of auth, log or capture, or thread_start refused a thread),
 *            RDMUX_UNSUPPORTED (auth without OpenSSL)
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_fabric_open(const struct rdmux_fabric_attr *attr,
                                                               struct rdmux_fabric **out);

/*
 * Ends the fabric's threads and frees it. NULL is allowed and does nothing.
 * Threads  The last call on the fabric.
 * Errors   RDMUX_INVALID: it has living cqs, regions or listeners (nothing was done)
 */
RDMUX_API enum rdmux_status rdmux_fabric_close(struct rdmux_fabric *fabric);

/* Returns a descriptor that is readable when rdmux_fabric_progress() has work; -1 after fork, and
 * in a build for systems without epoll (RDMUX_POSIX_ONLY). It belongs to the library and lives as
 * long as the fabric; the caller never reads or writes it. It serves with
 * RDMUX_FABRIC_NO_SERVICE_THREAD only. Threads: any. */
RDMUX_API int rdmux_fabric_fd(struct rdmux_fabric *fabric);

/*
 * Does the work of the service thread: listeners, control channels, liveness, and the cqs whose
 * program is away. Never blocks. A program calls it when rdmux_fabric_fd() is readable, and at
 * least every 100 ms.
 * Threads  Any. With a service thread it does nothing.
 * Errors   RDMUX_INVALID after fork
 */
RDMUX_API enum rdmux_status rdmux_fabric_progress(struct rdmux_fabric *fabric);

/* One local path, usable or not. */
struct rdmux_path_info {
    uint32_t size;
    uint32_t reason;               /* enum rdmux_reason: USABLE, or why not */
    char provider[RDMUX_NAME_MAX]; /* "shm", "ib", "roce", "iwarp", "tcp" or a plug-in's name */
    char device[RDMUX_NAME_MAX];   /* netdev or RDMA device; "" if none */
    char address[RDMUX_ADDRESS_MAX];
    char text[RDMUX_TEXT_MAX]; /* the reason in words */
    char hint[RDMUX_TEXT_MAX]; /* what to do about it, "" if nothing */
    uint64_t bandwidth;        /* bytes per second, as ranking counts them */
    uint32_t latency_ns;       /* half round trip, as ranking counts it */
    uint32_t mtu;              /* bytes, 0 if the path has none */
    uint64_t native;           /* RDMUX_CAP_* */
    uint64_t emulated;         /* RDMUX_CAP_* */
    uint64_t max_message;      /* longest send in bytes; UINT64_MAX = no limit */
    uint32_t max_sge;
    uint32_t max_inline; /* bytes */
    uint32_t software;   /* 1: an RDMA device emulated in software */
    uint32_t security;   /* enum rdmux_security */
    /* Where the provider is: "library", "builtin" (rdmux_fabric_attr.builtin), or the name of the
     * plug-in's file; "" if there is none. Belongs to the fabric, which keeps it until it ends. */
    const char *source;
    uint64_t spare[7];
};
#define RDMUX_PATH_INFO_INIT RDMUX_INIT_OF(rdmux_path_info)

/*
 * Lists the local paths. A path that cannot be used has its reason. ib, roce and iwarp are in the
 * list even without RDMA libraries.
 * out      Room for max entries, each with its size set; may be NULL if max is 0.
 * count    The number of all paths, which may be more than max.
 * Threads  Any. May sleep.
 * Errors   RDMUX_INVALID, RDMUX_NO_MEMORY
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_fabric_paths(struct rdmux_fabric *fabric,
                                                                struct rdmux_path_info *out,
                                                                size_t max, size_t *count);

/* Counts of a fabric. The first group is what there is now, the others count since the fabric was
 * opened. A fabric of which several threads make use may have changed meanwhile. */
struct rdmux_fabric_stats {
    uint32_t size;
    uint32_t spare0;
    uint64_t providers; /* of the library and of plug-ins, whether or not they have a usable path */
    uint64_t plugins;   /* of the program and of files, without those that were refused */
    uint64_t cqs;
    uint64_t listeners;
    uint64_t endpoints;    /* not closed; in set-up, connected, or ended */
    uint64_t regions;      /* the program's, and one of 32 KiB for each set-up under way */
    uint64_t region_bytes; /* sum of their lengths */
    /* Set-ups of endpoints: those that ended with a path, on the connecting and on the accepting
     * side, and those that failed. */
    uint64_t connected;
    uint64_t accepted;
    uint64_t setups_failed;
    /* Connections of listeners: those that have introduced themselves (rdmux_listen_attr), and why
     * rdmux_accept() got no endpoint of the others. */
    uint64_t introduced;
    uint64_t rejected;    /* by rdmux_reject() */
    uint64_t turned_away; /* with an answer: authentication failed, or no method in common */
    uint64_t expired;     /* slower than hello_timeout_ms or accept_timeout_ms allow */
    uint64_t evicted;     /* made room for others, at one of the listener's limits */
    uint64_t dropped;     /* left, broke the protocol, or found no memory or descriptor here */
    uint64_t jobs;        /* names, devices and buffers that the worker thread was given */
    uint64_t spare[8];
};
#define RDMUX_FABRIC_STATS_INIT RDMUX_INIT_OF(rdmux_fabric_stats)

/* Fills in *out, whose size is set. Threads: any. Errors: RDMUX_INVALID. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_fabric_stats(struct rdmux_fabric *fabric,
                                                                struct rdmux_fabric_stats *out);

/* ----------------------------------------------------------------------------- completion queue */

/* One completion or event. 64 bytes forever. context, ep and opcode are valid whatever the
 * status. */
struct rdmux_wc {
    /* As given with the request; for REMOTE_READY the remote, for WOKEN the cq, for SRQ_LIMIT the
     * SRQ, for STREAM_* and all events of a stream's endpoint the stream; NULL for the other
     * events. */
    void *context;
    struct rdmux_ep *ep; /* NULL for events that belong to no endpoint: WOKEN, SRQ_LIMIT, STREAM_* */
    /* Bytes received, written or read; 8 for atomics; 0 for events and unless status is OK. */
    uint64_t length;
    uint32_t status; /* enum rdmux_status */
    uint32_t opcode; /* RDMUX_WC_* */
    uint32_t flags;  /* RDMUX_WC_HAS_IMM */
    uint32_t imm;    /* immediate data, host byte order */
    uint64_t spare[3];
};

/* rdmux_cq_attr.flags */
enum {
    /* The second of two calls that are on the cq at once does nothing and is RDMUX_INVALID, a poll
     * returns 0 and sets the error text. For tests: posts do not take the fast path. */
    RDMUX_CQ_CHECKED = 1 << 0,
    /* The library makes the calls of several threads one at a time: a call, on the data path, too,
     * waits while another one is inside, some microseconds, and a call that sleeps lets others in.
     * An object is still closed by one thread, and not used by another one meanwhile. Posts do not
     * take the fast path. */
    RDMUX_CQ_SERIALIZED = 1 << 1,
};

/*
 * Options of a cq.
 * depth  The largest sum of the depths of all endpoints and SRQs on the cq, in entries; 0 =
 *        16,777,216.
 * flags  RDMUX_CQ_*. RDMUX_CQ_SERIALIZED goes before RDMUX_CQ_CHECKED.
 */
struct rdmux_cq_attr {
    uint32_t size;
    uint32_t depth;
    uint32_t flags;
    uint32_t spare0;
    uint64_t spare[5];
};
#define RDMUX_CQ_ATTR_INIT RDMUX_INIT_OF(rdmux_cq_attr)

/* Creates a completion queue. attr NULL: all defaults. The caller destroys it before the fabric.
 * Threads: any. May sleep. Errors: RDMUX_INVALID, RDMUX_NO_MEMORY, RDMUX_IO, RDMUX_UNSUPPORTED (the
 * fabric has no service thread, in a build for systems without epoll). */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_cq_create(struct rdmux_fabric *fabric,
                                                             const struct rdmux_cq_attr *attr,
                                                             struct rdmux_cq **out);

/* Destroys a cq. NULL is allowed. Threads: the last call on it. Errors: RDMUX_INVALID: it has open
 * endpoints or SRQs. */
RDMUX_API enum rdmux_status rdmux_cq_destroy(struct rdmux_cq *cq);

/*
 * [data path] Makes progress and takes up to max entries, in the order of rule 1 of
 * docs/SEMANTICS.md. Returns their number; 0 is no error. Entries of one endpoint's requests come
 * in posting order, receives in arrival order. max 0 only makes progress; wc may be NULL then.
 * Threads  Its cq.
 */
RDMUX_API size_t rdmux_cq_poll(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max);

/*
 * Polls once, then sleeps until there is at least one entry. The whole cq makes progress meanwhile.
 * Threads  Its cq.
 * Errors   RDMUX_AGAIN (timeout_ms is 0 and there is no entry), RDMUX_TIMED_OUT; *count is 0 on
 *          both. RDMUX_INVALID, RDMUX_IO
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_cq_wait(struct rdmux_cq *cq, struct rdmux_wc *wc,
                                                           size_t max, int timeout_ms,
                                                           size_t *count);

/* Returns a descriptor for poll(2), select(2), epoll(7); -1 after fork. The first entry after
 * rdmux_cq_arm() makes it readable, until the next poll, wait or arm. It may be readable without an
 * entry to return. It belongs to the library, and is the same for the cq's whole life. Threads:
 * any. */
RDMUX_API int rdmux_cq_fd(struct rdmux_cq *cq);

/*
 * Makes the descriptor of rdmux_cq_fd() readable at the next entry; holds for one wake-up. A loop
 * that loses no wake-up: poll until the result is 0, then arm; on RDMUX_AGAIN poll again, else
 * sleep on the descriptor.
 * Threads  Its cq. While one thread sleeps on the descriptor another may post.
 * Errors   RDMUX_AGAIN (there is an entry already), RDMUX_INVALID
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_cq_arm(struct rdmux_cq *cq);

/*
 * Wakes the owner of a cq: its rdmux_cq_wait() returns, the descriptor of an armed cq turns
 * readable, and the next poll or wait returns one RDMUX_WC_WOKEN. A wake without a sleeper counts
 * for the next poll or wait. Several wakes before that are one.
 * Threads  Any, in a signal handler, too. Keeps errno and rdmux_last_error().
 * Errors   RDMUX_INVALID: cq is NULL, or belongs to the parent process. Sets no error text.
 */
RDMUX_API enum rdmux_status rdmux_cq_wake(struct rdmux_cq *cq);

/* Counts of a cq, since it was created, and what is attached to it now. The data path pays nothing
 * for them: entries are counted by endpoint, see rdmux_ep_stats(). */
struct rdmux_cq_stats {
    uint32_t size;
    uint32_t spare0;
    uint64_t endpoints; /* not closed */
    uint64_t srqs;
    uint64_t reserved; /* entries of `depth` that endpoints and SRQs have reserved */
    /* Calls of the program on the cq and on all that is attached to it, this one among them, but not
     * small writes and polls over the fast path. With RDMUX_CQ_SERIALIZED some calls that began at
     * the same time may count as one. */
    uint64_t calls;
    uint64_t sleeps; /* how often a call slept: until an event, or until its time was over */
    uint64_t arms;   /* calls of rdmux_cq_arm() that returned RDMUX_OK */
    uint64_t wakes;  /* entries RDMUX_WC_WOKEN made */
    /* Rounds that served what is no data: other threads' requests, control channels, timers. */
    uint64_t errands;
    uint64_t service_slices; /* turns of the service thread as the cq's owner */
    uint64_t spare[8];
};
#define RDMUX_CQ_STATS_INIT RDMUX_INIT_OF(rdmux_cq_stats)

/* Fills in *out, whose size is set. Threads: its cq. Errors: RDMUX_INVALID. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_cq_stats(struct rdmux_cq *cq,
                                                            struct rdmux_cq_stats *out);

/* --------------------------------------------------------------------------------------- memory */

/* The bytes by which a region's owner gives its peers access: version, region id, length, rights
 * and 128 random bits. They are the same on the wire and on every path, and valid until the region
 * is revoked or deregistered. A token gives its rights to everyone who has it: keep it secret. */
struct rdmux_token {
    uint8_t bytes[RDMUX_TOKEN_SIZE];
};

enum {
    /* Relaxed where that is faster and the region allows no atomics. */
    RDMUX_ORDERING_DEFAULT = 0,
    RDMUX_ORDERING_STRICT = 1,
    RDMUX_ORDERING_RELAXED = 2, /* with RDMUX_ACCESS_REMOTE_ATOMIC: RDMUX_INVALID */
};

/*
 * Options of a region.
 * addr        NULL: the library allocates length bytes, zeroed, page aligned, which a peer on the
 *             same host may map. Else bytes of the caller, which stay the caller's and stay mapped
 *             until rdmux_mr_deregister() returns.
 * page_size   Wish for the pages of an allocation, in bytes (4096, 2 MiB, 1 GiB); 0 = the system's.
 *             The library takes smaller pages if the system has none of these. Over shm a peer does
 *             not map huge pages: the kernel or the target's CPU copies.
 * numa_node   1 + the node wished for an allocation; 0 = no wish.
 * dmabuf_fd   1 + the descriptor of a dma-buf, a buffer of a device's driver (Linux:
 *             Documentation/driver-api/dma-buf.rst), which has the bytes; 0: none. addr, page_size
 *             and numa_node are 0 then. The caller may close the descriptor after the call: the
 *             library has its own until rdmux_mr_deregister(). The library maps the bytes
 *             (rdmux_mr_addr()), so their driver has to allow that. Adapters get the dma-buf itself
 *             (ibv_reg_dmabuf_mr); a region is RDMUX_UNSUPPORTED while the fabric uses one that
 *             takes none, and an adapter that would be used later loses its paths. Peers on the
 *             same host do not map the bytes: the target's CPU copies. Requests on the bytes name
 *             the region. From creation to deregistration the processor has access to the bytes
 *             (DMA_BUF_IOCTL_SYNC); a program whose device is not coherent with the processor's
 *             caches ends and begins it around the device's work.
 * dmabuf_offset  Place of the region's first byte in the dma-buf, a multiple of the page size.
 */
struct rdmux_mr_attr {
    uint32_t size;
    uint32_t access; /* RDMUX_ACCESS_* */
    void *addr;
    size_t length;
    uint32_t ordering; /* RDMUX_ORDERING_* */
    uint32_t numa_node;
    uint64_t page_size;
    uint32_t dmabuf_fd;
    uint32_t spare0;
    uint64_t dmabuf_offset;
    uint64_t spare[8];
};
#define RDMUX_MR_ATTR_INIT RDMUX_INIT_OF(rdmux_mr_attr)

/*
 * Registers length bytes of the caller at addr for the given access.
 * Ownership  The bytes stay the caller's and stay mapped until rdmux_mr_deregister() returns.
 * length     At least 1.
 * Threads    Any. May sleep (pins pages, enters drivers); keep it off the data path.
 * Errors     RDMUX_INVALID (empty or wrapping span, unknown access bits, bytes that cannot be read
 *            or, where access writes, written), RDMUX_NO_MEMORY, RDMUX_UNSUPPORTED
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_mr_register(struct rdmux_fabric *fabric,
                                                               void *addr, size_t length,
                                                               uint32_t access,
                                                               struct rdmux_mr **out);

/* Allocates and registers length bytes; see rdmux_mr_attr.addr. The library owns the bytes, which
 * live until rdmux_mr_deregister(). Threads and errors as rdmux_mr_register(). */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_mr_alloc(struct rdmux_fabric *fabric,
                                                            size_t length, uint32_t access,
                                                            struct rdmux_mr **out);

/* The general form of the two above. Threads and errors as rdmux_mr_register(); with dmabuf_fd
 * RDMUX_INVALID stands also for a descriptor that is not open, is no dma-buf or does not allow the
 * access, and for bytes that the dma-buf does not have. RDMUX_IO: its driver failed. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_mr_create(struct rdmux_fabric *fabric,
                                                             const struct rdmux_mr_attr *attr,
                                                             struct rdmux_mr **out);

/*
 * Finds a region of the fabric that covers the bytes and grants the access; if several do, any of
 * them. Takes O(log n) steps with n regions, and one for each region that covers the bytes and
 * lacks a right. No lock, and no wait for a thread that creates or deregisters regions.
 * addr, length  At least 1 byte.
 * access        RDMUX_ACCESS_* that the region must have; 0: any region.
 * Ownership     The region stays the program's. While the program uses the result, it deregisters
 *               no region that covers these bytes.
 * Threads       Any.
 * Returns       NULL if there is none, and for an argument that is not allowed, of which
 *               rdmux_last_error() then tells.
 */
RDMUX_API struct rdmux_mr *rdmux_mr_find(struct rdmux_fabric *fabric, const void *addr,
                                         size_t length, uint32_t access);

/* First byte, and length in bytes, of the region. NULL and 0 for a NULL region. Threads: any. */
RDMUX_API void *rdmux_mr_addr(const struct rdmux_mr *mr);
RDMUX_API size_t rdmux_mr_length(const struct rdmux_mr *mr);

/*
 * Fills *out with the region's token. A second call gives the same token; the first call after a
 * revoke gives a new one.
 * Threads  Any.
 * Errors   RDMUX_INVALID (the region has no remote rights), RDMUX_IO (the system has no random
 *          bits)
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_mr_export(struct rdmux_mr *mr,
                                                             struct rdmux_token *out);

/*
 * The same for one peer: only endpoints whose peer has authenticated as this identity
 * (rdmux_ep_info.peer_identity) can import the token, no matter how they got it. A second call for
 * one identity gives the same token until revoke. Each identity has its own token, and none is that
 * of rdmux_mr_export(). rdmux_mr_revoke() takes all of them back.
 * identity  1 to RDMUX_IDENTITY_MAX - 1 bytes. rdmux does not check that there is such a peer.
 * Threads   Any.
 * Errors    RDMUX_INVALID (as rdmux_mr_export(), an identity of another length, or the fabric was
 *           opened without rdmux_fabric_attr.auth), RDMUX_NO_MEMORY, RDMUX_IO (the system has no
 *           random bits)
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_mr_export_to(struct rdmux_mr *mr,
                                                                const char *identity,
                                                                struct rdmux_token *out);

/*
 * Takes the exported rights back. When it returns, no later access by a token exported so far
 * succeeds. rdmux tells the importers, which drain and answer. After at most 100 ms it invalidates
 * the key, with or without answers; only endpoints that did not answer may fail. Over iwarp the
 * importers' adapters then have a second to take the bytes that are under way, as a lost packet
 * costs 200 ms; rdmux ends the endpoints of those that do not. A peer on the same host that has
 * mapped the pages is trusted to stop (RDMUX_ACCESS_NO_MAP avoids that).
 * Threads  Any. May sleep up to 200 ms, over iwarp up to 1,200 ms.
 * Errors   RDMUX_INVALID
 */
RDMUX_API enum rdmux_status rdmux_mr_revoke(struct rdmux_mr *mr);

/*
 * Takes the exported rights back for a while: tokens, keys and the peers' imports stay, and peers
 * are not told. When it returns, no access by a peer to the bytes is under way over tcp or by this
 * process's CPU, and a later one is refused as after rdmux_mr_revoke(): it ends its endpoint. The
 * caller's bytes may be unmapped then, until rdmux_mr_resume(). A peer on the same host that maps
 * the pages or copies by process_vm_readv(2) is trusted to keep away (RDMUX_ACCESS_NO_MAP avoids
 * that); bytes that are no longer mapped fail its request.
 * Threads  Any; one call of these two on a region at a time, and none of rdmux_mr_revoke(). Takes
 *          some microseconds.
 * Errors   RDMUX_INVALID (it is suspended already), RDMUX_UNSUPPORTED (the region is registered
 *          with a device: ib, roce, iwarp)
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_mr_suspend(struct rdmux_mr *mr);

/* Gives the rights of a suspended region back, to length bytes at offset; an access to others stays
 * refused until the region is suspended and resumed again. The bytes are mapped again. Threads: as
 * rdmux_mr_suspend(). Errors: RDMUX_INVALID (it is not suspended; bytes that it does not have). */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_mr_resume(struct rdmux_mr *mr, size_t offset,
                                                             size_t length);

/* Revokes and ends the region, and unmaps memory of rdmux_mr_alloc(). A request that still names
 * the region has an undefined result; other memory is untouched. NULL is allowed. Threads: the last
 * call on it. May sleep as long as rdmux_mr_revoke(). */
RDMUX_API void rdmux_mr_deregister(struct rdmux_mr *mr);

/*
 * Imports a peer's region: asks the peer, over the control channel, for the key that the current
 * path needs. After a failover rdmux asks again by itself. rdmux_remote_close() ends the import.
 * timeout_ms  0: returns RDMUX_IN_PROGRESS with *out set; posts on it give RDMUX_AGAIN until the
 *             peer has answered, which RDMUX_WC_REMOTE_READY tells. Imports pipeline: a thousand
 *             take about one round trip.
 * Threads     Its cq.
 * Errors      RDMUX_DENIED (forged, revoked, of another process, for another identity),
 *             RDMUX_TIMED_OUT, RDMUX_INVALID (not a token, or the endpoint is not connected),
 *             RDMUX_NO_MEMORY, RDMUX_PEER_GONE, RDMUX_UNSUPPORTED (an endpoint of rdma://)
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_remote_import(struct rdmux_ep *ep,
                                                                 const struct rdmux_token *token,
                                                                 int timeout_ms,
                                                                 struct rdmux_remote **out);

/*
 * Returns the raw key of a region, for endpoints of rdma:// only. The program sends it to its peer,
 * by its own means; the peer then reaches the region through the device of ep.
 * addr, key   As the device takes them. addr: the address by which a peer's request names the
 *             region's first byte (not always its address in this process). key: the remote key in
 *             host order (verbs: rkey). The key has exactly the rights that the region was
 *             registered with and the device can grant. rdmux_mr_revoke() ends it and makes
 *             another.
 * Threads     ep's cq. May sleep while the region is being revoked.
 * Errors      RDMUX_INVALID (an endpoint that is not of rdma://, not connected or ended; a region
 *             without remote rights, or of another fabric), RDMUX_UNSUPPORTED (the device cannot
 *             grant any of them), RDMUX_NO_MEMORY (the device made no new key after a revoke)
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_mr_raw(struct rdmux_mr *mr, struct rdmux_ep *ep,
                                                          uint64_t *addr, uint32_t *key);

/*
 * The other direction: makes a peer's region usable on ep, from a raw key that the peer's program
 * has sent. rdmux asks the peer nothing: length bounds the requests of this program, and the peer's
 * device checks the rights. A request that the key does not allow ends the endpoint.
 * addr, key, length   Of the region's first byte; at least 1 byte.
 * Ownership           As for rdmux_remote_import(): rdmux_remote_close().
 * Threads             ep's cq.
 * Errors              RDMUX_INVALID (an endpoint that is not of rdma://, not connected or ended; a
 *                     length of 0 or beyond the end of addresses), RDMUX_NO_MEMORY
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_remote_import_raw(struct rdmux_ep *ep,
                                                                     uint64_t addr, uint32_t key,
                                                                     size_t length,
                                                                     struct rdmux_remote **out);

/* The rights and the state of an import. */
struct rdmux_remote_info {
    uint32_t size;
    uint32_t access; /* RDMUX_ACCESS_REMOTE_* that hold on the current path */
    uint64_t length;
    /* RDMUX_OK, RDMUX_IN_PROGRESS, or why the import cannot be used (RDMUX_DENIED after revoke). */
    uint32_t status;
    uint32_t mapped; /* 1: reads and writes are plain copies to and from mapped memory */
    uint64_t spare[6];
};
#define RDMUX_REMOTE_INFO_INIT RDMUX_INIT_OF(rdmux_remote_info)

/* Fills in *out, whose size is set. Threads: its cq. Errors: RDMUX_INVALID. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_remote_info(struct rdmux_remote *remote,
                                                               struct rdmux_remote_info *out);

/* Ends an import; requests already posted with it go on. NULL is allowed. Threads: its cq. */
RDMUX_API void rdmux_remote_close(struct rdmux_remote *remote);

/* -------------------------------------------------------------------------- endpoint attributes */

enum rdmux_role {
    RDMUX_ROLE_CONNECT = 1,
    RDMUX_ROLE_ACCEPT = 2,
};

enum {
    RDMUX_PREFER_DEFAULT = 0, /* latency */
    RDMUX_PREFER_LATENCY = 1,
    RDMUX_PREFER_BANDWIDTH = 2,
};

/* rdmux_ep_attr.flags */
enum {
    /* max_send is a wish: if a path takes no messages as long as that, this side may send as long
     * ones as the path takes, and the path is not left out for it. rdmux_ep_info.max_send has the
     * granted number. With failover, what the first path grants holds for the endpoint's life: it
     * does not move to a path that takes less. */
    RDMUX_EP_SEND_WISH = 1 << 0,
};

/*
 * Options of an endpoint. Zero in a field means its default.
 *
 * flags           RDMUX_EP_*.
 * send_depth      Requests that may be posted and not yet completed, 1 to 65,536; default 64. A
 *                 completed request counts until its entry was polled, an unsignaled one until it
 *                 is done.
 * recv_depth      The same for receives; default 64. Ignored with srq.
 * max_send_sge    Entries of a scatter/gather list, 1 to 16; default 4. Lists of more entries than
 *                 the path's max_sge are copied into one buffer.
 * max_recv_sge    The same for receives.
 * max_inline      Bytes wished for RDMUX_INLINE; at least 64 and at most 1024 are granted. Default:
 *                 as many as the path takes by itself, 64 to 256. rdmux_ep_info has the granted
 *                 number.
 * max_send        Longest message this side may send; default 8 MiB. A direction allows the smaller
 *                 of the sender's max_send and the receiver's max_recv. A path that takes no
 *                 messages of that length is left out, unless RDMUX_EP_SEND_WISH is set.
 * max_recv        Longest message this side will receive; default 8 MiB.
 * require         RDMUX_CAP_* the path must have, natively or emulated.
 * require_native  RDMUX_CAP_* the path must have natively.
 * paths           Filter, as in rdmux_fabric_attr. NULL = "auto".
 * local           Local address ("192.0.2.1") or device ("mlx5_0", "eth0") that paths must use.
 *                 NULL = any. One that this machine does not have is RDMUX_INVALID. An address
 *                 selects the RDMA devices that have it (`rdmux info` lists their addresses). It
 *                 also binds the sockets of the control channel and of the tcp path. A network
 *                 device ("eth0") does not: the routing table chooses their address.
 * prefer, typical_size   Ranking: expected message size in bytes; default 4096 (1 MiB with
 *                        RDMUX_PREFER_BANDWIDTH).
 * liveness_ms     A peer that was silent for this time counts as gone; 100 to RDMUX_NEVER; default
 *                 10,000. The smaller of both sides counts. With RDMUX_NEVER only the kernel
 *                 reports that a peer is gone.
 * setup_timeout_ms  Limit of a set-up with timeout 0; default 10,000.
 * path_timeout_ms   Limit of the attempt at one path, before the next one; default 2,000.
 * failover        RDMUX_FAILOVER_ON: if the path fails, the endpoint goes on over another one. It
 *                 is in force if both sides ask for it (rdmux_ep_info.failover). The price: a send
 *                 or write completes only when the peer's library is known to have it. The listener
 *                 has to stay open. A peer's name may have several addresses: tcp uses another one
 *                 when one does not answer. A silent peer counts as gone after twice the liveness
 *                 time. With rdma:// and adopted sockets: RDMUX_UNSUPPORTED.
 * failover_attempts, failover_time_ms   Limits of one move together with the moves that follow it
 *                 within a second. Attempts: default 64; the limit of the side that accepted
 *                 counts. Time: default 30,000, RDMUX_NEVER = no limit. Beyond a limit the endpoint
 *                 ends with RDMUX_PEER_GONE. While there are other paths, an attempt has 200 ms in
 *                 the first round, and twice as long in each further one.
 * failback        1: the endpoint returns to the better path that it lost, once that path's device
 *                 works on both sides and failback_hold_ms have passed since the path failed. That
 *                 time grows with each return that fails. It is enough if one side asks. A return
 *                 leaves no request in doubt if all requests that cannot be repeated end within
 *                 100 ms; new requests wait until then. Needs failover.
 * failback_hold_ms   The hold-down time, default 10,000. A path that failed three times within it
 *                 is tried only when no other works.
 * srq             The endpoint takes its receives from this SRQ. Both have the same cq.
 * dscp            1 to 63, default 26, RDMUX_OFF = 0. ecn: 1 = ECT(1), 2 = ECT(0), default 2,
 *                 RDMUX_OFF = not ECT.
 * service_level   1 to 15, default 0.
 * data_sockets    TCP path: sockets that share the data, 1 to 16; default 1. The smaller of both
 *                 sides counts.
 * private_data    private_length bytes for the peer, at most RDMUX_PRIVATE_DATA_MAX; copied.
 * peer            rdmux_accept() only: the id of one connection from rdmux_listener_next(); 0 = any
 *                 connection that no call has taken.
 * user            Initial value for rdmux_ep_user().
 */
struct rdmux_ep_attr {
    uint32_t size;
    uint32_t flags; /* RDMUX_EP_* */
    uint32_t send_depth;
    uint32_t recv_depth;
    uint32_t max_send_sge;
    uint32_t max_recv_sge;
    uint32_t max_inline;
    uint32_t prefer;
    uint64_t max_send;
    uint64_t max_recv;
    uint64_t require;
    uint64_t require_native;
    const char *paths;
    const char *local;
    uint64_t typical_size;
    uint32_t liveness_ms;
    uint32_t setup_timeout_ms;
    uint32_t path_timeout_ms;
    uint32_t failover;
    uint32_t failover_attempts;
    uint32_t failover_time_ms;
    uint32_t failback;
    uint32_t failback_hold_ms;
    struct rdmux_srq *srq;
    uint32_t dscp;
    uint32_t ecn;
    uint32_t service_level;
    uint32_t data_sockets;
    const void *private_data;
    size_t private_length;
    uint64_t peer;
    void *user;
    /*
     * 1: if there is a choice, rdmux measures the paths and ranks them by the measured figures. It
     * sets each path up, proves it, writes over it for a part of 50 ms, and closes it. It is enough
     * if one side asks. The accepting fabric keeps the figures of a pair of devices to a host for
     * 300 s, and measures no pair again meanwhile. It neither measures nor prefers software RDMA
     * devices unless a filter names them. 0: rdmux ranks paths by the figures of the devices and by
     * constants.
     */
    uint32_t probe;
    uint32_t spare0;
    uint64_t spare[16];
};
#define RDMUX_EP_ATTR_INIT RDMUX_INIT_OF(rdmux_ep_attr)

enum {
    RDMUX_FAILOVER_OFF = 0,
    RDMUX_FAILOVER_ON = 1,
};

/* ----------------------------------------------------------------------------------- connecting */

/*
 * Options of a listener. paths is a filter as in rdmux_ep_attr. A connection has introduced itself
 * once it has sent HELLO and OFFER, and has authenticated if the fabric asks for it. If the library
 * drops it after that, the connector gets RDMUX_REFUSED with the reason RDMUX_REJECT_BUSY.
 * backlog           Connections that the kernel keeps until the library takes them; default 1024.
 * max_pending       Connections that the library keeps and no rdmux_accept() has taken; default
 *                   4096. Beyond, the library drops one of the address or identity that holds the
 *                   most: the oldest that has not introduced itself, or else the one that waits
 *                   longest.
 * hello_timeout_ms  Limit of the time until a connection has introduced itself; default 5,000.
 * max_per_address   Connections of one address (IPv6: of one /64) that have not introduced
 *                   themselves; default a quarter of max_pending, at least 256. Beyond, the library
 *                   drops the oldest of them.
 * max_waiting_per_address  Connections of one address, or of one identity where peers authenticate,
 *                   that have introduced themselves and that no rdmux_accept() has taken; default
 *                   half of max_pending, at least 256. Beyond, the library drops the one of them
 *                   that waits longest.
 * accept_timeout_ms How long such a connection waits. 0: forever, but 10,000 if its address or
 *                   identity has more than half of max_waiting_per_address. A connection that ends
 *                   before rdmux_accept() has returned it waits as long from then on; 0: forever.
 * max_setups        Connections of any peer that rdmux_accept() negotiates at a time for a cq, at
 *                   most half of them of one address or identity; default 256. Each takes some
 *                   300 KiB until its path is proved. Further connections wait. A set-up whose peer
 *                   has been silent for half a second makes room for an address or identity that
 *                   has far fewer. Raise this number for many peers that are slow to set up. A
 *                   connection accepted by its id (rdmux_ep_attr.peer) does not count.
 * The process's limit on descriptors (RLIMIT_NOFILE) bounds these numbers, too: the library keeps a
 * quarter of it, up to 1024, for peers that are set up.
 */
struct rdmux_listen_attr {
    uint32_t size;
    uint32_t flags; /* none defined yet */
    const char *paths;
    uint32_t backlog;
    uint32_t max_pending;
    uint32_t hello_timeout_ms;
    uint32_t max_per_address;
    uint32_t max_waiting_per_address;
    uint32_t accept_timeout_ms;
    uint32_t max_setups;
    uint32_t spare0;
    uint64_t spare[6];
};
#define RDMUX_LISTEN_ATTR_INIT RDMUX_INIT_OF(rdmux_listen_attr)

/*
 * Peers that are not rdmux. "rdma://HOST:PORT" in rdmux_listen() and rdmux_connect() stands for a
 * program that uses librdmacm by itself (rdma_cm(7), port space TCP, reliable connections). The
 * route leads over any RDMA device: InfiniBand, RoCE or iWARP. Such an endpoint has no control
 * channel, no headers of rdmux, no credits and no heartbeats: the rules of the device replace those
 * of rdmux. The chapter "Peers that are not rdmux" of docs/SEMANTICS.md says which of rdmux's rules
 * still hold.
 *
 *   Operations    Those that rdmux_ep_info.native names; all others are RDMUX_UNSUPPORTED.
 *                 RDMUX_PLACED needs a remote whose key may be read; messages cannot have it.
 *   Memory        rdmux_mr_raw(), rdmux_remote_import_raw(); tokens cannot be imported.
 *   Private data  rdma_cm's. A connector may send 56 bytes over InfiniBand and RoCE, 196 over
 *                 iWARP; an acceptor 196; a rejection has room for 148 (iWARP: 196). More is
 *                 RDMUX_INVALID. Received private data may be padded with zeros to the field's
 *                 size.
 *   Receives      On iWARP a message that finds no receive ends the connection. If the peer sends
 *                 first, accept it with timeout 0 and attr.peer: receives posted before the next
 *                 poll or wait are with the device before the peer may send.
 *   End           RDMUX_WC_DISCONNECTED has RDMUX_PEER_GONE, also when the peer ended in order:
 *                 rdma_cm reports the same for both. A shutdown of this side ends with RDMUX_OK.
 */

/*
 * Listens on a TCP address, over which peers negotiate all paths; with "rdma://", for peers that
 * are not rdmux.
 * address  "HOST:PORT", "HOST", ":PORT" or "[IPv6]:PORT". No host or "*" = all addresses; no port =
 *          7471; port 0 = the system picks one, see rdmux_listener_address(). The call resolves a
 *          name itself. With "rdma://" in front: see above.
 * Threads  Any. May sleep.
 * Errors   RDMUX_INVALID (address), RDMUX_IO (in use, not local; the text names it),
 *          RDMUX_NO_MEMORY, RDMUX_NO_PATH (rdma:// without RDMA libraries)
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_listen(struct rdmux_fabric *fabric,
                                                          const char *address,
                                                          const struct rdmux_listen_attr *attr,
                                                          struct rdmux_listener **out);

/* Stops listening, and drops the connections that no rdmux_accept() has taken. Endpoints live on.
 * NULL is allowed. Threads: the last call on it. */
RDMUX_API void rdmux_listener_close(struct rdmux_listener *listener);

/* Writes the listening address, numeric, IPv6 in brackets. size: room in bytes, at least
 * RDMUX_ADDRESS_MAX. Threads: any. Errors: RDMUX_INVALID. */
RDMUX_API enum rdmux_status rdmux_listener_address(struct rdmux_listener *listener,
                                                   char out[RDMUX_ADDRESS_MAX], size_t size);

/* Returns a descriptor that is readable while rdmux_listener_next() or rdmux_accept() has something
 * to return: a connection that was neither shown nor taken, or one that was taken and is proved.
 * rdmux_accept() returns the latter for the cq that took it. The descriptor belongs to the library;
 * -1 after fork. Threads: any. */
RDMUX_API int rdmux_listener_fd(struct rdmux_listener *listener);

/* A connection that waits to be accepted. */
struct rdmux_peer {
    uint32_t size;
    uint32_t private_length;
    /* For rdmux_ep_attr.peer and rdmux_reject(). Never 0, and never reused in the listener's
     * life. */
    uint64_t id;
    char address[RDMUX_ADDRESS_MAX];
    char identity[RDMUX_IDENTITY_MAX]; /* authenticated name, "" if none */
    uint8_t private_data[RDMUX_PRIVATE_DATA_MAX];
    uint32_t spare0;
    uint64_t spare[6];
};
#define RDMUX_PEER_INIT RDMUX_INIT_OF(rdmux_peer)

/*
 * Shows the oldest connection that was not shown or taken before. The program can accept it until
 * it was accepted or rejected, or has ended.
 * Threads  Any.
 * Errors   RDMUX_AGAIN (timeout 0), RDMUX_TIMED_OUT, RDMUX_INVALID
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_listener_next(struct rdmux_listener *listener,
                                                                 int timeout_ms,
                                                                 struct rdmux_peer *out);

/*
 * Takes connections for cq, negotiates them side by side, and returns the first whose path is
 * proved. It returns endpoints of this cq only. If a connection fails, the library drops it with a
 * log line and the call goes on waiting, unless attr.peer names the connection.
 *
 * Several cqs may accept from one listener. A call takes one connection, and further ones only
 * while no other call on the listener waits without one. A connection that this call took and did
 * not return stays with the cq: the cq's progress goes on with its set-up, and a later call for the
 * same cq returns it. Its attributes are those of the call that took it, except attr.user, which is
 * that of the call that returns it. So a program that accepts only once for a cq, or with
 * attributes that differ between calls, must name the connection: rdmux_listener_next(), attr.peer.
 *
 * The call also returns a connection that the connector saw connected and has ended since. Receives
 * take the messages that arrived before; RDMUX_WC_DISCONNECTED follows. If no message waits, posts
 * return the cause, mostly RDMUX_PEER_GONE.
 * attr.peer   An id: the call takes only this connection, and returns its failure. 0: any.
 * timeout_ms  0 with attr.peer: RDMUX_IN_PROGRESS, *out set, RDMUX_WC_CONNECTED follows. 0 without:
 *             RDMUX_AGAIN if no connection is proved.
 * Threads     Its cq.
 * Errors      RDMUX_TIMED_OUT, RDMUX_AGAIN, RDMUX_INVALID, RDMUX_NO_MEMORY (also: no room in the
 *             cq; the connection is not lost but waits for another call); with attr.peer also
 *             RDMUX_NO_PATH, RDMUX_PEER_GONE, …
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_accept(struct rdmux_listener *listener,
                                                          struct rdmux_cq *cq,
                                                          const struct rdmux_ep_attr *attr,
                                                          int timeout_ms, struct rdmux_ep **out);

/*
 * Rejects a connection. The peer's rdmux_connect() ends with RDMUX_REFUSED; rdmux_ep_info() or the
 * error text there show reason, a number of the application. The private data is there, too
 * (rdmux_ep_info.private_data), if the connector used timeout 0. On a listener of rdma:// the private
 * data is that of rdma_cm. Without private data a reason other than 0 travels there as 4 bytes,
 * big-endian, and a connector takes 4 bytes for a reason.
 * Threads  Any.
 * Errors   RDMUX_INVALID: no such connection, taken already, or too much private data
 */
RDMUX_API enum rdmux_status rdmux_reject(struct rdmux_listener *listener, uint64_t peer,
                                         uint32_t reason, const void *private_data, size_t length);

/*
 * Connects to a listener, negotiates and proves a path.
 * address     As for rdmux_listen(), with a host. The worker thread resolves a name, and rdmux
 *             tries all its addresses (with rdma:// until it finds the route to one).
 * timeout_ms  0: RDMUX_IN_PROGRESS, *out set. The program may post receives and imports at once;
 *             other posts give RDMUX_AGAIN. RDMUX_WC_CONNECTED follows. If its status is a failure,
 *             the program closes the endpoint.
 * Threads     Its cq.
 * Errors      RDMUX_REFUSED, RDMUX_NO_PATH, RDMUX_TIMED_OUT, RDMUX_VERSION, RDMUX_PROTOCOL,
 *             RDMUX_AUTH, RDMUX_PEER_GONE, RDMUX_IO, RDMUX_INVALID, RDMUX_NO_MEMORY,
 *             RDMUX_UNSUPPORTED
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_connect(struct rdmux_fabric *fabric,
                                                           struct rdmux_cq *cq, const char *address,
                                                           const struct rdmux_ep_attr *attr,
                                                           int timeout_ms, struct rdmux_ep **out);

/*
 * Negotiates in the same way over a connected stream socket (TCP or AF_UNIX) of the program. Both
 * sides call it, one in each role. It reads exact lengths, and never ahead. HELLO begins with the 8
 * bytes "RDMUX" 0x01 0x0d 0x0a, so a server may peek. RDMUX_ROLE_CONNECT with RDMUX_AUTH_CERT and
 * no rdmux_fabric_auth.peers is RDMUX_INVALID: any certificate of the authority would pass for the
 * peer's.
 * Ownership   From the call on the socket belongs to the library, which closes it whatever the
 *             outcome, but for two. RDMUX_INVALID: the socket is untouched. RDMUX_NO_PATH: both
 *             sides give the socket back to the program, with its flags and options restored.
 * timeout_ms, threads, errors   As rdmux_connect(). There is no address to dial again: if the
 *                               socket is lost, the endpoint ends.
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_adopt(struct rdmux_fabric *fabric,
                                                         struct rdmux_cq *cq, int socket,
                                                         enum rdmux_role role,
                                                         const struct rdmux_ep_attr *attr,
                                                         int timeout_ms, struct rdmux_ep **out);

/* ---------------------------------------------------------------------------------- explanation */

/* rdmux_candidate.sides */
enum {
    RDMUX_SIDE_HERE = 1 << 0, /* this side has the path */
    RDMUX_SIDE_PEER = 1 << 1, /* the peer has it */
};

/* One path that the negotiation considered. latency_ns and bandwidth are the figures with which
 * each side offers it, 0: none. They are constants of the provider, or the device's own. */
struct rdmux_candidate {
    uint32_t size;
    uint32_t reason;   /* enum rdmux_reason */
    uint32_t stage;    /* enum rdmux_stage: the last one reached */
    uint32_t security; /* enum rdmux_security */
    char provider[RDMUX_NAME_MAX];
    char device[RDMUX_NAME_MAX];      /* of this side */
    char peer_device[RDMUX_NAME_MAX]; /* the peer's */
    char text[RDMUX_TEXT_MAX];        /* the reason in words */
    char hint[RDMUX_TEXT_MAX];        /* what to do about it, "" if nothing */
    uint64_t cost_ns;                 /* latency + expected size / bandwidth; 0: not ranked */
    uint64_t native;                  /* RDMUX_CAP_* */
    uint64_t emulated;                /* RDMUX_CAP_* */
    uint32_t software;
    uint32_t rank;            /* 1 = tried first; 0 = not ranked */
    uint32_t measured;        /* 1: cost_ns was measured; 0: it follows from the figures below */
    uint32_t sides;           /* RDMUX_SIDE_*: who has the path, usable or not */
    uint32_t latency_ns;      /* this side's figure: half a round trip */
    uint32_t peer_latency_ns; /* the peer's figure */
    uint64_t bandwidth;       /* bytes per second, this side's figure */
    uint64_t peer_bandwidth;
    uint64_t spare[2];
};

/* Why an endpoint has its path. The caller owns it and frees it by rdmux_explanation_free(). It
 * never changes. */
struct rdmux_explanation {
    uint32_t size;
    uint32_t status; /* RDMUX_OK, RDMUX_IN_PROGRESS, or how negotiation failed */
    uint32_t chosen; /* index of the chosen candidate, UINT32_MAX = none */
    uint32_t candidate_count;
    const struct rdmux_candidate *const *candidates; /* by rank, the unranked last */
    const char *text;                                /* the result in one line */
    const char *peer_address;                        /* "" if not known */
    uint64_t spare[6];
};

/*
 * Negotiates with the listener at address as far as ranking, without connecting, and returns the
 * paths that rdmux_connect() would try.
 * attr        As for rdmux_connect(); srq, user and peer are ignored.
 * timeout_ms  0 is RDMUX_INVALID here: there is no object to return an event for.
 * Threads     Any. Sleeps.
 * Errors      As rdmux_connect(). RDMUX_NO_PATH also sets *out.
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_explain(struct rdmux_fabric *fabric,
                                                           const char *address,
                                                           const struct rdmux_ep_attr *attr,
                                                           int timeout_ms,
                                                           struct rdmux_explanation **out);

/* Explanation of an endpoint, also of one that failed to connect with timeout 0. Threads: its cq.
 * Errors: RDMUX_NO_MEMORY. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_ep_explanation(struct rdmux_ep *ep,
                                                                  struct rdmux_explanation **out);

/* The explanation of this thread's last rdmux_connect(), rdmux_adopt() or rdmux_accept() that
 * returned RDMUX_NO_PATH. Threads: any. Errors: RDMUX_AGAIN, there was none. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_last_explanation(struct rdmux_explanation **out);

/* The explanation as JSON: {"chosen":{…}|null,"candidates":[{…}…]}, where a candidate has
 * "provider", "device", "stage", "reason", "text", "hint" and more. The text lives as long as the
 * explanation. Threads: one at a time. Errors: RDMUX_NO_MEMORY. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_explanation_json(
    struct rdmux_explanation *explanation, const char **out);

/* Frees an explanation and its texts. NULL is allowed. Threads: the last call on it. */
RDMUX_API void rdmux_explanation_free(struct rdmux_explanation *explanation);

/* ------------------------------------------------------------------------------------- endpoint */

enum rdmux_ep_state {
    RDMUX_EP_CONNECTING = 1,
    RDMUX_EP_CONNECTED = 2,
    RDMUX_EP_MOVING = 3, /* failover tries the next path */
    RDMUX_EP_ENDED = 4,
};

/* The present state of an endpoint. */
struct rdmux_ep_info {
    uint32_t size;
    uint32_t state;    /* enum rdmux_ep_state */
    uint32_t status;   /* RDMUX_OK while it works or after an orderly end, else why it ended */
    uint32_t security; /* enum rdmux_security */
    char provider[RDMUX_NAME_MAX];
    char device[RDMUX_NAME_MAX];
    char local_address[RDMUX_ADDRESS_MAX];
    char peer_address[RDMUX_ADDRESS_MAX];
    char peer_identity[RDMUX_IDENTITY_MAX];
    char text[RDMUX_TEXT_MAX]; /* cause of status */
    uint64_t native;           /* RDMUX_CAP_* */
    uint64_t emulated;         /* RDMUX_CAP_* */
    uint64_t max_send;         /* granted: longest message this side may send */
    uint64_t max_recv;         /* granted: longest message that may arrive */
    uint32_t send_depth;
    uint32_t recv_depth;
    uint32_t max_send_sge;
    uint32_t max_recv_sge;
    uint32_t max_inline;
    uint32_t liveness_ms; /* in force */
    uint32_t epoch;       /* 1 for the first path, one more for each move */
    uint32_t data_sockets;
    uint32_t private_length; /* of the peer's private data, or of that of its rejection */
    /* 0: the peer runs without service thread: its progress depends on its calls. */
    uint32_t peer_has_service;
    uint8_t private_data[RDMUX_PRIVATE_DATA_MAX];
    uint32_t reject_reason; /* the number given to rdmux_reject(), or RDMUX_REJECT_BUSY */
    uint64_t spare[8];
    uint32_t failover; /* 1: in force, as both sides ask for it */
    /* After a move: why the endpoint left the previous path, and that path. text has the words. */
    uint32_t previous_status;
    char previous_provider[RDMUX_NAME_MAX];
    char previous_device[RDMUX_NAME_MAX];
};
#define RDMUX_EP_INFO_INIT RDMUX_INIT_OF(rdmux_ep_info)

/* Fills in *out, whose size is set. Threads: its cq. Errors: RDMUX_INVALID. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_ep_info(struct rdmux_ep *ep,
                                                           struct rdmux_ep_info *out);

/* rdmux_ep_stats.counted: what the present path counts. */
enum {
    RDMUX_COUNTED_RETRANSMISSIONS = 1 << 0,
    RDMUX_COUNTED_ECN_MARKS = 1 << 1,
    RDMUX_COUNTED_CREDITS = 1 << 2,
};

/* Counts since the endpoint was created. A count costs the data path one addition. */
struct rdmux_ep_stats {
    uint32_t size;
    uint32_t spare0;
    uint64_t sends;    /* requests accepted; also writes, reads, atomics */
    uint64_t receives; /* receives completed */
    uint64_t writes;
    uint64_t reads;
    uint64_t atomics;
    uint64_t bytes_sent;      /* payload of sends and writes accepted */
    uint64_t bytes_received;  /* payload of receives and reads completed */
    uint64_t posts;           /* calls into the provider: one doorbell each */
    uint64_t held;            /* requests that had to wait before the provider took them */
    uint64_t again;           /* posts refused because a queue was full */
    uint64_t service_slices;  /* turns of the service thread on this endpoint's cq */
    uint64_t moves;           /* failovers */
    uint64_t system_calls;    /* made by the provider for this endpoint, where it counts them */
    uint64_t retransmissions; /* segments sent again (tcp), over all paths so far */
    uint64_t ecn_marks;       /* segments that arrived at the peer with a congestion mark (tcp) */
    uint64_t credits;         /* messages that may be sent now without waiting for a receive */
    uint32_t counted;         /* RDMUX_COUNTED_*: which of these three the present path counts */
    uint32_t spare1;
    uint64_t spare[4];
};
#define RDMUX_EP_STATS_INIT RDMUX_INIT_OF(rdmux_ep_stats)

/* Fills in *out, whose size is set. Threads: its cq. Errors: RDMUX_INVALID. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_ep_stats(struct rdmux_ep *ep,
                                                            struct rdmux_ep_stats *out);

/* Set and return a pointer of the program that the endpoint keeps. rdmux_ep_user() is also valid
 * between rdmux_ep_close() and the next poll or wait on the cq. Threads: its cq. Errors:
 * RDMUX_INVALID. */
RDMUX_API enum rdmux_status rdmux_ep_set_user(struct rdmux_ep *ep, void *user);
RDMUX_API void *rdmux_ep_user(struct rdmux_ep *ep);

/*
 * Moves the endpoint to another cq of its fabric, with everything it has: requests under way,
 * posted receives, imports, and entries that were not polled yet. The endpoint no longer belongs to
 * its present cq when the call returns. Its next entry comes on `to` and is RDMUX_WC_MOVED; from
 * then on the owner of `to` has it. Until then no thread may use the endpoint or its imports. No
 * entry is lost, and none comes twice. The peer notices nothing. `to` may be the present cq; it
 * gets RDMUX_WC_MOVED as well.
 * An endpoint that has ended moves with the entries that it still has. If `to` lacks memory or
 * descriptors for the endpoint, it ends there with RDMUX_NO_MEMORY, behind RDMUX_WC_MOVED.
 * ib, roce and iwarp: queue pairs keep the completion queue that they were made with. With failover
 * in force (rdmux_ep_info.failover) the endpoint first leaves its path, as for a move to a better
 * one, while its present cq makes progress: nothing becomes RDMUX_OUTCOME_UNKNOWN. The path is
 * opened again on `to`, and RDMUX_WC_PATH_CHANGED with RDMUX_OK follows on both sides. This takes
 * some round trips, and as long as an atomic or a request with RDMUX_NO_REPLAY is under way; the
 * present cq has the endpoint until then (rdmux_cq_destroy() is RDMUX_INVALID).
 * to       The program must not destroy it before the call returns, and cannot before
 *          RDMUX_WC_MOVED. Room for the endpoint's entries is reserved there (rdmux_cq_attr.depth)
 *          and released at the present cq.
 * Threads  That of its present cq. Another thread may be inside a call on `to`, also asleep in one:
 *          it is woken.
 * Errors   RDMUX_INVALID      `to` is a cq of another fabric; the endpoint uses an SRQ, has a
 *                             rdma:// address, is closed, or is on its way to a cq already
 *          RDMUX_AGAIN        It is in set-up (move it after RDMUX_WC_CONNECTED), at its end (after
 *                             RDMUX_WC_DISCONNECTED), or failover works on its path or control
 *                             channel (try again later)
 *          RDMUX_NO_MEMORY    `to` has no room for its entries, or memory is short
 *          RDMUX_UNSUPPORTED  Its path cannot change its cq, and failover is not in force: ib, roce
 *                             and iwarp. Ask for failover on both sides (rdmux_ep_attr.failover), or
 *                             take the connection on the right cq, see rdmux_listener_next().
 *          On an error nothing has changed.
 */
RDMUX_API enum rdmux_status rdmux_ep_move(struct rdmux_ep *ep, struct rdmux_cq *to);

/*
 * Ends the connection in order: all requests posted before are placed at the peer, then it ends on
 * both sides. The program still has to call rdmux_ep_close().
 * timeout_ms  0: RDMUX_IN_PROGRESS, then RDMUX_WC_DISCONNECTED, at the latest after the liveness
 *             time. After a call that waited and returned RDMUX_OK there is no event.
 *             RDMUX_TIMED_OUT: the endpoint has ended all the same, with RDMUX_PEER_GONE.
 * Threads     Its cq.
 * Errors      RDMUX_INVALID (not connected), RDMUX_TIMED_OUT, or why the endpoint ended meanwhile
 */
RDMUX_API enum rdmux_status rdmux_ep_shutdown(struct rdmux_ep *ep, int timeout_ms);

/*
 * Ends the endpoint at once, closes its remotes and frees it. No completion names it afterwards,
 * and the buffers of its requests are free. Until the next poll or wait on its cq rdmux_ep_user()
 * still works; every other call on it is RDMUX_INVALID. Takes at most 10 ms and never waits for the
 * network. NULL is allowed. Always succeeds otherwise.
 * Threads  Its cq; also while the program goes through the completions of one poll.
 */
RDMUX_API enum rdmux_status rdmux_ep_close(struct rdmux_ep *ep);

/*
 * Options of an SRQ.
 * depth         Receives, 1 to 65,536; default 1024.
 * max_sge       Entries of a list, 1 to 16; default 4.
 * device_share  Receives that each RDMA device may hold while no message fills them, 1 to depth:
 *               a device keeps a receive until a message fills it. Default: half of depth for the
 *               first device whose endpoints use the SRQ, a quarter for the second, and so on, at
 *               least 1.
 * limit         RDMUX_WC_SRQ_LIMIT comes once when fewer receives than this are left, at most
 *               depth. Left are receives that no message has taken yet, those at devices included.
 *               The event can come again after a post that brings them to the limit or above.
 *               Default 0: no event. The event is one more entry of the cq's depth.
 */
struct rdmux_srq_attr {
    uint32_t size;
    uint32_t depth;
    uint32_t max_sge;
    uint32_t device_share;
    uint32_t limit;
    uint32_t spare1;
    uint64_t spare[5];
};
#define RDMUX_SRQ_ATTR_INIT RDMUX_INIT_OF(rdmux_srq_attr)

/* Creates an SRQ for endpoints of cq. attr NULL: all defaults. Threads: its cq. Errors:
 * RDMUX_INVALID, RDMUX_NO_MEMORY (also: no room in the cq). */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_srq_create(struct rdmux_fabric *fabric,
                                                              struct rdmux_cq *cq,
                                                              const struct rdmux_srq_attr *attr,
                                                              struct rdmux_srq **out);

/*
 * Pauses an endpoint of an SRQ, or lets it continue: while it is paused, it is granted no further
 * receives, and messages of its peer wait as if no receive were posted. Receives that were promised
 * to the peer before, at most 64, may still be filled. The pause outlasts moves to other paths; on
 * a path that cannot pause it has no effect, which the log reports.
 * on       1: pause. 0: continue at once.
 * Threads  Its cq.
 * Errors   RDMUX_INVALID      the endpoint has no SRQ, or was closed
 *          RDMUX_AGAIN        not connected yet
 *          RDMUX_UNSUPPORTED  over ib, roce and rdma:// the device matches messages with receives
 *                             and cannot make those of one endpoint wait
 *          RDMUX_PEER_GONE, … The endpoint has ended, with this cause
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_ep_pause(struct rdmux_ep *ep, int on);

/* Destroys an SRQ; drops the receives in it without completion. NULL is allowed. Errors:
 * RDMUX_INVALID: endpoints use it. Threads: the last call on it. */
RDMUX_API enum rdmux_status rdmux_srq_destroy(struct rdmux_srq *srq);

/* ------------------------------------------------------------------------------------ data path */

/*
 * All of this section: [data path]. Threads: its cq.
 *
 * buf, length, mr   Local bytes. mr is a region that contains them, or NULL: then they may be
 *                   anywhere (a large buffer costs a registration on RDMA paths, unless
 *                   RDMUX_FABRIC_FIND_REGIONS finds a region). The bytes belong to the library
 *                   until the completion, or with RDMUX_INLINE until the call returns. length 0 is
 *                   legal for sends, writes and reads (buf may then be NULL).
 * context           The completion returns this pointer.
 * remote, offset    The place in the peer's region; offset 0 is its first byte.
 *
 * Errors of every post:
 *   RDMUX_AGAIN         The queue is full or the endpoint is not connected yet; nothing was queued.
 *                       For a full send queue RDMUX_WC_WRITABLE follows once.
 *                       The call made progress, so a program may post again until it is taken.
 *   RDMUX_INVALID       An argument; the text names it. Also an atomic that is not of 8 bytes or
 *                       not aligned to 8 bytes, or an endpoint that was closed
 *   RDMUX_OUT_OF_RANGE  Beyond the peer's region, or beyond the local region
 *   RDMUX_DENIED        The token lacks the right or was revoked
 *   RDMUX_LENGTH        A send beyond rdmux_ep_info.max_send, or RDMUX_INLINE beyond max_inline
 *   RDMUX_UNSUPPORTED   The path cannot do this operation on this region
 *   RDMUX_PEER_GONE, …  The endpoint has ended, with this cause
 */

/* Sends a message into one receive of the peer. If the peer has posted none, the message waits for
 * one, and does not fail. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_send(struct rdmux_ep *ep, const void *buf,
                                                        size_t length, struct rdmux_mr *mr,
                                                        void *context, uint32_t flags);
/* The same, with 32 bits (imm) for the completion of the receive. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_send_imm(struct rdmux_ep *ep, const void *buf,
                                                            size_t length, struct rdmux_mr *mr,
                                                            uint32_t imm, void *context,
                                                            uint32_t flags);
/* Offers a buffer for one message. On an endpoint with an SRQ: RDMUX_INVALID. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_recv(struct rdmux_ep *ep, void *buf,
                                                        size_t length, struct rdmux_mr *mr,
                                                        void *context);
/* Offers a buffer for one message to all endpoints of the SRQ: the first one that gets a message
 * takes it. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_srq_recv(struct rdmux_srq *srq, void *buf,
                                                            size_t length, struct rdmux_mr *mr,
                                                            void *context);
/* Writes into the peer's region. length 0 with remote NULL and RDMUX_PLACED is a flush: it
 * completes when all earlier writes and sends are placed. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_write(struct rdmux_ep *ep, const void *buf,
                                                         size_t length, struct rdmux_mr *mr,
                                                         struct rdmux_remote *remote,
                                                         uint64_t offset, void *context,
                                                         uint32_t flags);
/* The same, then completes one receive of the peer with RDMUX_WC_RECV_WRITE_IMM, after the bytes
 * are visible. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_write_imm(struct rdmux_ep *ep, const void *buf,
                                                             size_t length, struct rdmux_mr *mr,
                                                             struct rdmux_remote *remote,
                                                             uint64_t offset, uint32_t imm,
                                                             void *context, uint32_t flags);
/* Reads from the peer's region. RDMUX_INLINE is RDMUX_INVALID here and for atomics. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_read(struct rdmux_ep *ep, void *buf,
                                                        size_t length, struct rdmux_mr *mr,
                                                        struct rdmux_remote *remote,
                                                        uint64_t offset, void *context,
                                                        uint32_t flags);
/* Adds to an integer of 8 bytes in the peer's region, in host byte order. *result has the value
 * before once the request completes. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_fetch_add(struct rdmux_ep *ep, uint64_t *result,
                                                             struct rdmux_mr *mr,
                                                             struct rdmux_remote *remote,
                                                             uint64_t offset, uint64_t add,
                                                             void *context, uint32_t flags);
/* Stores desired if the 8 bytes equal expected. *result has the value before once the request
 * completes. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_compare_swap(
    struct rdmux_ep *ep, uint64_t *result, struct rdmux_mr *mr, struct rdmux_remote *remote,
    uint64_t offset, uint64_t expected, uint64_t desired, void *context, uint32_t flags);

/* One piece of local memory. 24 bytes. */
struct rdmux_sge {
    void *addr;
    size_t length;
    struct rdmux_mr *mr; /* or NULL */
};

/* One request of a batch. 128 bytes forever; spare must be zero. */
struct rdmux_wr {
    uint32_t op;    /* RDMUX_OP_* */
    uint32_t flags; /* RDMUX_INLINE … */
    void *context;
    const struct rdmux_sge *sges; /* the library copies the list; NULL if sge_count is 0 */
    uint32_t sge_count;
    uint32_t imm;
    struct rdmux_remote *remote;
    uint64_t offset;
    uint64_t operand;  /* fetch_add: the addend; compare_swap: desired */
    uint64_t expected; /* compare_swap */
    uint64_t spare[8];
};

/*
 * Posts count requests with one doorbell, in order. *posted (may be NULL) is the number of requests
 * queued, and is written whatever the status. The status is that of wrs[*posted], the first request
 * that was not queued, or RDMUX_OK.
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_post(struct rdmux_ep *ep,
                                                        const struct rdmux_wr *wrs, size_t count,
                                                        size_t *posted);
/* The same for receives; op is RDMUX_OP_RECV, flags 0. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_post_recv(struct rdmux_ep *ep,
                                                             const struct rdmux_wr *wrs,
                                                             size_t count, size_t *posted);
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_srq_post_recv(struct rdmux_srq *srq,
                                                                 const struct rdmux_wr *wrs,
                                                                 size_t count, size_t *posted);

/* ------------------------------------------------------------------------------------- bindings */

/*
 * The RDMUX_*_INIT macros as functions, for programs in other languages: docs/interface.json has
 * the structs' layouts. Each sets size to the smaller of `size` and the struct's size in this
 * library, and all other bytes of the caller's `size` to 0.
 * out      size bytes of the caller. NULL, or fewer than 4 bytes: nothing is written.
 * Threads  Any.
 */
RDMUX_API void rdmux_fabric_auth_init(struct rdmux_fabric_auth *out, size_t size);
RDMUX_API void rdmux_fabric_attr_init(struct rdmux_fabric_attr *out, size_t size);
RDMUX_API void rdmux_path_info_init(struct rdmux_path_info *out, size_t size);
RDMUX_API void rdmux_cq_attr_init(struct rdmux_cq_attr *out, size_t size);
RDMUX_API void rdmux_mr_attr_init(struct rdmux_mr_attr *out, size_t size);
RDMUX_API void rdmux_remote_info_init(struct rdmux_remote_info *out, size_t size);
RDMUX_API void rdmux_ep_attr_init(struct rdmux_ep_attr *out, size_t size);
RDMUX_API void rdmux_listen_attr_init(struct rdmux_listen_attr *out, size_t size);
RDMUX_API void rdmux_peer_init(struct rdmux_peer *out, size_t size);
RDMUX_API void rdmux_ep_info_init(struct rdmux_ep_info *out, size_t size);
RDMUX_API void rdmux_ep_stats_init(struct rdmux_ep_stats *out, size_t size);
RDMUX_API void rdmux_cq_stats_init(struct rdmux_cq_stats *out, size_t size);
RDMUX_API void rdmux_fabric_stats_init(struct rdmux_fabric_stats *out, size_t size);
RDMUX_API void rdmux_srq_attr_init(struct rdmux_srq_attr *out, size_t size);

#ifdef __cplusplus
}

static_assert(sizeof(struct rdmux_wc) == 64, "struct rdmux_wc is 64 bytes forever");
static_assert(sizeof(struct rdmux_wr) == 128, "struct rdmux_wr is 128 bytes forever");
static_assert(sizeof(struct rdmux_sge) == 24, "struct rdmux_sge is 24 bytes");
#else
_Static_assert(sizeof(struct rdmux_wc) == 64, "struct rdmux_wc is 64 bytes forever");
_Static_assert(sizeof(struct rdmux_wr) == 128, "struct rdmux_wr is 128 bytes forever");
_Static_assert(sizeof(struct rdmux_sge) == 24, "struct rdmux_sge is 24 bytes");
#endif

#endif
