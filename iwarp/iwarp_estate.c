/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "iwarp/iwarp_estate.h"

#include <pthread.h>
#include <signal.h>

/* Owned by the cq's owner, except the queue pair and the id, which the thread owns. */
struct iwarp_estate {
    struct iwarp_estate *next;
    struct rdmux_fabric *fabric;
    struct verbs_unit *unit;
    uint32_t reserved;
    struct ibv_qp *qp;
    struct rdma_cm_id *id;
    pthread_t thread;
    _Atomic bool is_done; /* stored with release */
};

static void destroy(struct ibv_qp *qp, struct rdma_cm_id *id)
{
    (void)ibv_destroy_qp(qp);
    (void)rdma_destroy_id(id);
}

static void *destroy_in_thread(void *argument)
{
    struct iwarp_estate *estate = argument;
    destroy(estate->qp, estate->id);
    /* Pairs with the acquire load of rdmux_iwarp_estate_collect(). */
    atomic_store_explicit(&estate->is_done, true, memory_order_release);
    return NULL;
}

static bool start_thread(struct iwarp_estate *estate)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    bool runs = pthread_create(&estate->thread, NULL, destroy_in_thread, estate) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (runs) {
        (void)pthread_setname_np(estate->thread, "rdmux-estate");
    }
    return runs;
}

void rdmux_iwarp_estate_leave(struct iwarp_estate **list, struct verbs_queue *queue,
                              struct rdma_cm_id *id)
{
    struct rdmux_fabric *fabric = verbs_fabric_of_ep(queue->ep);
    struct verbs_unit *unit = queue->unit;
    uint32_t reserved = 0;
    struct ibv_qp *qp = rdmux_verbs_queue_release(queue, &reserved);
    struct iwarp_estate *estate = NULL;
    if (rdmux_provider_may_start_threads(fabric) != 0) {
        estate = rdmux_provider_allocate(fabric, sizeof(*estate));
    }
    if (estate != NULL) {
        estate->fabric = fabric;
        estate->unit = unit;
        estate->reserved = reserved;
        estate->qp = qp;
        estate->id = id;
        if (start_thread(estate)) {
            estate->next = *list;
            *list = estate;
            return;
        }
        rdmux_provider_release(fabric, estate);
    }
    destroy(qp, id);
    unit->used -= reserved;
}

static void forget(struct iwarp_estate **at)
{
    struct iwarp_estate *estate = *at;
    (void)pthread_join(estate->thread, NULL);
    estate->unit->used -= estate->reserved;
    *at = estate->next;
    rdmux_provider_release(estate->fabric, estate);
}

void rdmux_iwarp_estate_collect(struct iwarp_estate **list)
{
    while (*list != NULL) {
        if (atomic_load_explicit(&(*list)->is_done, memory_order_acquire)) {
            forget(list);
        } else {
            list = &(*list)->next;
        }
    }
}

void rdmux_iwarp_estate_finish(struct iwarp_estate **list)
{
    while (*list != NULL) {
        forget(list);
    }
}
