/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Options of a world and of a device, as SIM_VERBS and the test give them. */
#ifndef SIM_OPTIONS_H
#define SIM_OPTIONS_H

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sim_link { SIM_IB, SIM_ROCE, SIM_IWARP };

enum { SIM_SWAPPED_OPERANDS = 2 }; /* sim_device_options.swapped: swaps the operands */
enum { SIM_IMMEDIATE_WRONG = 2 };  /* sim_device_options.immediate: another number arrives */
/* The behaviour that a device follows where devices differ: the soft devices of Linux, or the
 * specification. */
enum sim_like { SIM_LIKE_DEFAULT, SIM_LIKE_RXE, SIM_LIKE_HCA, SIM_LIKE_SIW };

/* All numbers are uint64_t so that one table describes them; times in nanoseconds, sizes in
 * bytes. */
struct sim_world_options {
    uint64_t real_time;
    uint64_t threads;
    uint64_t trace;
    uint64_t seed;
    uint64_t latency;
    uint64_t jitter;
    uint64_t bandwidth; /* bytes per microsecond; 0: no limit */
    uint64_t packet;    /* 0: a message is one packet */
    uint64_t window;    /* packets of one queue pair in flight */
    uint64_t step;      /* virtual time that passes in a poll without result */
    uint64_t doorbell;
    uint64_t completion;
    uint64_t receipt; /* delay of entries of receives, and of entries behind them */
    uint64_t batch;
    uint64_t visible; /* SIM_FOREVER: only when a rule demands it */
    uint64_t scatter;
    uint64_t late_read; /* percent */
    uint64_t late_read_time;
    uint64_t late_read_behind; /* reads behind so many late ones are so late exactly; 0: none */
    uint64_t late_key; /* the key of a late read is checked when the read comes, and never again */
    uint64_t drop;     /* per mille */
    uint64_t shuffle;
    uint64_t atomic_gap; /* atomics of ATOMIC_HCA devices stay in the adapter this long */
    char net[32];
    char fail[256];
    char at[256];
};

/* What a device reports as its limits. */
struct sim_limits {
    uint64_t max_qp, max_qp_wr, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_mr_size, max_pd;
    uint64_t max_srq, max_srq_wr, max_srq_sge;
    uint64_t max_rd_atomic, max_init_rd_atomic;
    uint64_t max_inline, max_msg;
};

struct sim_device_options {
    uint64_t link;
    uint64_t like;
    uint64_t mtu; /* enum ibv_mtu */
    struct sim_limits limits;
    uint64_t vectors;
    uint64_t pkeys;
    uint64_t atomics; /* enum ibv_atomic_cap */
    uint64_t immediate;
    uint64_t wr_api, cq_ex;
    uint64_t data_in_order;
    uint64_t round_up;        /* queues get more entries than asked for */
    uint64_t stale;           /* entries of a destroyed queue pair stay in the completion queue */
    uint64_t reuse;           /* a queue pair number is used again at once */
    uint64_t unordered_reads; /* a read's entry may come after those of later requests */
    uint64_t solicited;       /* solicited-only notification works */
    uint64_t active_first; /* iWARP: the connection breaks if the acceptor sends first (RFC 5044) */
    uint64_t gid_ifindex;  /* the GID table names the network interface */
    uint64_t fork_needed;
    uint64_t loopback;     /* packets of the device reach its own queue pairs */
    uint64_t swapped;      /* results of atomics come in the other byte order */
    uint64_t inline_right; /* bytes of inline requests arrive; no: bytes after the 32nd are zero */
    uint64_t nothing_needs_key; /* writes and reads of no bytes are refused without a good key */
    uint64_t dmabuf;            /* ibv_reg_dmabuf_mr() works */
    uint64_t mute_refusals;     /* a target's refusal is never sent, as if it were always lost */
    uint64_t swallow;           /* iWARP: time for which rdma_connect() blocks; 0: it does not */
    char name[IBV_SYSFS_NAME_MAX];
    char addr[128];
    char netdev[32];
};

/* Reads "key=value,..." into the structs. A NULL struct's keys are then unknown. */
bool sim_options_read(const char *text, size_t size, struct sim_world_options *world,
                      struct sim_device_options *device);
void sim_world_defaults(struct sim_world_options *options);
void sim_device_defaults(struct sim_device_options *options);
void sim_device_complete(struct sim_device_options *options); /* sets what depends on link, like */

bool sim_time_read(const char *text, size_t size, uint64_t *out);

void sim_set_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
