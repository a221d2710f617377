/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Whom a listener's connections come from, and how many of each have not been taken or are being set up. What is
 * counted exactly cannot be used up by others.
 */
#include "api/stranger.h"

#include <assert.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

enum { KEY_MAX = 1 + RDMUX_ADDRESS_MAX };
static_assert(RDMUX_ADDRESS_MAX >= RDMUX_IDENTITY_MAX, "KEY_MAX has room for both");

/* ----------------------------------------------------------------------------------------- keys */

/* The kind, and an IPv4 address or the part of an IPv6 one that a network has, which hands out the
 * rest at will. */
size_t rdmux_origin_key(const struct sockaddr_storage *address, uint8_t *key)
{
    size_t size = 0;
    key[size++] = '4';
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        memcpy(key + size, &in->sin_addr, sizeof(in->sin_addr));
        size += sizeof(in->sin_addr);
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        bool mapped = IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr);
        size_t network = mapped ? sizeof(struct in_addr) : sizeof(uint64_t);
        key[0] = mapped ? '4' : '6';
        memcpy(key + size, in6->sin6_addr.s6_addr + (mapped ? 12 : 0), network);
        size += network;
    }
    return size;
}

/* A text behind its kind. */
static size_t key_of_text(char kind, const char *text, size_t length, uint8_t *key)
{
    size_t part = length < KEY_MAX - 1 ? length : KEY_MAX - 1;
    key[0] = (uint8_t)kind;
    memcpy(key + 1, text, part);
    return 1 + part;
}

/* Of "HOST:PORT", the host. */
static size_t key_of_call(const struct rdmux_plain_call *call, uint8_t *key)
{
    const char *port = strrchr(call->peer_address, ':');
    size_t length = port == NULL ? strlen(call->peer_address) : (size_t)(port - call->peer_address);
    return key_of_text('r', call->peer_address, length, key);
}

/* A step of SplitMix64 for each word: who does not know the seed cannot tell who shares a bucket. */
static struct rdmux_list *bucket_of(struct rdmux_listener *listener, const uint8_t *key, size_t size)
{
    uint64_t mixed = listener->origin_seed;
    for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, key + at, size - at < sizeof(word) ? size - at : sizeof(word));
        mixed = (mixed ^ word) + (UINT64_C(0x9e3779b97f4a7c15) ^ listener->origin_seed);
        mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
        mixed ^= mixed >> 31;
    }
    return &listener->origins[mixed % RDMUX_ORIGIN_BUCKETS];
}

/* --------------------------------------------------------------------------------------- origins */

/* The one with this key, made if need be; NULL: out of memory. */
static struct rdmux_origin *get_origin(struct rdmux_listener *listener, const uint8_t *key,
                                       size_t size)
{
    struct rdmux_list *bucket = bucket_of(listener, key, size);
    for (struct rdmux_list *at = bucket->next; at != bucket; at = at->next) {
        struct rdmux_origin *origin = RDMUX_CONTAINER(at, struct rdmux_origin, hash_link);
        if (origin->key_size == size && memcmp(origin->key, key, size) == 0) {
            return origin;
        }
    }
    struct rdmux_origin *origin = rdmux_allocate(listener->fabric, sizeof(*origin) + size);
    if (origin == NULL) {
        return NULL;
    }
    origin->listener = listener;
    origin->key_size = (uint32_t)size;
    memcpy(origin->key, key, size);
    rdmux_list_init(&origin->waiting_link);
    rdmux_list_init(&origin->silent);
    rdmux_list_init(&origin->introduced);
    rdmux_shake_source_init(&origin->shakes);
    rdmux_list_append(bucket, &origin->hash_link);
    rdmux_list_append(&listener->all_origins, &origin->link);
    return origin;
}

static void forget_if_empty(struct rdmux_origin *origin)
{
    if (rdmux_origin_count(origin) == 0 && atomic_load(&origin->setups) == 0) {
        assert(rdmux_list_empty(&origin->shakes.steps));
        rdmux_list_remove(&origin->hash_link);
        rdmux_list_remove(&origin->link);
        rdmux_list_remove(&origin->waiting_link);
        rdmux_release(origin->listener->fabric, origin);
    }
}

bool rdmux_origin_is_crowd(const struct rdmux_origin *origin)
{
    return origin->introduced_count > origin->listener->max_waiting_per_address / 2;
}

/* One more that has introduced itself, or one less. */
static void count_introduced(struct rdmux_origin *origin, int change)
{
    struct rdmux_listener *listener = origin->listener;
    bool was_crowd = rdmux_origin_is_crowd(origin);
    origin->introduced_count += (uint32_t)change;
    listener->crowds += rdmux_origin_is_crowd(origin);
    listener->crowds -= was_crowd;
    if (rdmux_list_empty(&origin->introduced)) {
        rdmux_list_remove(&origin->waiting_link);
    } else if (rdmux_list_empty(&origin->waiting_link)) {
        rdmux_list_append(&listener->waiting, &origin->waiting_link);
    }
}

enum rdmux_status rdmux_origin_enter(struct stranger *stranger)
{
    uint8_t key[KEY_MAX];
    size_t size = stranger->call != NULL ? key_of_call(stranger->call, key)
                                         : rdmux_origin_key(&stranger->address, key);
    struct rdmux_origin *origin = get_origin(stranger->listener, key, size);
    if (origin == NULL) {
        return RDMUX_NO_MEMORY;
    }
    stranger->origin = origin;
    rdmux_list_append(&origin->silent, &stranger->origin_link);
    origin->silent_count++;
    return RDMUX_OK;
}

void rdmux_origin_introduce(struct stranger *stranger)
{
    struct rdmux_origin *origin = stranger->origin;
    struct rdmux_origin *before = origin;
    if (stranger->tls != NULL) {
        uint8_t key[KEY_MAX];
        const char *identity = rdmux_tls_identity(stranger->tls);
        size_t size = key_of_text('i', identity, strlen(identity), key);
        origin = get_origin(stranger->listener, key, size);
        origin = origin == NULL ? before : origin; /* the address is better than nothing */
    }
    rdmux_list_remove(&stranger->origin_link);
    before->silent_count--;
    stranger->origin = origin;
    rdmux_list_append(&origin->introduced, &stranger->origin_link);
    count_introduced(origin, 1);
    forget_if_empty(before);
}

void rdmux_origin_leave(struct stranger *stranger)
{
    struct rdmux_origin *origin = stranger->origin;
    if (origin == NULL) {
        return;
    }
    rdmux_list_remove(&stranger->origin_link);
    if (stranger->introduced) {
        count_introduced(origin, -1);
    } else {
        origin->silent_count--;
    }
    stranger->origin = NULL;
    forget_if_empty(origin);
}

/* ---------------------------------------------------------------------------------------- set-up */

void rdmux_origin_begin_setup(struct rdmux_origin *origin)
{
    atomic_fetch_add(&origin->setups, 1);
    if (!rdmux_list_empty(&origin->waiting_link)) { /* others' turn */
        rdmux_list_remove(&origin->waiting_link);
        rdmux_list_append(&origin->listener->waiting, &origin->waiting_link);
    }
}

void rdmux_origin_end_setup(struct rdmux_origin *origin)
{
    struct rdmux_listener *listener = origin->listener;
    atomic_fetch_sub(&origin->setups, 1);
    if (!rdmux_list_empty(&origin->waiting_link)) {
        rdmux_listener_poke_waits(listener); /* there is room for one that waits */
    }
    forget_if_empty(origin);
}

/* A walk over all: there are no more than connections, and it is made when there are too many. */
struct rdmux_origin *rdmux_origin_largest(struct rdmux_listener *listener)
{
    struct rdmux_origin *largest = NULL;
    for (struct rdmux_list *at = listener->all_origins.next; at != &listener->all_origins;
         at = at->next) {
        struct rdmux_origin *origin = RDMUX_CONTAINER(at, struct rdmux_origin, link);
        if (rdmux_origin_count(origin) > (largest == NULL ? 0 : rdmux_origin_count(largest))) {
            largest = origin;
        }
    }
    return largest;
}

void rdmux_origins_count_crowds(struct rdmux_listener *listener)
{
    listener->crowds = 0;
    for (struct rdmux_list *at = listener->all_origins.next; at != &listener->all_origins;
         at = at->next) {
        listener->crowds += rdmux_origin_is_crowd(RDMUX_CONTAINER(at, struct rdmux_origin, link));
    }
}

struct rdmux_origin *rdmux_origin_next(struct rdmux_listener *listener)
{
    struct rdmux_origin *next = NULL;
    uint32_t fewest = (atomic_load(&listener->max_setups) + 1) / 2; /* the others are for others */
    for (struct rdmux_list *at = listener->waiting.next; at != &listener->waiting && fewest != 0;
         at = at->next) {
        struct rdmux_origin *origin = RDMUX_CONTAINER(at, struct rdmux_origin, waiting_link);
        uint32_t setups = atomic_load(&origin->setups);
        if (setups < fewest) {
            next = origin;
            fewest = setups;
        }
    }
    return next;
}
