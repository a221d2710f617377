/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The target side: receives, accesses to regions, and failures. */
#include "mutant.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { HELD_BACK_NS = 20000000, KEYS_MAX = 64 };

/* ------------------------------------------------------------------------------------- receives */

/* A receive that no program posted: messages in it are lost. */
static struct rdmux_request nowhere = { .length = UINT64_MAX };

struct rdmux_request *mutant_take_receive(struct rdmux_provider_ep *ep)
{
    struct mutant_ep *mutant = mutant_ep_of(ep);
    struct mutant_cq *cq = mutant_cq_of(ep->cq);
    if (is(MUTANT_starving_stops_others) && cq->starving != NULL && cq->starving != mutant) {
        return NULL;
    }
    if (mutant->receive != NULL) {
        struct rdmux_request *receive = mutant->receive;
        mutant->receive = NULL;
        return receive;
    }
    struct rdmux_request *receive = rdmux_provider_take_receive(ep);
    cq->starving = receive == NULL ? mutant : NULL;
    if (receive == NULL) {
        mutant->starves = true;
        if (is(MUTANT_starving_fails)) {
            rdmux_provider_failed(ep, RDMUX_PROTOCOL, "mutant: no receive");
        }
        return is(MUTANT_starving_drops) ? &nowhere : NULL;
    }
    mutant_fed(mutant);
    if (is(MUTANT_receives_swapped)) {
        struct rdmux_request *second = rdmux_provider_take_receive(ep);
        if (second != NULL) {
            mutant->receive = receive;
            return second;
        }
    }
    return receive;
}

void mutant_report_arrival(struct mutant_ep *mutant)
{
    const struct arrival arrival = mutant->arrival;
    mutant->arrival.request = NULL;
    if (arrival.request != NULL) {
        rdmux_provider_received(mutant->ep, arrival.request, arrival.status, arrival.opcode,
                                arrival.length, arrival.wc_flags, arrival.imm);
    }
}

static void hold_back(struct mutant_ep *mutant, const struct arrival *arrival)
{
    mutant->arrival = *arrival;
    mutant->count = rdmux_provider_now_ns(mutant->ep->cq->domain->fabric) + HELD_BACK_NS;
}

/* Touches a byte of the receive's buffer, or the one behind it. */
static void touch(const struct rdmux_request *receive, bool behind)
{
    if (receive->sge_count > 0 && (behind || receive->sges[0].length > 0)) {
        const struct rdmux_provider_sge *sge = &receive->sges[receive->sge_count - 1];
        uint8_t *byte = (uint8_t *)sge->addr + (behind ? sge->length : 0);
        *byte = (uint8_t) ~*byte;
    }
}

static void spoil_arrival(struct arrival *arrival)
{
    const bool is_notice = arrival->opcode == RDMUX_WC_RECV_WRITE_IMM;
    const bool is_long = arrival->status == RDMUX_LENGTH;
    switch (active) {
    case MUTANT_long_message_cut:
        if (is_long) {
            arrival->status = RDMUX_OK;
            arrival->length = arrival->request->length;
        }
        break;
    case MUTANT_long_message_io:
        arrival->status = is_long ? RDMUX_IO : arrival->status;
        break;
    case MUTANT_long_message_spills:
        if (is_long) {
            touch(arrival->request, true);
        }
        break;
    case MUTANT_received_length:
        arrival->length += !is_notice;
        break;
    case MUTANT_notice_takes_buffer:
        if (is_notice) {
            touch(arrival->request, false);
        }
        break;
    case MUTANT_notice_without_length:
        arrival->length = is_notice ? 0 : arrival->length;
        break;
    case MUTANT_imm_swapped:
        arrival->imm = __builtin_bswap32(arrival->imm);
        break;
    case MUTANT_imm_unflagged:
        arrival->wc_flags = 0;
        break;
    case MUTANT_imm_cut:
        arrival->imm &= UINT32_C(0x7fffffff);
        break;
    default:
        break;
    }
}

void mutant_received(struct rdmux_provider_ep *ep, struct rdmux_request *request, uint32_t status,
                     uint32_t opcode, uint64_t length, uint32_t wc_flags, uint32_t imm)
{
    struct mutant_ep *mutant = mutant_ep_of(ep);
    struct arrival arrival = {
        .request = request,
        .status = status,
        .opcode = opcode,
        .length = length,
        .wc_flags = wc_flags,
        .imm = imm,
    };
    if (request == &nowhere) {
        return;
    }
    spoil_arrival(&arrival);
    if (is(MUTANT_arrived_dropped)) {
        mutant_report_arrival(mutant);
        hold_back(mutant, &arrival);
        return;
    }
    if (is(MUTANT_srq_swapped) && rdmux_provider_has_srq(ep) && mutant->arrival.request == NULL) {
        hold_back(mutant, &arrival);
        return;
    }
    rdmux_provider_received(ep, arrival.request, arrival.status, arrival.opcode, arrival.length,
                            arrival.wc_flags, arrival.imm);
    mutant_report_arrival(mutant);
}

/* -------------------------------------------------------------------------------------- regions */

/* Addresses of regions that were accessed before, by key. */
static struct known {
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
    uint8_t *addr;
} known_regions[KEYS_MAX];
static size_t known_count;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static void learn(const uint8_t *key, uint8_t *addr)
{
    (void)pthread_mutex_lock(&known_lock);
    struct known *known = &known_regions[known_count++ % KEYS_MAX];
    memcpy(known->key, key, RDMUX_TARGET_KEY_SIZE);
    known->addr = addr;
    (void)pthread_mutex_unlock(&known_lock);
}

static uint8_t *find(const uint8_t *key)
{
    uint8_t *addr = NULL;
    (void)pthread_mutex_lock(&known_lock);
    for (size_t i = 0; i < KEYS_MAX; i++) {
        if (memcmp(known_regions[i].key, key, RDMUX_TARGET_KEY_SIZE) == 0) {
            addr = known_regions[i].addr;
        }
    }
    (void)pthread_mutex_unlock(&known_lock);
    return addr;
}

void mutant_late_bytes(struct mutant_cq *cq)
{
    if (cq->late.to != NULL) {
        memcpy(cq->late.to, cq->late.bytes, (size_t)cq->late.length);
        cq->late.to = NULL;
    }
}

/* Returns whether an access that the core refused is let through. */
static bool passes(enum rdmux_status status, uint32_t access)
{
    switch (active) {
    case MUTANT_revoked_write:
        return status == RDMUX_DENIED && access == RDMUX_ACCESS_REMOTE_WRITE;
    case MUTANT_revoked_read:
        return status == RDMUX_DENIED && access == RDMUX_ACCESS_REMOTE_READ;
    default:
        return false;
    }
}

/* Returns the refusal of an access that the core allowed, or RDMUX_OK. */
static enum rdmux_status refusal(struct rdmux_provider_ep *ep, const uint8_t *key, uint64_t end,
                                 uint32_t access)
{
    void *addr = NULL;
    enum rdmux_status status = RDMUX_OK;
    if (is(MUTANT_last_byte_refused)) {
        status = rdmux_target_enter(ep, key, end, 1, access, &addr);
    } else if (is(MUTANT_write_needs_read) && access == RDMUX_ACCESS_REMOTE_WRITE) {
        status = rdmux_target_enter(ep, key, end, 0, RDMUX_ACCESS_REMOTE_READ, &addr);
    } else {
        return RDMUX_OK;
    }
    if (status == RDMUX_OK) {
        rdmux_target_leave(ep);
    }
    return status;
}

enum rdmux_status mutant_enter(struct rdmux_provider_ep *ep,
                               const uint8_t key[RDMUX_TARGET_KEY_SIZE], uint64_t offset,
                               uint64_t length, uint32_t access, void **addr)
{
    struct mutant_cq *cq = mutant_cq_of(ep->cq);
    mutant_late_bytes(cq);
    const bool is_proof = mutant_ep_of(ep)->accesses++ == 0;
    enum rdmux_status status = is_proof ? RDMUX_OK : refusal(ep, key, offset + length, access);
    if (status != RDMUX_OK) {
        return status;
    }
    status = rdmux_target_enter(ep, key, offset, length, access, addr);
    cq->is_unentered = status != RDMUX_OK;
    if (status == RDMUX_OK) {
        learn(key, (uint8_t *)*addr - offset);
    } else if (find(key) != NULL && passes(status, access)) {
        *addr = find(key) + offset;
        status = RDMUX_OK;
    } else if (find(key) != NULL && is(MUTANT_refusal_touches)) {
        find(key)[offset] ^= 1;
    }
    const bool writes = status == RDMUX_OK && access == RDMUX_ACCESS_REMOTE_WRITE;
    cq->entered = writes ? *addr : NULL;
    cq->entered_length = length;
    memcpy(cq->entered_key, key, RDMUX_TARGET_KEY_SIZE);
    cq->entered_offset = offset;
    if (writes && ((is(MUTANT_notice_first) && !is_proof) || is(MUTANT_nothing_arrives)) &&
        length <= sizeof(cq->late.bytes)) {
        cq->late.to = is(MUTANT_notice_first) ? *addr : NULL;
        cq->late.length = length;
        *addr = cq->late.bytes;
    }
    return status;
}

void mutant_leave(struct rdmux_provider_ep *ep)
{
    struct mutant_cq *cq = mutant_cq_of(ep->cq);
    void *behind = NULL;
    if (!cq->is_unentered) {
        rdmux_target_leave(ep);
    }
    if (is(MUTANT_write_spills) && cq->entered != NULL &&
        rdmux_target_enter(ep, cq->entered_key, cq->entered_offset + cq->entered_length, 1,
                           RDMUX_ACCESS_REMOTE_WRITE, &behind) == RDMUX_OK) {
        *(uint8_t *)behind ^= 1;
        rdmux_target_leave(ep);
    }
}

/* A read, then a write. */
static enum rdmux_status in_two_steps(struct rdmux_provider_ep *ep, const uint8_t *key, uint32_t op,
                                      uint64_t offset, uint64_t operand, uint64_t expected,
                                      uint64_t *old)
{
    void *addr = NULL;
    enum rdmux_status status = rdmux_target_enter(ep, key, offset, sizeof(uint64_t),
                                                  RDMUX_ACCESS_REMOTE_ATOMIC, &addr);
    if (status != RDMUX_OK) {
        return status;
    }
    volatile uint64_t *word = addr;
    *old = *word;
    uint64_t next = *old + operand;
    if (is(MUTANT_add_32_bits)) {
        next = (*old & ~(uint64_t)UINT32_MAX) | (uint32_t)next;
    }
    if (op == RDMUX_OP_COMPARE_SWAP) {
        next = *old == expected || is(MUTANT_swap_always) ? operand : *old;
    }
    for (int i = 0; i < 20; i++) {
        (void)sched_yield();
    }
    *word = next;
    rdmux_target_leave(ep);
    return RDMUX_OK;
}

enum rdmux_status mutant_atomic(struct rdmux_provider_ep *ep,
                                const uint8_t key[RDMUX_TARGET_KEY_SIZE], uint32_t op,
                                uint64_t offset, uint64_t operand, uint64_t expected, uint64_t *old)
{
    mutant_late_bytes(mutant_cq_of(ep->cq));
    if (is(MUTANT_atomic_in_two_steps) || is(MUTANT_add_32_bits) || is(MUTANT_swap_always)) {
        return in_two_steps(ep, key, op, offset, operand, expected, old);
    }
    return rdmux_target_atomic(ep, key, op, offset, operand, expected, old);
}

/* ------------------------------------------------------------------------------------- failures */

void mutant_fail_others(struct rdmux_provider_ep *ep)
{
    for (struct mutant_ep *at = mutant_cq_of(ep->cq)->eps; at != NULL; at = at->next) {
        if (at->ep != ep) {
            rdmux_provider_failed(at->ep, RDMUX_IO, "mutant: another endpoint ended");
        }
    }
}

void mutant_failed(struct rdmux_provider_ep *ep, enum rdmux_status status, const char *text)
{
    if ((is(MUTANT_long_message_ends_all) && status == RDMUX_LENGTH) ||
        (is(MUTANT_refusal_ends_all) && status == RDMUX_DENIED)) {
        mutant_fail_others(ep);
    }
    if (is(MUTANT_refusal_io) && status == RDMUX_DENIED) {
        status = RDMUX_IO;
    }
    rdmux_provider_failed(ep, status, text);
}
