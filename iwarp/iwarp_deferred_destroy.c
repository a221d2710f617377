/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "iwarp/iwarp_deferred_destroy.h"

#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_unit.h"

#include <pthread.h>
#include <signal.h>

/* Owned by the cq's owner, except the queue pair and the id, which the thread owns. */
struct iwarp_deferred_destroy {
    struct iwarp_deferred_destroy *next;
    struct rdmux_fabric *fabric;
    struct verbs_unit *unit;
    uint32_t reserved;
    struct ibv_qp *qp;
    struct rdma_cm_id *id;
    pthread_t thread;
    _Atomic bool is_done; /* stored with release */
};

static void destroy_pair(struct ibv_qp *qp, struct rdma_cm_id *id)
{
    (void)ibv_destroy_qp(qp);
    (void)rdma_destroy_id(id);
}

static void *destroy_in_thread(void *argument)
{
    struct iwarp_deferred_destroy *destroy = argument;
    destroy_pair(destroy->qp, destroy->id);
    /* Pairs with the acquire load of rdmux_iwarp_deferred_destroy_collect(). */
    atomic_store_explicit(&destroy->is_done, true, memory_order_release);
    return NULL;
}

static bool start_thread(struct iwarp_deferred_destroy *destroy)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    bool runs = pthread_create(&destroy->thread, NULL, destroy_in_thread, destroy) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (runs) {
        (void)pthread_setname_np(destroy->thread, "rdmux-destroy");
    }
    return runs;
}

void rdmux_iwarp_deferred_destroy_leave(struct iwarp_deferred_destroy **list,
                                        struct verbs_queue *queue, struct rdma_cm_id *id)
{
    struct rdmux_fabric *fabric = verbs_fabric_of_ep(queue->ep);
    struct verbs_unit *unit = queue->unit;
    uint32_t reserved = 0;
    struct ibv_qp *qp = rdmux_verbs_queue_release(queue, &reserved);
    struct iwarp_deferred_destroy *destroy = NULL;
    if (rdmux_provider_may_start_threads(fabric) != 0) {
        destroy = rdmux_provider_allocate(fabric, sizeof(*destroy));
    }
    if (destroy != NULL) {
        destroy->fabric = fabric;
        destroy->unit = unit;
        destroy->reserved = reserved;
        destroy->qp = qp;
        destroy->id = id;
        if (start_thread(destroy)) {
            destroy->next = *list;
            *list = destroy;
            return;
        }
        rdmux_provider_release(fabric, destroy);
    }
    destroy_pair(qp, id);
    unit->used -= reserved;
}

static void forget_entry(struct iwarp_deferred_destroy **at)
{
    struct iwarp_deferred_destroy *destroy = *at;
    (void)pthread_join(destroy->thread, NULL);
    destroy->unit->used -= destroy->reserved;
    *at = destroy->next;
    rdmux_provider_release(destroy->fabric, destroy);
}

void rdmux_iwarp_deferred_destroy_collect(struct iwarp_deferred_destroy **list)
{
    while (*list != NULL) {
        if (atomic_load_explicit(&(*list)->is_done, memory_order_acquire)) {
            forget_entry(list);
        } else {
            list = &(*list)->next;
        }
    }
}

void rdmux_iwarp_deferred_destroy_finish(struct iwarp_deferred_destroy **list)
{
    while (*list != NULL) {
        forget_entry(list);
    }
}
