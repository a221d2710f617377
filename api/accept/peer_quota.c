/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Peer quotas: for each address or identity, the number of a listener's connections that are
 * pending or in set-up. An exact count per peer quota keeps one from using up the share of others.
 */
#include "api/accept/peer_quota.h"

#include "api/accept/listener.h"
#include "api/accept/pending_connection.h"
#include "api/accept/shake.h"
#include "api/base/address.h"
#include "negotiation/tls.h"

#include <assert.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

enum { KEY_MAX = 1 + RDMUX_ADDRESS_MAX };
static_assert(RDMUX_ADDRESS_MAX >= RDMUX_IDENTITY_MAX, "KEY_MAX has room for both");

/* ----------------------------------------------------------------------------------------- keys */

/* A key: a character for its kind, then the text. */
static size_t key_of_text(char kind, const char *text, size_t length, uint8_t *key)
{
    size_t part = length < KEY_MAX - 1 ? length : KEY_MAX - 1;
    key[0] = (uint8_t)kind;
    memcpy(key + 1, text, part);
    return 1 + part;
}

/* The key of a call: the host of "HOST:PORT". */
static size_t key_of_call(const struct rdmux_rdmacm_call *call, uint8_t *key)
{
    const char *port = strrchr(call->peer_address, ':');
    size_t length = port == NULL ? strlen(call->peer_address) : (size_t)(port - call->peer_address);
    return key_of_text('r', call->peer_address, length, key);
}

/* One step of SplitMix64 for each word. Without the seed, a peer cannot tell which keys share a
 * bucket. */
static struct rdmux_list *quota_bucket_of(struct rdmux_listener *listener, const uint8_t *key,
                                          size_t size)
{
    uint64_t mixed = listener->quota_seed;
    for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, key + at, size - at < sizeof(word) ? size - at : sizeof(word));
        mixed = (mixed ^ word) + (UINT64_C(0x9e3779b97f4a7c15) ^ listener->quota_seed);
        mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
        mixed ^= mixed >> 31;
    }
    return &listener->quotas[mixed % RDMUX_QUOTA_BUCKETS];
}

/* ---------------------------------------------------------------------------------- peer quotas */

/* Returns the peer quota with this key, created if necessary. NULL: out of memory. */
static struct rdmux_peer_quota *get_quota(struct rdmux_listener *listener, const uint8_t *key,
                                          size_t size)
{
    struct rdmux_list *bucket = quota_bucket_of(listener, key, size);
    for (struct rdmux_list *at = bucket->next; at != bucket; at = at->next) {
        struct rdmux_peer_quota *quota = RDMUX_CONTAINER(at, struct rdmux_peer_quota, hash_link);
        if (quota->key_size == size && memcmp(quota->key, key, size) == 0) {
            return quota;
        }
    }
    struct rdmux_peer_quota *quota = rdmux_allocate(listener->fabric, sizeof(*quota) + size);
    if (quota == NULL) {
        return NULL;
    }
    quota->listener = listener;
    quota->key_size = (uint32_t)size;
    memcpy(quota->key, key, size);
    rdmux_list_init(&quota->waiting_link);
    rdmux_list_init(&quota->silent);
    rdmux_list_init(&quota->introduced);
    rdmux_shake_source_init(&quota->shakes);
    rdmux_list_append(bucket, &quota->hash_link);
    rdmux_list_append(&listener->all_quotas, &quota->link);
    return quota;
}

static void forget_if_empty(struct rdmux_peer_quota *quota)
{
    if (rdmux_peer_quota_count(quota) == 0 && atomic_load(&quota->setups) == 0) {
        assert(rdmux_list_empty(&quota->shakes.steps));
        rdmux_list_remove(&quota->hash_link);
        rdmux_list_remove(&quota->link);
        rdmux_list_remove(&quota->waiting_link);
        rdmux_release(quota->listener->fabric, quota);
    }
}

bool rdmux_peer_quota_is_crowd(const struct rdmux_peer_quota *quota)
{
    return quota->introduced_count > quota->listener->max_waiting_per_address / 2;
}

/* Counts one more or one less introduced connection. */
static void count_introduced(struct rdmux_peer_quota *quota, int change)
{
    struct rdmux_listener *listener = quota->listener;
    bool was_crowd = rdmux_peer_quota_is_crowd(quota);
    quota->introduced_count += (uint32_t)change;
    listener->crowds += rdmux_peer_quota_is_crowd(quota);
    listener->crowds -= was_crowd;
    if (rdmux_list_empty(&quota->introduced)) {
        rdmux_list_remove(&quota->waiting_link);
    } else if (rdmux_list_empty(&quota->waiting_link)) {
        rdmux_list_append(&listener->waiting, &quota->waiting_link);
    }
}

enum rdmux_status rdmux_peer_quota_enter(struct rdmux_pending_connection *pending)
{
    uint8_t key[KEY_MAX];
    size_t size = pending->call != NULL ? key_of_call(pending->call, key)
                                        : rdmux_address_network(&pending->address, key);
    struct rdmux_peer_quota *quota = get_quota(pending->listener, key, size);
    if (quota == NULL) {
        return RDMUX_NO_MEMORY;
    }
    pending->quota = quota;
    rdmux_list_append(&quota->silent, &pending->quota_link);
    quota->silent_count++;
    return RDMUX_OK;
}

void rdmux_peer_quota_introduce(struct rdmux_pending_connection *pending)
{
    struct rdmux_peer_quota *quota = pending->quota;
    struct rdmux_peer_quota *before = quota;
    if (pending->tls != NULL) {
        uint8_t key[KEY_MAX];
        const char *identity = rdmux_tls_identity(pending->tls);
        size_t size = key_of_text('i', identity, strlen(identity), key);
        quota = get_quota(pending->listener, key, size);
        quota = quota == NULL ? before : quota; /* counted by its address still */
    }
    rdmux_list_remove(&pending->quota_link);
    before->silent_count--;
    pending->quota = quota;
    rdmux_list_append(&quota->introduced, &pending->quota_link);
    count_introduced(quota, 1);
    forget_if_empty(before);
}

void rdmux_peer_quota_leave(struct rdmux_pending_connection *pending)
{
    struct rdmux_peer_quota *quota = pending->quota;
    if (quota == NULL) {
        return;
    }
    rdmux_list_remove(&pending->quota_link);
    if (pending->stage == RDMUX_PENDING_INTRODUCED) {
        count_introduced(quota, -1);
    } else {
        quota->silent_count--;
    }
    pending->quota = NULL;
    forget_if_empty(quota);
}

/* --------------------------------------------------------------------------------------- set-up */

void rdmux_peer_quota_begin_setup(struct rdmux_peer_quota *quota)
{
    atomic_fetch_add(&quota->setups, 1);
    if (!rdmux_list_empty(&quota->waiting_link)) { /* the turn of others */
        rdmux_list_remove(&quota->waiting_link);
        rdmux_list_append(&quota->listener->waiting, &quota->waiting_link);
    }
}

void rdmux_peer_quota_end_setup(struct rdmux_peer_quota *quota)
{
    struct rdmux_listener *listener = quota->listener;
    atomic_fetch_sub(&quota->setups, 1);
    if (!rdmux_list_empty(&quota->waiting_link)) {
        rdmux_listener_poke_waits(listener); /* there is room for a connection that waits */
    }
    forget_if_empty(quota);
}

/* A scan of all: there are no more than connections, and it runs only when there are too many. */
struct rdmux_peer_quota *rdmux_peer_quota_largest(struct rdmux_listener *listener)
{
    struct rdmux_peer_quota *largest = NULL;
    for (struct rdmux_list *at = listener->all_quotas.next; at != &listener->all_quotas;
         at = at->next) {
        struct rdmux_peer_quota *quota = RDMUX_CONTAINER(at, struct rdmux_peer_quota, link);
        if (rdmux_peer_quota_count(quota) >
            (largest == NULL ? 0 : rdmux_peer_quota_count(largest))) {
            largest = quota;
        }
    }
    return largest;
}

void rdmux_peer_quotas_count_crowds(struct rdmux_listener *listener)
{
    listener->crowds = 0;
    for (struct rdmux_list *at = listener->all_quotas.next; at != &listener->all_quotas;
         at = at->next) {
        listener->crowds += rdmux_peer_quota_is_crowd(
            RDMUX_CONTAINER(at, struct rdmux_peer_quota, link));
    }
}

struct rdmux_peer_quota *rdmux_peer_quota_next(struct rdmux_listener *listener)
{
    struct rdmux_peer_quota *next = NULL;
    /* at most half for one peer quota */
    uint32_t fewest = (atomic_load(&listener->max_setups) + 1) / 2;
    for (struct rdmux_list *at = listener->waiting.next; at != &listener->waiting && fewest != 0;
         at = at->next) {
        struct rdmux_peer_quota *quota = RDMUX_CONTAINER(at, struct rdmux_peer_quota, waiting_link);
        uint32_t setups = atomic_load(&quota->setups);
        if (setups < fewest) {
            next = quota;
            fewest = setups;
        }
    }
    return next;
}
