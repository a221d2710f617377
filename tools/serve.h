/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Internals of `rdmux serve`: serve.c has the event loop and a client's life cycle, serve_room.c
 * selects the client to evict when the server is full, serve_perf.c with serve_perf_source.c,
 * serve_copy.c and serve_conformance.c serve the requests. All of it runs in one thread. */
#ifndef RDMUX_TOOL_SERVE_H
#define RDMUX_TOOL_SERVE_H

#include "perf_memory.h"
#include "protocol.h"
#include "receiver.h"
#include "receiver_park.h"
#include "receiver_sweep.h"
#include "text.h"
#include "tool.h"

#include <sys/types.h>

enum {
    SERVE_CONTROL_SENDS = 4, /* maximum control messages to one client during its life */
    SERVE_REPOST_BATCH = 64, /* maximum receives reposted together */
    SERVE_ORIGIN_MAX = RDMUX_IDENTITY_MAX + 2,
    SERVE_SESSIONS_MAX = 8, /* maximum processes that run conformance cases */
    SERVE_ANSWERS = 4,      /* maximum messages of answers to a copy under way */
};

/* Life cycle of a client. Only serve.c writes the state; the other files use serve_run(),
 * serve_refuse() and the like. */
enum served_state {
    SERVED_CONNECTING, /* accepted; the path is being negotiated */
    SERVED_ASKED,      /* connected; waits for the request */
    SERVED_RUNNING,    /* its request is being served */
    SERVED_ENDING,     /* an error was sent; the orderly end is in progress */
    SERVED_CLOSED,     /* the endpoint is gone; freed after the current batch of completions */
};

enum served_work {
    WORK_NONE,
    WORK_PERF,
    WORK_COPY,
};

/* What the server posts in a test whose direction is not forward. Operations are numbered from 0;
 * each number that is a multiple of the interval ends with a signaled one. */
struct served_source {
    bool started;         /* PERF_START came */
    bool stopping;        /* PERF_END came: no more than up to the next multiple of the interval */
    uint32_t batch;       /* posted together */
    uint32_t interval;    /* power of two */
    uint32_t inline_flag; /* RDMUX_INLINE if the size allows it */
    uint32_t slot;        /* slot of the next operation */
    uint64_t posted;
    uint64_t completed;
    uint64_t start_ns;
    uint64_t first;     /* operations completed during the warm-up */
    uint64_t first_ns;  /* end of the warm-up; 0: not over */
    uint64_t notice_ns; /* time of the last notice */
    struct rdmux_sge sges[SERVE_REPOST_BATCH];
    struct rdmux_wr wrs[SERVE_REPOST_BATCH];
};

/* A client's perf test. */
struct served_perf {
    struct proto_perf_request request;
    struct perf_layout layout;
    struct perf_memory memory;
    struct rdmux_remote *remote; /* the client's region, for the answers of a write ping-pong */
    bool ready;                  /* PERF_READY was sent */
    uint64_t cpu_ns;             /* server's CPU time when PERF_READY was sent */
    uint64_t ready_ns;           /* time when PERF_READY was sent */
    uint64_t waited_ns;          /* timer_waited_ns() then */
    bool has_waited;
    struct proto_perf_end end;    /* as it came */
    struct served_source *source; /* NULL: the server posts none */
    uint64_t delivered;           /* messages received */
    uint64_t answered;            /* answers sent */
    bool answer_under_way;        /* a signaled answer is in flight, so its buffer is in use */
    uint64_t notices_owed;        /* unsent acknowledgements of verified writes: 0 or 1 */
    uint64_t wrong;               /* messages with wrong contents */
    uint32_t oldest_receive;      /* slot of the receive that the next message fills */
    uint32_t next_receive;        /* slot of the receive posted next */
    uint32_t receives_taken;      /* not reposted yet */
    uint32_t repost_batch;
    struct rdmux_sge sges[SERVE_REPOST_BATCH];
    struct rdmux_wr wrs[SERVE_REPOST_BATCH];
};

/* A client's copy. */
struct served_copy {
    struct receiver *receiver;
    struct rdmux_mr *mr;
    uint8_t *base;
    uint32_t next_receive; /* buffer that the next message fills */
    /* Lengths, by buffer, of the messages received and not yet fully processed. */
    uint32_t lengths[PROTO_COPY_RECEIVES];
    uint32_t oldest; /* buffer of the message being processed */
    uint32_t waiting;
    size_t taken; /* bytes of the oldest message processed so far */
    bool done;
    uint32_t version; /* of the copy */
    uint8_t answers[SERVE_ANSWERS][PROTO_CONTROL_MAX];
    uint32_t next_answer;
    uint32_t answers_under_way; /* sent, not yet completed */
    /* The client takes no answers, so its messages wait, and do not count in waiting_count. */
    bool stalled;
};

struct served {
    struct server *server;
    struct served *next;
    struct served *previous;
    uint64_t id;
    char address[RDMUX_ADDRESS_MAX];
    char origin[SERVE_ORIGIN_MAX]; /* group that shares the server's capacity, see serve_origin() */
    struct rdmux_ep *ep;
    enum served_state state;
    enum served_work work;
    bool spins;            /* its test asked the server to spin */
    bool one_sided;        /* the server sees no completions of its traffic */
    uint64_t active_ns;    /* time of the last traffic seen, to about 20 ms */
    uint64_t system_calls; /* its endpoint's count at the last check */
    uint64_t deadline_ns;  /* in states with a timeout; 0: none */
    uint64_t memory_reserved;
    uint8_t control_in[PROTO_CONTROL_MAX]; /* for the request only */
    uint8_t control_out[SERVE_CONTROL_SENDS][PROTO_CONTROL_MAX];
    unsigned control_out_used;
    struct served_perf *perf; /* WORK_PERF */
    struct served_copy *copy; /* WORK_COPY */
};

/* A process that runs conformance cases. */
struct served_session {
    pid_t pid; /* 0: unused */
    char origin[SERVE_ORIGIN_MAX];
};

struct server {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_listener *listener;
    int signal_fd;
    bool stop;
    const char *receive_path; /* NULL: copies are refused */
    int receive_directory;    /* -1: copies are refused */
    struct park *park;        /* unfinished files of copies */
    struct sweep *sweep;
    struct served *clients;
    struct served *closed; /* clients to be freed */
    unsigned client_count;
    unsigned clients_max;
    unsigned running_count;   /* clients in SERVED_RUNNING */
    unsigned spin_count;      /* running clients that asked for spinning */
    unsigned waiting_count;   /* copy messages that can be processed further */
    uint64_t idle_ns;         /* idle timeout of a session */
    uint64_t now_ns;          /* time of the last look */
    uint64_t spin_until_ns;   /* for clients that asked for spinning */
    unsigned sleeping_looks;  /* looks since the last poll without sleep */
    uint64_t next_look_ns;    /* while a client is served */
    uint64_t memory_reserved; /* sum over all clients */
    struct served_session sessions[SERVE_SESSIONS_MAX];
    struct log_limit log;
    uint64_t next_id;
};

/* Prints a line about a client on standard error if the log's limit allows one more. Characters
 * from a peer that could harm a terminal are replaced. */
void serve_log(struct served *client, const char *format, ...) TOOL_PRINTF(2, 3);

/* Reserves bytes of memory for a client within the limits; idle clients may be evicted for it.
 * Returns false if the limit is exceeded and the client was refused. */
bool serve_reserve(struct served *client, uint64_t bytes);

/* Closes a client and frees its resources at once. No caller may still use the client. */
void serve_evict(struct served *client, const char *why);

/* serve_room.c: writes the peer-quota name of a client: the authenticated identity, else the host's
 * address, for IPv6 its /64. */
void serve_origin(const char *address, const char *identity, char out[SERVE_ORIGIN_MAX]);

/* Chooses the client to evict so that a client of this origin, or if memory is not 0 that many
 * bytes for it, finds room. Candidates are the clients of the origin that holds the most. Idle
 * clients go first, the longest idle first. A busy client is evicted only for an origin that still
 * holds less with the addition. except is skipped. Returns NULL if no client qualifies. */
struct served *serve_choose(const struct server *server, const char *origin, uint64_t memory,
                            const struct served *except);

/* Marks the request as accepted and being served. */
void serve_run(struct served *client, enum served_work work, bool spins);

/* serve_send_control() sends the control message encoded into serve_control_buffer(). On failure it
 * ends the client. */
uint8_t *serve_control_buffer(struct served *client);
bool serve_send_control(struct served *client, size_t length);

/* Tells the client why it is not served, or no longer; logs it and ends the connection in order. */
void serve_refuse(struct served *client, const char *format, ...) TOOL_PRINTF(2, 3);

/* Ends the client at once after a failed library call. */
void serve_drop(struct served *client, const char *what, enum rdmux_status status);

/* Ends the connection in order after the request was answered and nothing more follows. */
void serve_end(struct served *client);

/* serve_conformance.c: starts a process for the client's cases; reaps processes that have ended. */
void serve_conformance_begin(struct served *client);
void serve_conformance_reap(struct server *server);

/* serve_perf.c: starts a decoded request; handles completions and events of a running test; frees
 * WORK_PERF. */
void serve_perf_begin(struct served *client, const struct proto_perf_request *request);
void serve_perf_completion(struct served *client, const struct rdmux_wc *wc);
void serve_perf_free(struct served *client);

/* serve_perf_source.c: prepares and starts the server's operations; posts what the window has room
 * for; takes a completion of them. */
bool serve_source_open(struct served *client);
void serve_source_start(struct served *client, const struct proto_perf_start *start);
void serve_source_pump(struct served *client);
void serve_source_completed(struct served *client);
bool serve_source_drained(const struct served *client); /* PERF_END came, and all are done */

/* serve_copy.c: the same for copies. */
void serve_copy_begin(struct served *client, const struct proto_copy_request *request);
void serve_copy_completion(struct served *client, const struct rdmux_wc *wc);
void serve_copy_step(struct served *client); /* processes more of the waiting messages */
/* The connection has ended: processes what had arrived before, so that the server keeps as much of
 * an unfinished file as the client may have had under way. */
void serve_copy_take_rest(struct served *client);
void serve_copy_forget(struct served *client); /* drops the waiting messages */
void serve_copy_free(struct served *client);

#endif
