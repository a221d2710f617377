/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * provider_fast_path.h - the fast path of small writes, for providers that have one. Part of
 * provider.h. A provider without it leaves the last three members of its table NULL.
 */
#ifndef RDMUX_PROVIDER_FAST_PATH_H
#define RDMUX_PROVIDER_FAST_PATH_H

#include <rdmux/provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The shortest way of small writes. rdmux_write() checks the arguments and calls the provider,
 * which calls the device. rdmux_cq_poll() calls the provider, which asks the device and writes the
 * entries that the program gets.
 *
 * A cq has one fast path. The core opens it for an endpoint that posts one inline signaled write
 * after the other, while there is no other work on the cq. It closes the fast path before any other
 * call or thread works on the cq; writes under way get request records then. So the functions of
 * the fast path, post and poll, see the cq in one state only.
 */
enum {
    /* rdmux_cq_gate.signal */
    RDMUX_GATE_OPEN = 24, /* the fast path is open, and no other thread wants the cq */
    /* rdmux_cq_gate.inside */
    RDMUX_GATE_AWAY = 0,
    RDMUX_GATE_INSIDE = 1, /* the application's call is in the cq */
    RDMUX_GATE_LEFT = 2,   /* no call is in the cq, but one was since the service thread looked */

    RDMUX_FAST_PATH_PROVIDER_WORDS = 384,
};

/* The words by which calls and the service thread agree on the owner of the cq. */
struct rdmux_cq_gate {
    uint32_t signal; /* atomic: 0 in the child of a fork */
    uint32_t inside; /* atomic */
};

/* A write under way. The struct begins as struct rdmux_wc does. */
struct rdmux_fast_path_entry {
    void *context;
    struct rdmux_ep *ep;
    uint64_t length;
    uint32_t status; /* RDMUX_OK */
    uint32_t opcode; /* RDMUX_WC_WRITE */
    struct rdmux_fast_path_entry *next;
    struct rdmux_request *request; /* the write's record, from fast_path_close on */
    uint64_t provider[2];          /* the provider's own */
};

/* The place of an import, as the provider's post needs it; fast_path_target fills it in. */
struct rdmux_fast_path_target {
    uint64_t addr;
    uint32_t key;
    uint32_t spare;
};

/* The state of a cq's fast path. The core owns it; it lives as long as the cq. The provider changes
 * `bytes`, `most`, `tail` and its own words. */
struct rdmux_fast_path {
    struct rdmux_cq_gate gate; /* the cq's */
    /* A write takes the entry at head if head is below limit; head then advances by one. A
     * completion frees the entry at tail; tail then advances to that entry's next. */
    struct rdmux_fast_path_entry *head;
    struct rdmux_fast_path_entry *limit; /* atomic: NULL unless signal says open */
    struct rdmux_fast_path_entry *tail;  /* the provider's poll moves it */
    uint64_t bytes;                      /* sum of the lengths of the writes */
    uint64_t most; /* bytes of the longest write; fast_path_open may lower it */
    /* Gives the device a write and leaves the cq by rdmux_fast_path_leave(). entry->context and
     * length are set. Always returns RDMUX_OK: if the device does not take the write, the provider
     * calls rdmux_fast_path_stop() and then rdmux_provider_failed(), and the write ends with its
     * endpoint. fast_path_open sets the pointer. [data path] */
    enum rdmux_status (*post)(struct rdmux_fast_path *fast, const void *buf, size_t length,
                              struct rdmux_fast_path_entry *entry,
                              const struct rdmux_fast_path_target *target, uint64_t offset);
    struct rdmux_cq *cq;
    struct rdmux_fast_path_entry *entries;
    uint32_t entry_count; /* one more than the writes that may be under way */
    uint32_t spare;
    uint64_t provider[RDMUX_FAST_PATH_PROVIDER_WORDS]; /* zeroed when the cq is made */
};

/* The first member of the core's struct rdmux_cq. */
struct rdmux_cq_fast_poll {
    rdmux_fast_path_poll_fn poll;
    struct rdmux_fast_path *fast;
};

/*
 * Enter the cq: rdmux_fast_path_enter() to poll, rdmux_fast_path_enter_with_room() to write. They
 * return 0 if the fast path is not open, and the latter also if it has no room: the caller then
 * leaves at once and uses the core's call. The store of `inside` precedes the read of `signal` or
 * `limit`, which another thread may change. The barrier that the core makes all threads pass
 * completes the order.
 * On a processor that keeps loads in order a plain read is enough. Compilers join it with the
 * comparison; the fence makes them read anew. [data path]
 */
#if defined(__SANITIZE_THREAD__) || !(defined(__x86_64__) || defined(__i386__))
static inline int rdmux_fast_path_enter(struct rdmux_fast_path *fast)
{
    __atomic_exchange_n(&fast->gate.inside, RDMUX_GATE_INSIDE, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&fast->gate.signal, __ATOMIC_SEQ_CST) == RDMUX_GATE_OPEN;
}
static inline int rdmux_fast_path_enter_with_room(struct rdmux_fast_path *fast)
{
    __atomic_exchange_n(&fast->gate.inside, RDMUX_GATE_INSIDE, __ATOMIC_SEQ_CST);
    const struct rdmux_fast_path_entry *limit = __atomic_load_n(&fast->limit, __ATOMIC_SEQ_CST);
    return limit != NULL && fast->head < limit;
}
#else
static inline int rdmux_fast_path_enter(struct rdmux_fast_path *fast)
{
    __atomic_store_n(&fast->gate.inside, RDMUX_GATE_INSIDE, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return fast->gate.signal == RDMUX_GATE_OPEN;
}
static inline int rdmux_fast_path_enter_with_room(struct rdmux_fast_path *fast)
{
    __atomic_store_n(&fast->gate.inside, RDMUX_GATE_INSIDE, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return fast->head < fast->limit;
}
#endif

/* Leaves the cq. [data path] */
static inline void rdmux_fast_path_leave(struct rdmux_fast_path *fast)
{
    __atomic_store_n(&fast->gate.inside, RDMUX_GATE_LEFT, __ATOMIC_RELEASE);
}

/* Polls as the core does, for entries other than the fast path's completions. Returns the number of
 * entries written to wc, at most max. Called by the provider's poll, outside the cq. [data path] */
RDMUX_API size_t rdmux_fast_path_poll(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max);
/* Closes the fast path by calling fast_path_close. The caller is in the cq. [data path] */
RDMUX_API void rdmux_fast_path_stop(struct rdmux_fast_path *fast);

#ifdef __cplusplus
}
#endif

#endif
