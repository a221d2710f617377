/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The constants that providers without a device report for their paths: ranking by them chooses as
 * the measurements in docs/performance would. */
#include "negotiation/match.h"
#include "shm/shm_provider.h"
#include "tcp_fallback/tcp_provider.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SHORT = 8, USUAL = 4096, LONG = 1 << 20 };
static const uint64_t gigabit = UINT64_C(1000000000) / 8;

static enum rdmux_reason everybody(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                   size_t theirs_length, char *text)
{
    (void)ours;
    (void)ours_length;
    (void)theirs;
    (void)theirs_length;
    text[0] = '\0';
    return RDMUX_REASON_NONE;
}

static struct rdmux_offer_path *add_path(struct rdmux_offer *offer, const char *provider)
{
    struct rdmux_offer_path *path = &offer->paths[offer->path_count++];
    (void)snprintf(path->provider, sizeof(path->provider), "%s", provider);
    path->path.reason = RDMUX_REASON_USABLE;
    path->path.native = 0xfff;
    path->reach = everybody;
    return path;
}

/* The path of a provider as it describes it itself. */
static void add_described(struct rdmux_offer *offer, const struct rdmux_provider_ops *ops)
{
    struct rdmux_offer_path *path = add_path(offer, ops->name);
    struct rdmux_fabric *fabric = NULL;
    size_t count = 0;
    assert_int_equal(rdmux_fabric_open(NULL, &fabric), RDMUX_OK);
    assert_int_equal(ops->probe(fabric, &path->path, 1, &count), RDMUX_OK);
    assert_int_equal(rdmux_fabric_close(fabric), RDMUX_OK);
    assert_int_equal(count, 1);
    assert_int_equal(path->path.reason, RDMUX_REASON_USABLE);
    path->provider_flags = ops->flags;
}

/* An adapter's path to itself, at the latency that verbs/ib_provider.c gives it. */
static void add_adapter(struct rdmux_offer *offer, uint64_t gigabits)
{
    struct rdmux_offer_path *path = add_path(offer, "ib");
    path->path.latency_ns = 700;
    path->path.bandwidth = gigabits * gigabit;
}

/* Returns the provider that ranks first between two processes of a host with such an adapter. */
static const char *first_on_one_host(uint64_t gigabits, uint64_t size)
{
    static char name[RDMUX_NAME_MAX];
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    struct rdmux_match *matches = calloc(RDMUX_MATCH_MAX, sizeof(*matches));
    assert_non_null(offer);
    assert_non_null(matches);
    offer->max_send = offer->max_recv = LONG;
    add_adapter(offer, gigabits);
    add_described(offer, &rdmux_tcp_provider);
    add_described(offer, &rdmux_shm_provider);
    assert_int_equal(rdmux_match_paths(offer, offer, size, matches), offer->path_count);
    (void)snprintf(name, sizeof(name), "%s", offer->paths[matches[0].ours].provider);
    free(matches);
    free(offer);
    return name;
}

/* A copy is as fast as an adapter of 200 Gbit/s, and spares the way to it and back. */
static void on_one_host_memory_comes_before_an_adapter(void **state)
{
    (void)state;
    static const uint64_t sizes[] = { SHORT, USUAL, LONG };
    static const uint64_t gigabits[] = { 10, 100, 200 };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (size_t j = 0; j < sizeof(gigabits) / sizeof(gigabits[0]); j++) {
            assert_string_equal(first_on_one_host(gigabits[j], sizes[i]), "shm");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_host_memory_comes_before_an_adapter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
