/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A stranger's OFFER: decoded, encoded again, and matched with ours from both sides. */
#include "driver.h"

#include "negotiation/match.h"
#include "negotiation/offer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void add_path(struct rdmux_offer *offer, const char *provider, const char *device,
                     uint32_t latency_ns)
{
    struct rdmux_offer_path *path = &offer->paths[offer->path_count++];
    (void)snprintf(path->provider, sizeof(path->provider), "%s", provider);
    (void)snprintf(path->path.device, sizeof(path->path.device), "%s", device);
    (void)snprintf(path->path.address, sizeof(path->path.address), "ours %s", device);
    path->path.reason = latency_ns > 0 ? RDMUX_REASON_USABLE : RDMUX_REASON_NO_DEVICE;
    path->path.latency_ns = latency_ns;
    path->path.bandwidth = UINT64_C(12500000000);
    path->path.native = RDMUX_CAP_SEND | RDMUX_CAP_READ;
}

static const struct rdmux_offer *our_offer(void)
{
    static struct rdmux_offer offer;
    if (offer.path_count == 0) {
        add_path(&offer, "tcp", "", 9000);
        add_path(&offer, "shm", "", 300);
        add_path(&offer, "roce", "mlx5_0", 1300);
        add_path(&offer, "roce", "mlx5_1", 1300);
        add_path(&offer, "ib", "", 0);
        offer.paths[0].provider_flags = RDMUX_PROVIDER_LAST_RESORT;
    }
    return &offer;
}

static void match_both_ways(const struct rdmux_offer *theirs)
{
    static struct rdmux_match there[RDMUX_MATCH_MAX];
    static struct rdmux_match back[RDMUX_MATCH_MAX];
    const struct rdmux_offer *ours = our_offer();
    size_t count = rdmux_match_paths(ours, theirs, theirs->typical_size, there);
    require(rdmux_match_paths(theirs, ours, theirs->typical_size, back) == count);
    require(count <= RDMUX_MATCH_MAX);
    for (size_t i = 0; i < count; i++) {
        require(there[i].rank == back[i].rank);
        require(there[i].cost_ns == back[i].cost_ns);
        require(there[i].reason == back[i].reason);
        require(there[i].rank == 0 ||
                (there[i].ours == back[i].theirs && there[i].theirs == back[i].ours));
        require(memchr(there[i].text, '\0', sizeof(there[i].text)) != NULL);
    }
}

static bool is_same_path(const struct rdmux_offer_path *a, const struct rdmux_offer_path *b)
{
    const struct rdmux_local_path *x = &a->path;
    const struct rdmux_local_path *y = &b->path;
    return memcmp(a->provider, b->provider, sizeof(a->provider)) == 0 &&
           a->provider_flags == b->provider_flags && a->reach == b->reach &&
           memcmp(x->device, y->device, sizeof(x->device)) == 0 &&
           memcmp(x->address, y->address, sizeof(x->address)) == 0 && x->reason == y->reason &&
           x->software == y->software && memcmp(x->text, y->text, sizeof(x->text)) == 0 &&
           memcmp(x->hint, y->hint, sizeof(x->hint)) == 0 && x->bandwidth == y->bandwidth &&
           x->latency_ns == y->latency_ns && x->mtu == y->mtu && x->native == y->native &&
           x->emulated == y->emulated && x->max_message == y->max_message &&
           x->max_sge == y->max_sge && x->max_inline == y->max_inline &&
           x->security == y->security && x->reach_length == y->reach_length &&
           memcmp(x->reach, y->reach, sizeof(x->reach)) == 0 &&
           memcmp(x->spare, y->spare, sizeof(x->spare)) == 0;
}

static bool is_same(const struct rdmux_offer *a, const struct rdmux_offer *b)
{
    bool same = a->path_count == b->path_count && a->prefer == b->prefer &&
                a->typical_size == b->typical_size && a->max_send == b->max_send &&
                a->max_recv == b->max_recv && a->require == b->require &&
                a->require_native == b->require_native && a->liveness_ms == b->liveness_ms &&
                a->data_sockets == b->data_sockets && a->path_timeout_ms == b->path_timeout_ms &&
                a->setup_timeout_ms == b->setup_timeout_ms &&
                a->require_encryption == b->require_encryption && a->send_wish == b->send_wish &&
                a->private_length == b->private_length &&
                memcmp(a->filter, b->filter, sizeof(a->filter)) == 0 &&
                memcmp(a->private_data, b->private_data, sizeof(a->private_data)) == 0 &&
                memcmp(a->secret, b->secret, sizeof(a->secret)) == 0;
    for (size_t i = 0; same && i < a->path_count; i++) {
        same = is_same_path(&a->paths[i], &b->paths[i]);
    }
    return same;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rdmux_offer offer;
    static struct rdmux_offer again;
    static uint8_t bytes[RDMUX_OFFER_BYTES_MAX];
    if (rdmux_offer_decode(data, size, &offer) != RDMUX_OK) {
        return 0;
    }
    size_t used = sizeof(bytes);
    require(rdmux_offer_encode(&offer, bytes, &used) == RDMUX_OK);
    require(rdmux_offer_decode(bytes, used, &again) == RDMUX_OK);
    require(is_same(&offer, &again));
    match_both_ways(&offer);
    return 0;
}
