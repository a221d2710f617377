/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdmux as a provider of libfabric: the objects, and what the files of this folder call of each
 * other.
 *
 * A fabric of libfabric is a fabric of rdmux, and a domain is one completion queue of it, which all
 * completion queues of libfabric share: whoever reads one of them polls for all, and puts the
 * others' entries into their rings. Event queues poll it, too, as set-up makes progress there.
 *
 * Locks, in this order; none is held during a call of the application:
 *   eq->sources_lock   the listeners and domains that an event queue polls
 *   domain->lock       the completion queue of rdmux and all that is attached to it
 *   domain->memory_lock  regions and the directory
 *   eq->lock           the events of an event queue
 */
#ifndef RDMUX_ADAPTERS_FI_INTERNAL_H
#define RDMUX_ADAPTERS_FI_INTERNAL_H

#include "adapters/fi/fi_directory.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <rdmux/rdmux.h>

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FI_DEPTH_DEFAULT = 128, /* requests of an endpoint, and receives */
    FI_DEPTH_MAX = 16384,
    FI_PIECES_MAX = 4, /* entries of a scatter/gather list */
    FI_INJECT_MAX = 512,
    FI_SOURCES_MAX = 64, /* listeners and domains of an event queue */
    FI_CQ_DATA_SIZE = 4,
    FI_ATTENTION_POLLS = 1 << 14,
    /* A reader that sleeps inside a call looks again after this time: another thread's poll of the
     * shared queue disarms it, and that thread may stop polling. */
    FI_SLICE_MS = 20,
};
#define FI_MESSAGE_MAX (UINT64_C(1) << 30) /* longest message, read or write */
#define FI_RDMUX_CAPS \
    (FI_MSG | FI_SEND | FI_RECV | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define FI_RDMUX_DOMAIN_CAPS (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define FI_RDMUX_ORDER (FI_ORDER_SAS | FI_ORDER_SAW | FI_ORDER_RAW | FI_ORDER_RMA_RAW)
#define FI_RDMUX_OP_FLAGS \
    (FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)
#define FI_RDMUX_MR_MODE (FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)

extern struct fi_provider rdmux_fi_provider;

#define FI_COMPLAIN(subsystem, ...) FI_WARN(&rdmux_fi_provider, subsystem, __VA_ARGS__)

/* ---------------------------------------------------------------------------------------- lists */

struct fi_link {
    struct fi_link *next, *previous;
};

static inline void fi_link_init(struct fi_link *link)
{
    link->next = link->previous = link;
}

static inline bool fi_link_is_empty(const struct fi_link *list)
{
    return list->next == list;
}

static inline void fi_link_insert(struct fi_link *after, struct fi_link *link)
{
    link->previous = after;
    link->next = after->next;
    after->next->previous = link;
    after->next = link;
}

static inline void fi_link_remove(struct fi_link *link)
{
    link->previous->next = link->next;
    link->next->previous = link->previous;
    fi_link_init(link);
}

/* -------------------------------------------------------------------------------------- objects */

struct fi_rdmux_fabric {
    struct fid_fabric fid;
    struct rdmux_fabric *rdmux;
    atomic_uint children;
};

/* An entry of a completion queue that waits to be read. */
struct fi_entry {
    void *context;
    uint64_t flags;
    uint64_t length;
    uint64_t data;
    int error;  /* errno of libfabric, 0: success */
    int status; /* enum rdmux_status */
};

struct fi_rdmux_cq {
    struct fid_cq fid;
    struct fi_rdmux_domain *domain;
    struct fi_link link; /* domain->cqs */
    enum fi_cq_format format;
    enum fi_wait_obj wait_obj;
    unsigned endpoints;
    /* Entries that another queue's reader found, and errors; a ring that grows. */
    struct fi_entry *ring;
    size_t ring_size; /* a power of two */
    size_t head, tail;
    int epoll_fd, event_fd; /* -1 without wait object */
    bool is_armed;          /* its reader may sleep on the descriptor, after fi_trywait() */
    bool is_sleeping;       /* its reader sleeps in fi_cq_sread() */
    bool is_signaled;       /* fi_cq_signal() */
    bool selects;           /* an endpoint drops completions of receives */
    bool is_overrun;        /* an entry was lost, as memory was short; reads fail from then on */
};

struct fi_event {
    struct fi_event *next;
    uint32_t type;
    int error;
    int status;
    struct fid *fid;
    void *context;
    struct fi_info *info;
    size_t length;   /* of data; for an event of the application the whole entry */
    bool is_foreign; /* written by the application */
    uint8_t data[];
};

struct fi_rdmux_eq {
    struct fid_eq fid;
    struct fi_rdmux_fabric *fabric;
    bool may_write;
    pthread_mutex_t sources_lock;
    struct fi_rdmux_pep *peps[FI_SOURCES_MAX];
    struct {
        struct fi_rdmux_domain *domain;
        unsigned endpoints;
    } domains[FI_SOURCES_MAX];
    pthread_mutex_t lock;
    struct fi_event *first, **last;
    uint8_t *error_data; /* of the error that was read last */
    int epoll_fd, event_fd;
    bool is_armed; /* as that of fi_rdmux_cq; sources_lock */
};

/* A region that the directory lists. */
struct fi_region {
    struct fi_link link; /* domain->idle or the reaper's queue */
    struct rdmux_mr *mr;
    uintptr_t base;
    size_t length;
    uint32_t access; /* RDMUX_ACCESS_* */
    uint64_t key;
};

struct fi_rdmux_mr {
    struct fid_mr fid;
    struct fi_rdmux_domain *domain;
    struct fi_region *region; /* NULL: no remote rights */
    struct rdmux_mr *mr;      /* NULL: the paths need no local registration */
};

struct fi_reaper {
    pthread_t thread;
    pthread_cond_t work;
    struct fi_link queue; /* memory_lock */
    bool is_running, is_stopping;
};

struct fi_rdmux_domain {
    struct fid_domain fid;
    struct fi_rdmux_fabric *fabric;
    pthread_mutex_t lock;
    struct rdmux_cq *cq;
    struct fi_link cqs;
    unsigned cq_count;
    unsigned armed; /* completion and event queues whose readers may sleep on a descriptor */
    struct fi_link eps;
    struct fi_link pending; /* requests of the provider itself */
    unsigned setups;        /* endpoints that are being connected */
    /* Polls for which messages of the peers' libraries are looked for eagerly: endpoints are being
     * connected, or one reads a new region's slot and imports it. A poller is not told of these
     * messages before some milliseconds. */
    atomic_uint attention;
    atomic_uint children;
    /* Regions. */
    pthread_mutex_t memory_lock;
    struct rdmux_mr *directory;
    uint8_t *slots;
    struct rdmux_token directory_token;
    uint16_t free_slots[FI_SLOT_COUNT];
    unsigned free_count;
    uint64_t generations[FI_SLOT_COUNT];
    struct fi_link idle; /* regions kept for the next registration, the latest first */
    unsigned idle_count;
    atomic_bool has_device; /* a path of the domain is of an RDMA device */
    struct fi_reaper reaper;
};

enum fi_import_state {
    FI_IMPORT_READING, /* its slot is being read */
    FI_IMPORT_ASKING,  /* the peer was asked for the region */
    FI_IMPORT_READY,
    FI_IMPORT_FAILED,
};

/* A request of the provider itself: its context is its address. wc is NULL if the endpoint was
 * closed before it ended. */
struct fi_own_request {
    struct fi_link link; /* domain->pending */
    struct fi_rdmux_ep *ep;
    void (*done)(struct fi_own_request *request, const struct rdmux_wc *wc);
};

/* A peer's region, found by a key. */
struct fi_import {
    struct fi_own_request read;
    uint64_t key;
    enum fi_import_state state;
    int error;
    uint8_t bytes[FI_SLOT_SIZE]; /* its slot, as read */
    struct rdmux_fi_slot slot;
    struct rdmux_remote *remote;
};

enum fi_ep_state {
    FI_EP_NEW,
    FI_EP_CONNECTING, /* or accepting */
    FI_EP_CONNECTED,
    FI_EP_ENDED,
};

/* A receive that was posted before the connection. */
struct fi_early_receive {
    struct rdmux_sge pieces[FI_PIECES_MAX];
    uint32_t count;
    void *context;
};

struct fi_rdmux_ep {
    struct fid_ep fid;
    struct fi_rdmux_domain *domain;
    struct fi_link link; /* domain->eps */
    struct fi_rdmux_eq *eq;
    struct fi_rdmux_cq *send_cq, *receive_cq;
    struct fi_rdmux_srx *srx;
    struct fi_info *info;
    struct fi_rdmux_request *request; /* accepted, or to be accepted */
    struct rdmux_ep *ep;
    enum fi_ep_state state;
    bool is_enabled, is_acceptor, is_told_down;
    bool selects_sends, selects_receives; /* FI_SELECTIVE_COMPLETION */
    uint32_t send_flags;                  /* RDMUX_* of calls without flags */
    uint32_t max_inline;
    struct fi_early_receive *early;
    size_t early_count, early_room;
    struct rdmux_token peer_directory;
    struct rdmux_remote *directory;
    enum fi_import_state directory_state;
    struct fi_import **imports; /* by slot */
};

/* A connection that asks to be accepted. */
struct fi_rdmux_request {
    struct fid fid;
    struct fi_rdmux_pep *pep;
    struct fi_link link; /* pep->requests */
    uint64_t peer;
};

struct fi_rdmux_pep {
    struct fid_pep fid;
    struct fi_rdmux_fabric *fabric;
    struct fi_rdmux_eq *eq;
    struct fi_info *info;
    struct rdmux_listener *listener;
    pthread_mutex_t lock; /* requests */
    struct fi_link requests;
};

struct fi_rdmux_srx {
    struct fid_ep fid;
    struct fi_rdmux_domain *domain;
    struct rdmux_srq *srq;
};

#define FI_OF(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static inline struct fi_rdmux_ep *fi_ep_of(struct fid_ep *fid)
{
    return FI_OF(fid, struct fi_rdmux_ep, fid);
}

/* Context of injected requests: nobody hears of their end. */
extern char rdmux_fi_silent;

/* ------------------------------------------------------------------------------- fi_provider.c */

int rdmux_fi_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context);
int rdmux_fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                     const struct fi_info *hints, struct fi_info **out);

/* Negative errno of libfabric for a status other than RDMUX_OK. */
int rdmux_fi_error(enum rdmux_status status);
const char *rdmux_fi_error_text(int provider_errno);

/* Writes "HOST:PORT" of a socket address for rdmux_listen() and rdmux_connect(). */
int rdmux_fi_address_print(const void *address, size_t size, char out[RDMUX_ADDRESS_MAX]);
/* The reverse of rdmux_fi_address_print(). Returns the size, 0 if the text is no address. */
size_t rdmux_fi_address_parse(const char *text, struct sockaddr_storage *out);
/* The sender's address in a greeting, and back: the size, 0 if there is none. */
void rdmux_fi_host_put(const void *address, size_t size, struct rdmux_fi_greeting *greeting);
size_t rdmux_fi_host_take(const struct rdmux_fi_greeting *greeting, struct sockaddr_storage *out);
/* Copies an address to the application, as getname does. */
int rdmux_fi_address_copy(const void *from, size_t size, void *to, size_t *room);

/* --------------------------------------------------------------------------------- fi_domain.c */

int rdmux_fi_domain_open(struct fid_fabric *fid, struct fi_info *info, struct fid_domain **out,
                         void *context);

/* Polls once and puts the entries into their rings. domain->lock is held. Returns how many entries
 * and events there were. */
size_t rdmux_fi_domain_poll(struct fi_rdmux_domain *domain);

/* Handles an entry that needs more than to be copied to `to`: an event, a failure, a request of the
 * provider itself, another queue's entry. domain->lock is held. */
void rdmux_fi_domain_dispatch(struct fi_rdmux_domain *domain, const struct rdmux_wc *wc);

static inline void fi_attend(struct fi_rdmux_domain *domain)
{
    atomic_store_explicit(&domain->attention, FI_ATTENTION_POLLS, memory_order_relaxed);
}

/* Notes a request of the provider itself, which is about to be posted. domain->lock is held, here
 * and below. */
static inline void fi_own_begin(struct fi_rdmux_domain *domain, struct fi_own_request *request)
{
    fi_link_insert(domain->pending.previous, &request->link);
}

/* Ends those of an endpoint that was closed. */
void rdmux_fi_own_requests_end(struct fi_rdmux_domain *domain, const struct fi_rdmux_ep *ep);

/* ------------------------------------------------------------------------------------- fi_cq.c */

int rdmux_fi_cq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **out,
                     void *context);
/* Appends an entry. domain->lock is held. */
void rdmux_fi_cq_push(struct fi_rdmux_cq *cq, const struct fi_entry *entry);
/* Prepares to sleep on the queue's descriptor: 0, or -FI_EAGAIN if there is something to read. */
int rdmux_fi_cq_trywait(struct fi_rdmux_cq *cq);

/* ------------------------------------------------------------------------------------- fi_eq.c */

int rdmux_fi_eq_open(struct fid_fabric *fid, struct fi_eq_attr *attr, struct fid_eq **out,
                     void *context);
/* Queues an event; takes over info and the request in it. False: memory is short, the event is
 * lost. */
bool rdmux_fi_eq_push(struct fi_rdmux_eq *eq, uint32_t type, struct fid *fid, struct fi_info *info,
                      const void *data, size_t length);
void rdmux_fi_eq_push_error(struct fi_rdmux_eq *eq, struct fid *fid, int error, int status,
                            const void *data, size_t length);
/* Drops the events of an object that is being closed. */
void rdmux_fi_eq_forget(struct fi_rdmux_eq *eq, const struct fid *fid);
void rdmux_fi_eq_signal(struct fi_rdmux_eq *eq);
/* Attaches and detaches what the event queue polls. */
int rdmux_fi_eq_add_pep(struct fi_rdmux_eq *eq, struct fi_rdmux_pep *pep);
void rdmux_fi_eq_remove_pep(struct fi_rdmux_eq *eq, struct fi_rdmux_pep *pep);
int rdmux_fi_eq_add_domain(struct fi_rdmux_eq *eq, struct fi_rdmux_domain *domain);
void rdmux_fi_eq_remove_domain(struct fi_rdmux_eq *eq, struct fi_rdmux_domain *domain);
int rdmux_fi_eq_trywait(struct fi_rdmux_eq *eq);
/* Watches the listener, now that it has a descriptor. */
int rdmux_fi_eq_watch(struct fi_rdmux_eq *eq, int fd);

/* ---------------------------------------------------------------------- fi_endpoint.c, fi_pep.c */

int rdmux_fi_ep_open(struct fid_domain *fid, struct fi_info *info, struct fid_ep **out,
                     void *context);
int rdmux_fi_srx_open(struct fid_domain *fid, struct fi_rx_attr *attr, struct fid_ep **out,
                      void *context);
/* Handles RDMUX_WC_CONNECTED and RDMUX_WC_DISCONNECTED. domain->lock is held. */
void rdmux_fi_ep_connected(struct fi_rdmux_ep *ep, const struct rdmux_wc *wc);
void rdmux_fi_ep_disconnected(struct fi_rdmux_ep *ep, const struct rdmux_wc *wc);

int rdmux_fi_pep_open(struct fid_fabric *fid, struct fi_info *info, struct fid_pep **out,
                      void *context);
/* Turns waiting connections into events. */
void rdmux_fi_pep_progress(struct fi_rdmux_pep *pep);
void rdmux_fi_request_free(struct fi_rdmux_request *request);

extern struct fi_ops_msg rdmux_fi_message_ops, rdmux_fi_shared_receive_ops;
extern struct fi_ops_rma rdmux_fi_rma_ops;

/* Posts the receives that came before the connection. domain->lock is held. */
enum rdmux_status rdmux_fi_early_receives_post(struct fi_rdmux_ep *ep);
/* Ends them, as the endpoint has not been connected. domain->lock is held. */
void rdmux_fi_early_receives_cancel(struct fi_rdmux_ep *ep);

/* RDMUX_* of the flags of libfabric; completes: whether the program wants to hear of the end. */
uint32_t rdmux_fi_post_flags(uint64_t flags, bool completes);
uint32_t rdmux_fi_pieces(const struct iovec *iov, void **desc, size_t count, struct rdmux_sge *out,
                         size_t *length);

/* Posts a request; bytes that are too many for RDMUX_INLINE are copied. domain->lock is held. */
enum rdmux_status rdmux_fi_post(struct fi_rdmux_ep *ep, struct rdmux_wr *wr, size_t length);

static inline struct rdmux_mr *fi_desc_mr(void *desc)
{
    return desc != NULL ? ((struct fi_rdmux_mr *)desc)->mr : NULL;
}

/* ------------------------------------------------------------------------------------ fi_rma.c */

/* An import has an answer. domain->lock is held. */
void rdmux_fi_import_answered(struct fi_rdmux_ep *ep, const struct rdmux_wc *wc);
/* Drops all imports; rdmux_ep_close() ends them. domain->lock is held. */
void rdmux_fi_imports_drop(struct fi_rdmux_ep *ep);

/* --------------------------------------------------------------------------------- fi_memory.c */

extern struct fi_ops_mr rdmux_fi_mr_ops;
int rdmux_fi_directory_open(struct fi_rdmux_domain *domain);
void rdmux_fi_directory_close(struct fi_rdmux_domain *domain);
/* A path of an RDMA device came: it pins pages, so no region outlives its registration. */
void rdmux_fi_memory_use_device(struct fi_rdmux_domain *domain);

/* ------------------------------------------------------------------------ operations that lack */

int rdmux_fi_no_bind(struct fid *fid, struct fid *other, uint64_t flags);
int rdmux_fi_no_control(struct fid *fid, int command, void *arg);
int rdmux_fi_no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops,
                         void *context);

#endif
