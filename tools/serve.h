/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Inside `rdmux serve`: serve.c is the event loop and the life of a client, serve_room.c says which
 * client goes where there is no room, serve_perf.c, serve_copy.c and serve_conformance.c are what a
 * client may ask for. All of it runs in one thread. */
#ifndef RDMUX_TOOL_SERVE_H
#define RDMUX_TOOL_SERVE_H

#include "perf_memory.h"
#include "protocol.h"
#include "receiver.h"
#include "text.h"
#include "tool.h"

#include <sys/types.h>

enum {
    SERVE_CONTROL_SENDS = 4, /* control messages to one client in its life, at most */
    SERVE_REPOST_BATCH = 64, /* receives given back together, at most */
    SERVE_ORIGIN_MAX = RDMUX_IDENTITY_MAX + 2,
    SERVE_SESSIONS_MAX = 8, /* processes that run conformance cases */
};

/* Life of a client. Only serve.c writes the state, serve_perf.c and serve_copy.c through
 * serve_run() and serve_refuse(). */
enum served_state {
    SERVED_CONNECTING, /* accepted; the path is being negotiated */
    SERVED_ASKED,      /* connected; its request is awaited */
    SERVED_RUNNING,    /* its request is being served */
    SERVED_ENDING,     /* an error was sent; the orderly end is under way */
    SERVED_CLOSED,     /* the endpoint is gone; freed once the batch of completions is through */
};

enum served_work {
    WORK_NONE,
    WORK_PERF,
    WORK_COPY,
};

/* A perf test of one client. */
struct served_perf {
    struct proto_perf_request request;
    struct perf_layout layout;
    struct perf_memory memory;
    struct rdmux_remote *remote; /* the client's region, for the answers of a write ping-pong */
    bool ready;                  /* PERF_READY was sent */
    uint64_t cpu_ns;             /* when it was sent */
    uint64_t delivered;          /* messages */
    uint64_t answered;           /* answers sent */
    bool answer_under_way;       /* a signaled answer is not complete, its buffer not free */
    uint64_t notices_owed;       /* acknowledgements of verified writes not sent yet: 0 or 1 */
    uint64_t wrong;              /* messages with wrong contents */
    uint32_t oldest_receive;     /* slot of the receive that the next message takes */
    uint32_t next_receive;       /* slot of the receive posted next */
    uint32_t receives_taken;     /* not given back yet */
    uint32_t repost_batch;
    struct rdmux_sge sges[SERVE_REPOST_BATCH];
    struct rdmux_wr wrs[SERVE_REPOST_BATCH];
};

/* A copy of one client. */
struct served_copy {
    struct receiver *receiver;
    struct rdmux_mr *mr;
    uint8_t *base;
    uint32_t next_receive; /* buffer that the next message takes */
    /* Messages that came and were not taken to their end: their lengths, by the buffer. */
    uint32_t lengths[PROTO_COPY_RECEIVES];
    uint32_t oldest; /* buffer of the one being taken */
    uint32_t waiting;
    size_t taken; /* bytes of the oldest */
    bool done;
};

struct served {
    struct server *server;
    struct served *next;
    struct served *previous;
    uint64_t id;
    char address[RDMUX_ADDRESS_MAX];
    char origin[SERVE_ORIGIN_MAX]; /* who shares the room with whom, see serve_origin() */
    struct rdmux_ep *ep;
    enum served_state state;
    enum served_work work;
    bool spins;            /* its test asked the server to spin */
    bool one_sided;        /* its traffic does not show here */
    uint64_t active_ns;    /* when traffic was last seen, to about 20 ms */
    uint64_t system_calls; /* of its endpoint, when last looked at */
    uint64_t deadline_ns;  /* in the states that may not last; 0 = none */
    uint64_t memory_reserved;
    uint8_t control_in[PROTO_CONTROL_MAX]; /* for the request only */
    uint8_t control_out[SERVE_CONTROL_SENDS][PROTO_CONTROL_MAX];
    unsigned control_out_used;
    struct served_perf *perf; /* WORK_PERF */
    struct served_copy *copy; /* WORK_COPY */
};

/* A process that runs conformance cases. */
struct served_session {
    pid_t pid; /* 0: none */
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
    struct served *clients;
    struct served *closed; /* to be freed */
    unsigned client_count;
    unsigned clients_max;
    unsigned running_count;   /* clients in SERVED_RUNNING */
    unsigned spin_count;      /* of these, how many asked to spin */
    unsigned waiting_count;   /* messages of copies that were not taken to their end */
    uint64_t idle_ns;         /* a session without traffic may last */
    uint64_t now_ns;          /* as of the last look */
    uint64_t spin_until_ns;   /* for those who asked for it */
    unsigned sleeping_looks;  /* looks since it last polled without sleep */
    uint64_t next_look_ns;    /* while somebody is served */
    uint64_t memory_reserved; /* for all clients */
    struct served_session sessions[SERVE_SESSIONS_MAX];
    struct log_limit log;
    uint64_t next_id;
};

/* Prints a line about a client on standard error, if the log's limit allows one more. What a peer
 * may have put into it does no harm to a terminal. */
void serve_log(struct served *client, const char *format, ...) TOOL_PRINTF(2, 3);

/* Counts bytes for a client against the limits; idle clients may have to go for it. False: too
 * much, the client was refused. */
bool serve_reserve(struct served *client, uint64_t bytes);

/* Closes a client and frees what it had at once. Nothing on the stack may be about it. */
void serve_evict(struct served *client, const char *why);

/* serve_room.c: the name of those who share the room with each other: the authenticated identity,
 * else the host's address, of IPv6 the /64. */
void serve_origin(const char *address, const char *identity, char out[SERVE_ORIGIN_MAX]);

/* Who goes so that one of this origin finds room for a client, or for bytes of memory if that is not
 * 0: one of the origin that holds the most of it; first those that are idle, the longest first. One
 * that is busy goes only for an origin that has less even then. except is left out. NULL: nobody. */
struct served *serve_choose(const struct server *server, const char *origin, uint64_t memory,
                            const struct served *except);

/* The request was accepted and is being served. */
void serve_run(struct served *client, enum served_work work, bool spins);

/* Sends the control message encoded into serve_control_buffer(). On failure the client is ended. */
uint8_t *serve_control_buffer(struct served *client);
bool serve_send_control(struct served *client, size_t length);

/* Tells the client why it is not served (any longer), logs it, and ends the connection in order. */
void serve_refuse(struct served *client, const char *format, ...) TOOL_PRINTF(2, 3);

/* For a library call that failed: ends the client at once. */
void serve_drop(struct served *client, const char *what, enum rdmux_status status);

/* The request was answered and nothing more is to come: ends the connection in order. */
void serve_end(struct served *client);

/* serve_conformance.c: starts a process for the client's cases; reaps those that have ended. */
void serve_conformance_begin(struct served *client);
void serve_conformance_reap(struct server *server);

/* serve_perf.c: a decoded request; completions and events of a running test; WORK_PERF's end. */
void serve_perf_begin(struct served *client, const struct proto_perf_request *request);
void serve_perf_completion(struct served *client, const struct rdmux_wc *wc);
void serve_perf_free(struct served *client);

/* serve_copy.c: likewise. */
void serve_copy_begin(struct served *client, const struct proto_copy_request *request);
void serve_copy_completion(struct served *client, const struct rdmux_wc *wc);
void serve_copy_step(struct served *client);   /* takes more of the messages that wait */
void serve_copy_forget(struct served *client); /* they are not taken any more */
void serve_copy_free(struct served *client);

#endif
