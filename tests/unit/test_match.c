/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Pairing and ranking: which pairs are eligible, in which order, and that both sides get the same
 * result. */
#include "negotiation/match.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SIZE = 4096 };

/* Paths with the same first reach byte reach each other. */
static enum rdmux_reason same_network(const uint8_t *ours, size_t ours_length,
                                      const uint8_t *theirs, size_t theirs_length, char *text)
{
    uint8_t a = ours_length > 0 ? ours[0] : 0;
    uint8_t b = theirs_length > 0 ? theirs[0] : 0;
    if (a == b) {
        return RDMUX_REASON_NONE;
    }
    (void)snprintf(text, RDMUX_TEXT_MAX, "networks %u and %u", a < b ? a : b, a < b ? b : a);
    return RDMUX_REASON_NOT_REACHABLE;
}

static enum rdmux_reason never_silent(const uint8_t *ours, size_t ours_length,
                                      const uint8_t *theirs, size_t theirs_length, char *text)
{
    (void)ours;
    (void)ours_length;
    (void)theirs;
    (void)theirs_length;
    text[0] = '\0';
    return RDMUX_REASON_OTHER_HOST;
}

static enum rdmux_reason forbidden(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                   size_t theirs_length, char *text)
{
    (void)ours;
    (void)ours_length;
    (void)theirs;
    (void)theirs_length;
    (void)snprintf(text, RDMUX_TEXT_MAX, "called");
    fail_msg("reach was called on the peer's path or across a filter");
    return RDMUX_REASON_NONE;
}

/* --------------------------------------------------------------------------------------- offers */

static struct rdmux_offer *new_offer(void)
{
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    assert_non_null(offer);
    offer->max_send = 8 << 20;
    offer->max_recv = 8 << 20;
    return offer;
}

static struct rdmux_offer_path *add_path(struct rdmux_offer *offer, const char *provider,
                                         const char *device)
{
    struct rdmux_offer_path *path = &offer->paths[offer->path_count++];
    (void)snprintf(path->provider, sizeof(path->provider), "%s", provider);
    (void)snprintf(path->path.device, sizeof(path->path.device), "%s", device);
    path->path.reason = RDMUX_REASON_USABLE;
    path->path.bandwidth = UINT64_C(1000000000);
    path->path.latency_ns = 1000;
    path->path.native = 0xfff;
    path->path.reach_length = 1;
    path->reach = same_network;
    return path;
}

static struct rdmux_offer_path *add_tcp(struct rdmux_offer *offer)
{
    struct rdmux_offer_path *path = add_path(offer, "tcp", "");
    path->provider_flags = RDMUX_PROVIDER_LAST_RESORT;
    path->path.latency_ns = 9000;
    return path;
}

static struct rdmux_offer_path *add_unusable(struct rdmux_offer *offer, const char *provider,
                                             const char *device, enum rdmux_reason reason,
                                             const char *text, const char *hint)
{
    struct rdmux_offer_path *path = add_path(offer, provider, device);
    path->path.reason = (uint32_t)reason;
    (void)snprintf(path->path.text, sizeof(path->path.text), "%s", text);
    (void)snprintf(path->path.hint, sizeof(path->path.hint), "%s", hint);
    return path;
}

/* Two sides, and the result of their matching. Freed by finish(). */
struct round {
    struct rdmux_offer *ours;
    struct rdmux_offer *theirs;
    struct rdmux_match *matches;
    size_t count;
};

static struct round start(void)
{
    struct round round = { .ours = new_offer(), .theirs = new_offer() };
    round.matches = calloc(RDMUX_MATCH_MAX, sizeof(*round.matches));
    assert_non_null(round.matches);
    return round;
}

static void finish(struct round *round)
{
    free(round->ours);
    free(round->theirs);
    free(round->matches);
}

static void match(struct round *round, uint64_t size)
{
    round->count = rdmux_match_paths(round->ours, round->theirs, size, round->matches);
    for (size_t i = 0; i < round->count; i++) {
        const struct rdmux_match *one = &round->matches[i];
        assert_true(one->ours != RDMUX_MATCH_NO_PATH || one->theirs != RDMUX_MATCH_NO_PATH);
        assert_true(one->ours == RDMUX_MATCH_NO_PATH || one->ours < round->ours->path_count);
        assert_true(one->theirs == RDMUX_MATCH_NO_PATH || one->theirs < round->theirs->path_count);
        assert_true(one->rank == 0 || one->rank == i + 1);
        assert_true(one->rank != 0 || one->cost_ns == 0);
        assert_int_equal(one->reason == RDMUX_REASON_NONE, one->rank == 1);
        assert_non_null(memchr(one->text, '\0', sizeof(one->text)));
        assert_non_null(memchr(one->hint, '\0', sizeof(one->hint)));
        assert_true(one->text[0] != '\0');
    }
}

/* Providers and ranks of all matches: "shm1 tcp2 ib0". */
static const char *order_of(const struct round *round)
{
    static char text[4096];
    text[0] = '\0';
    for (size_t i = 0; i < round->count; i++) {
        const struct rdmux_match *one = &round->matches[i];
        const char *provider = one->ours != RDMUX_MATCH_NO_PATH
                                   ? round->ours->paths[one->ours].provider
                                   : round->theirs->paths[one->theirs].provider;
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof(text) - used, "%s%s%u", i == 0 ? "" : " ", provider,
                       one->rank);
    }
    return text;
}

static const struct rdmux_match *only_match(const struct round *round)
{
    assert_int_equal(round->count, 1);
    return &round->matches[0];
}

/* ---------------------------------------------------------------------------------------- cost */

static void the_cheapest_path_comes_first_with_its_reason(void **state)
{
    (void)state;
    struct round round = start();
    add_path(round.ours, "ib", "mlx5_0");
    add_path(round.theirs, "ib", "mlx5_0");
    add_path(round.ours, "shm", "")->path.latency_ns = 300;
    add_path(round.theirs, "shm", "")->path.latency_ns = 300;

    match(&round, SIZE);

    assert_string_equal(order_of(&round), "shm1 ib2");
    assert_int_equal(round.matches[0].cost_ns, 300 + 4096);
    assert_int_equal(round.matches[0].stage, RDMUX_STAGE_MATCH);
    assert_int_equal(round.matches[1].reason, RDMUX_REASON_SLOWER);
    assert_string_equal(round.matches[0].text, "4396 ns for 4096 bytes");
    assert_string_equal(round.matches[1].text,
                        "5096 ns for 4096 bytes; before it comes shm with 4396 ns");
    finish(&round);
}

static void the_slower_side_counts(void **state)
{
    (void)state;
    struct round round = start();
    struct rdmux_offer_path *ours = add_path(round.ours, "ib", "");
    struct rdmux_offer_path *theirs = add_path(round.theirs, "ib", "");
    ours->path.latency_ns = 5000;
    ours->path.bandwidth = UINT64_C(100000000000);
    theirs->path.latency_ns = 1000;
    theirs->path.bandwidth = UINT64_C(10000000000);

    match(&round, 1000000);

    assert_int_equal(only_match(&round)->cost_ns, 5000 + 100000);
    finish(&round);
}

static void low_latency_wins_small_messages_and_high_bandwidth_large_ones(void **state)
{
    (void)state;
    struct round round = start();
    for (size_t i = 0; i < 2; i++) {
        struct rdmux_offer *offer = i == 0 ? round.ours : round.theirs;
        struct rdmux_offer_path *quick = add_path(offer, "roce", "quick");
        struct rdmux_offer_path *wide = add_path(offer, "ib", "wide");
        quick->path.latency_ns = 1000;
        quick->path.bandwidth = UINT64_C(1000000000);
        wide->path.latency_ns = 5000;
        wide->path.bandwidth = UINT64_C(10000000000);
    }
    static const struct {
        uint64_t size;
        const char *order;
    } cases[] = {
        { 0, "roce1 ib2" },    { 64, "roce1 ib2" },    { 4443, "roce1 ib2" },
        { 4446, "ib1 roce2" }, { 65536, "ib1 roce2" }, { UINT64_C(1) << 40, "ib1 roce2" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        match(&round, cases[i].size);

        assert_string_equal(order_of(&round), cases[i].order);
    }
    finish(&round);
}

static void a_cost_that_overflows_is_the_largest(void **state)
{
    (void)state;
    static const struct {
        uint64_t size;
        uint64_t bandwidth;
        uint64_t cost;
    } cases[] = {
        { UINT64_MAX, 1, UINT64_MAX },
        { UINT64_MAX, UINT64_MAX, 1000 + UINT64_C(1000000000) },
        { UINT64_MAX - 1, UINT64_MAX, 1000 + UINT64_C(1000000000) }, /* rounded */
        { 1, UINT64_MAX, 1000 },
        { UINT64_MAX, 0, 1000 }, /* no bandwidth given: latency alone */
        { UINT64_C(1) << 40, UINT64_C(1) << 30, 1000 + UINT64_C(1024000000000) },
        { UINT64_C(3) << 39, UINT64_C(1) << 40, 1000 + UINT64_C(1500000000) },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct round round = start();
        add_path(round.ours, "ib", "")->path.bandwidth = cases[i].bandwidth;
        add_path(round.theirs, "ib", "")->path.bandwidth = cases[i].bandwidth;

        match(&round, cases[i].size);

        assert_in_range(only_match(&round)->cost_ns, cases[i].cost - 1, cases[i].cost);
        finish(&round);
    }
}

static void an_unknown_bandwidth_of_one_side_is_taken_from_the_other(void **state)
{
    (void)state;
    struct round round = start();
    add_path(round.ours, "ib", "")->path.bandwidth = 0;
    add_path(round.theirs, "ib", "")->path.bandwidth = UINT64_C(1000000000);

    match(&round, 1000);

    assert_int_equal(only_match(&round)->cost_ns, 2000);
    finish(&round);
}

/* -------------------------------------------------------------------------------------- classes */

static void the_last_resort_comes_last_even_if_it_is_cheaper(void **state)
{
    (void)state;
    struct round round = start();
    add_tcp(round.ours)->path.latency_ns = 1;
    add_tcp(round.theirs)->path.latency_ns = 1;
    add_path(round.ours, "roce", "");
    add_path(round.theirs, "roce", "");

    match(&round, SIZE);

    assert_string_equal(order_of(&round), "roce1 tcp2");
    assert_int_equal(round.matches[1].reason, RDMUX_REASON_SLOWER);
    assert_non_null(strstr(round.matches[1].text, "tcp is the last resort"));
    finish(&round);
}

static void the_last_resort_may_be_known_to_one_side_only(void **state)
{
    (void)state;
    struct round round = start();
    add_tcp(round.ours)->provider_flags = 0;
    add_tcp(round.theirs);
    add_path(round.ours, "roce", "")->path.latency_ns = 1000000;
    add_path(round.theirs, "roce", "");

    match(&round, SIZE);

    assert_string_equal(order_of(&round), "roce1 tcp2");
    finish(&round);
}

static void a_software_device_on_either_side_never_beats_tcp(void **state)
{
    (void)state;
    for (uint32_t which = 1; which <= 3; which++) {
        struct round round = start();
        add_path(round.ours, "roce", "rxe0")->path.software = which & 1;
        add_path(round.theirs, "roce", "rxe0")->path.software = which >> 1;
        add_tcp(round.ours);
        add_tcp(round.theirs);

        match(&round, SIZE);

        assert_string_equal(order_of(&round), "tcp1 roce2");
        assert_int_equal(round.matches[1].reason, RDMUX_REASON_SOFTWARE_DEVICE);
        assert_non_null(strstr(round.matches[1].text, "emulated in software"));
        assert_string_equal(round.matches[1].hint, "to have it all the same, name roce in the path "
                                                   "filter, without tcp and auto");
        finish(&round);
    }
}

static void a_software_device_ranks_by_cost_when_a_side_insists_on_it(void **state)
{
    (void)state;
    static const struct {
        const char *filter;
        const char *order;
    } cases[] = {
        { "", "shm1 tcp2 roce3" },          { "auto", "shm1 tcp2 roce3" },
        { "auto,roce", "shm1 tcp2 roce3" }, { "roce,shm,tcp", "shm1 tcp2 roce3" },
        { "!tcp", "shm1 roce2 tcp0" },      { "roce", "roce1 shm0 tcp0" },
        { "roce,shm", "roce1 shm2 tcp0" },  { "shm,roce,ib", "roce1 shm2 tcp0" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t where = 0; where < 4; where++) {
            struct round round = start();
            for (size_t side = 0; side < 2; side++) {
                struct rdmux_offer *offer = side == 0 ? round.ours : round.theirs;
                struct rdmux_offer_path *soft = add_path(offer, "roce", "rxe0");
                soft->path.software = 1;
                soft->path.latency_ns = 100;
                add_path(offer, "shm", "");
                add_tcp(offer);
            }
            struct rdmux_offer *asking = where < 2 ? round.ours : round.theirs;
            (void)snprintf(asking->filter[where % 2], sizeof(asking->filter[0]), "%s",
                           cases[i].filter);

            match(&round, SIZE);

            assert_string_equal(order_of(&round), cases[i].order);
            finish(&round);
        }
    }
}

static void software_devices_among_themselves_rank_by_cost(void **state)
{
    (void)state;
    struct round round = start();
    add_path(round.ours, "roce", "")->path.software = 1;
    add_path(round.theirs, "roce", "")->path.software = 1;
    add_path(round.ours, "iwarp", "")->path.software = 1;
    add_path(round.theirs, "iwarp", "")->path.software = 1;
    round.ours->paths[1].path.latency_ns = 3000;

    match(&round, SIZE);

    assert_string_equal(order_of(&round), "roce1 iwarp2");
    assert_int_equal(round.matches[1].reason, RDMUX_REASON_SLOWER);
    finish(&round);
}

/* Adds a path of an adapter to both offers: cheaper by its constants than any path of rdmux's own. */
static void add_stand_in(struct round *round)
{
    for (size_t side = 0; side < 2; side++) {
        struct rdmux_offer_path *path = add_path(side == 0 ? round->ours : round->theirs, "ofi",
                                                 "tcp:lo");
        path->provider_flags = RDMUX_PROVIDER_ON_REQUEST;
        path->path.software = 1;
        path->path.latency_ns = 100;
        (void)snprintf(path->path.text, sizeof(path->path.text), "libfabric 1.17");
    }
}

static void a_stand_in_ranks_behind_tcp_until_it_is_measured_faster(void **state)
{
    (void)state;
    static const char *const filters[] = { "auto,ofi", "tcp,roce,ofi" };
    for (size_t i = 0; i < 2; i++) {
        struct round round = start();
        add_stand_in(&round);
        add_tcp(round.ours);
        add_tcp(round.theirs);
        add_path(round.ours, "roce", "rxe0")->path.software = 1;
        add_path(round.theirs, "roce", "rxe0")->path.software = 1;
        (void)snprintf(round.theirs->filter[1], sizeof(round.theirs->filter[1]), "%s", filters[i]);

        match(&round, SIZE);
        assert_string_equal(order_of(&round), "tcp1 ofi2 roce3");
        assert_int_equal(round.matches[1].reason, RDMUX_REASON_SLOWER);
        assert_non_null(strstr(round.matches[1].text, "ofi was not measured faster; libfabric"));
        assert_non_null(strstr(round.matches[1].hint, "let rdmux measure"));
        assert_int_equal(rdmux_match_worth_measuring(round.ours, round.theirs, round.matches, 3), 2);

        round.matches[0].measured.latency_ns = 5000;
        round.matches[1].measured.latency_ns = 6000;
        rdmux_match_rank_measured(round.ours, round.theirs, SIZE, round.matches, 3);
        assert_string_equal(order_of(&round), "tcp1 ofi2 roce3");

        round.matches[1].measured.latency_ns = 4000;
        rdmux_match_rank_measured(round.ours, round.theirs, SIZE, round.matches, 3);
        assert_string_equal(order_of(&round), "ofi1 tcp2 roce3");
        assert_non_null(strstr(round.matches[0].text, "; libfabric 1.17"));
        finish(&round);
    }
}

/* ------------------------------------------------------------------------------------- refusals */

static void a_filter_of_either_side_keeps_a_path_out(void **state)
{
    (void)state;
    for (size_t where = 0; where < 4; where++) {
        struct round round = start();
        add_tcp(round.ours);
        add_tcp(round.theirs);
        add_path(round.ours, "shm", "")->reach = forbidden;
        add_path(round.theirs, "shm", "")->reach = forbidden;
        strcpy((where < 2 ? round.ours : round.theirs)->filter[where % 2], "!shm");

        match(&round, SIZE);

        assert_string_equal(order_of(&round), "tcp1 shm0");
        assert_int_equal(round.matches[1].reason, RDMUX_REASON_FILTERED);
        assert_string_equal(round.matches[1].text,
                            where < 2 ? "the acceptor's filter \"!shm\" leaves shm out"
                                      : "the connector's filter \"!shm\" leaves shm out");
        assert_non_null(strstr(round.matches[1].hint, "RDMUX_PATHS"));
        finish(&round);
    }
}

static void filters_with_nothing_in_common_leave_no_path(void **state)
{
    (void)state;
    struct round round = start();
    add_tcp(round.ours);
    add_tcp(round.theirs);
    add_path(round.ours, "shm", "");
    add_path(round.theirs, "shm", "");
    strcpy(round.ours->filter[0], "tcp");
    strcpy(round.theirs->filter[1], "shm");

    match(&round, SIZE);

    assert_string_equal(order_of(&round), "shm0 tcp0");
    assert_int_equal(round.matches[0].reason, RDMUX_REASON_FILTERED);
    assert_int_equal(round.matches[1].reason, RDMUX_REASON_FILTERED);
    finish(&round);
}

static void paths_that_cannot_reach_each_other_have_that_reason(void **state)
{
    (void)state;
    struct round round = start();
    add_path(round.ours, "roce", "a")->path.reach[0] = 1;
    add_path(round.ours, "roce", "b")->path.reach[0] = 2;
    add_path(round.theirs, "roce", "c")->path.reach[0] = 2;
    round.theirs->paths[0].reach = forbidden;

    match(&round, SIZE);

    assert_string_equal(order_of(&round), "roce1 roce0");
    assert_int_equal(round.matches[0].ours, 1);
    assert_int_equal(round.matches[1].ours, 0);
    assert_int_equal(round.matches[1].reason, RDMUX_REASON_NOT_REACHABLE);
    assert_string_equal(round.matches[1].text, "networks 1 and 2");
    assert_string_not_equal(round.matches[1].hint, "");
    finish(&round);
}

static void a_reason_without_a_providers_text_gets_a_default_text(void **state)
{
    (void)state;
    struct round round = start();
    add_path(round.ours, "ib", "mlx5_0")->reach = never_silent;
    add_path(round.theirs, "ib", "mlx5_1");

    match(&round, SIZE);

    assert_int_equal(only_match(&round)->reason, RDMUX_REASON_OTHER_HOST);
    assert_string_equal(only_match(&round)->text,
                        "the acceptor's ib mlx5_0 cannot reach the connector's");
    finish(&round);
}

static void the_reach_check_gets_our_bytes_first(void **state)
{
    (void)state;
    struct round round = start();
    add_path(round.ours, "ib", "")->path.reach[0] = 7;
    add_path(round.theirs, "ib", "")->path.reach[0] = 7;
    round.theirs->paths[0].path.reach_length = 0;

    match(&round, SIZE);

    assert_string_equal(only_match(&round)->text, "networks 0 and 7");
    finish(&round);
}

static void a_required_capability_may_be_emulated_unless_it_must_be_native(void **state)
{
    (void)state;
    static const struct {
        uint64_t require;
        uint64_t require_native;
        enum rdmux_reason reason;
        const char *text;
    } cases[] = {
        { RDMUX_CAP_SEND, RDMUX_CAP_SEND, RDMUX_REASON_NONE, NULL },
        { RDMUX_CAP_FETCH_ADD, 0, RDMUX_REASON_NONE, NULL },
        { 0, RDMUX_CAP_FETCH_ADD, RDMUX_REASON_CAPABILITY_MISSING,
          "emulates fetch_add, which the %s requires natively" },
        { RDMUX_CAP_SRQ, 0, RDMUX_REASON_CAPABILITY_MISSING, "lacks srq, which the %s requires" },
        { 0, RDMUX_CAP_SRQ | RDMUX_CAP_PLACED, RDMUX_REASON_CAPABILITY_MISSING,
          "lacks placed, srq, which the %s requires" },
        { UINT64_C(1) << 50, 0, RDMUX_REASON_CAPABILITY_MISSING,
          "lacks a capability unknown here, which the %s requires" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t side = 0; side < 2; side++) {
            struct round round = start();
            struct rdmux_local_path *ours = &add_path(round.ours, "ib", "")->path;
            struct rdmux_local_path *theirs = &add_path(round.theirs, "ib", "")->path;
            ours->native = RDMUX_CAP_SEND | RDMUX_CAP_READ | RDMUX_CAP_SRQ;
            theirs->native = RDMUX_CAP_SEND | RDMUX_CAP_FETCH_ADD;
            ours->emulated = RDMUX_CAP_FETCH_ADD;
            theirs->emulated = RDMUX_CAP_READ | RDMUX_CAP_PLACED;
            struct rdmux_offer *asking = side == 0 ? round.ours : round.theirs;
            asking->require = cases[i].require;
            asking->require_native = cases[i].require_native;

            match(&round, SIZE);

            const struct rdmux_match *one = only_match(&round);
            assert_int_equal(one->reason, cases[i].reason);
            assert_int_equal(one->native, RDMUX_CAP_SEND);
            assert_int_equal(one->emulated, RDMUX_CAP_READ | RDMUX_CAP_FETCH_ADD);
            if (cases[i].text != NULL) {
                char expected[RDMUX_TEXT_MAX];
                const char *who = side == 0 ? "acceptor" : "connector";
                const char *place = strstr(cases[i].text, "%s");
                (void)snprintf(expected, sizeof(expected), "%.*s%s%s", (int)(place - cases[i].text),
                               cases[i].text, who, place + 2);
                assert_string_equal(one->text, expected);
                assert_string_not_equal(one->hint, "");
            }
            finish(&round);
        }
    }
}

static void a_capability_both_sides_require_names_both(void **state)
{
    (void)state;
    struct round round = start();
    add_path(round.ours, "ib", "")->path.native = 0;
    add_path(round.theirs, "ib", "");
    round.ours->require = RDMUX_CAP_READ;
    round.theirs->require_native = RDMUX_CAP_READ;

    match(&round, SIZE);

    assert_string_equal(only_match(&round)->text, "lacks read, which both sides require");
    finish(&round);
}

static void a_path_is_ruled_out_by_messages_longer_than_its_limit(void **state)
{
    (void)state;
    static const struct {
        uint64_t send;     /* ours */
        uint64_t recv;     /* theirs */
        uint64_t limit[2]; /* of the path, ours and theirs */
        bool fits;
    } cases[] = {
        { 4096, 8192, { 4096, 0 }, true },    { 4097, 8192, { 4096, 0 }, false },
        { 4097, 8192, { 0, 4096 }, false },   { 4097, 8192, { 8192, 4096 }, false },
        { 8192, 4096, { 4096, 4096 }, true }, { 8192, 8192, { 0, 0 }, true },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t direction = 0; direction < 2; direction++) {
            struct round round = start();
            struct rdmux_offer *sender = direction == 0 ? round.ours : round.theirs;
            struct rdmux_offer *receiver = direction == 0 ? round.theirs : round.ours;
            add_path(round.ours, "ib", "")->path.max_message = cases[i].limit[0];
            add_path(round.theirs, "ib", "")->path.max_message = cases[i].limit[1];
            sender->max_send = cases[i].send;
            receiver->max_recv = cases[i].recv;
            sender->max_recv = receiver->max_send = 1;

            match(&round, SIZE);

            assert_int_equal(only_match(&round)->reason,
                             cases[i].fits ? RDMUX_REASON_NONE : RDMUX_REASON_LIMIT_MISMATCH);
            finish(&round);
        }
    }
}

static void a_wish_for_long_messages_rules_out_no_path(void **state)
{
    (void)state;
    for (int direction = 0; direction < 2; direction++) {
        struct round round = start();
        struct rdmux_offer *sender = direction == 0 ? round.ours : round.theirs;
        struct rdmux_offer *receiver = direction == 0 ? round.theirs : round.ours;
        add_path(round.ours, "ib", "")->path.max_message = 8192;
        add_path(round.theirs, "ib", "")->path.max_message = 4096;
        sender->max_send = receiver->max_recv = 5000;
        sender->max_recv = receiver->max_send = 100;
        sender->send_wish = 1;

        match(&round, SIZE);

        const struct rdmux_match *only = only_match(&round);
        const struct rdmux_message_limits limits = rdmux_match_messages(
            sender, receiver, rdmux_match_limit(round.ours, round.theirs, only));
        assert_int_equal(only->reason, RDMUX_REASON_NONE);
        assert_non_null(strstr(only->text, direction == 0
                                               ? "; the acceptor wishes to send messages of 5000 "
                                                 "bytes, this path takes 4096"
                                               : "; the connector wishes to send messages of 5000 "
                                                 "bytes, this path takes 4096"));
        assert_int_equal(limits.send, 4096);
        assert_int_equal(limits.receive, 100);
        finish(&round);
    }
}

static void a_wish_that_a_path_grants_in_full_is_not_explained(void **state)
{
    (void)state;
    static const uint64_t limits[] = { 0, 5000, 5001 };
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct round round = start();
        add_path(round.ours, "ib", "")->path.max_message = limits[i];
        add_path(round.theirs, "ib", "");
        round.ours->max_send = round.theirs->max_recv = 5000;
        round.ours->send_wish = 1;

        match(&round, SIZE);

        assert_null(strstr(only_match(&round)->text, "wishes"));
        assert_int_equal(rdmux_match_messages(round.ours, round.theirs, limits[i]).send, 5000);
        finish(&round);
    }
}

/* A wish of one side does not turn the demand of the other one into a wish. */
static void a_demand_rules_out_a_path_whatever_the_other_side_wishes(void **state)
{
    (void)state;
    struct round round = start();
    add_path(round.ours, "ib", "")->path.max_message = 4096;
    add_path(round.theirs, "ib", "");
    round.ours->max_send = round.ours->max_recv = 5000;
    round.theirs->max_send = round.theirs->max_recv = 5000;
    round.ours->send_wish = 1;

    match(&round, SIZE);

    assert_int_equal(only_match(&round)->reason, RDMUX_REASON_LIMIT_MISMATCH);
    assert_non_null(strstr(only_match(&round)->hint, "RDMUX_EP_SEND_WISH"));
    finish(&round);
}

static void a_demand_for_encryption_rules_out_unencrypted_paths(void **state)
{
    (void)state;
    struct round round = start();
    add_tcp(round.ours)->path.security = RDMUX_SECURITY_TOKEN;
    add_tcp(round.theirs)->path.security = RDMUX_SECURITY_ENCRYPTED;
    round.theirs->require_encryption = 1;

    match(&round, SIZE);

    assert_int_equal(only_match(&round)->reason, RDMUX_REASON_NOT_ENCRYPTED);
    assert_string_equal(only_match(&round)->text,
                        "the connector requires encryption, the security of this path is: token");
    finish(&round);
}

/* --------------------------------------------------------------------------- paths without pair */

static void an_unusable_path_keeps_its_reason_and_names_its_side(void **state)
{
    (void)state;
    struct round round = start();
    add_unusable(round.ours, "ib", "mlx5_0", RDMUX_REASON_PORT_DOWN, "port 1 is down",
                 "plug the cable in");
    add_unusable(round.theirs, "roce", "", RDMUX_REASON_NO_LIBRARY, "", "");

    match(&round, SIZE);

    assert_string_equal(order_of(&round), "ib0 roce0");
    assert_int_equal(round.matches[0].ours, 0);
    assert_int_equal(round.matches[0].theirs, RDMUX_MATCH_NO_PATH);
    assert_int_equal(round.matches[0].stage, RDMUX_STAGE_PROBE);
    assert_int_equal(round.matches[0].reason, RDMUX_REASON_PORT_DOWN);
    assert_string_equal(round.matches[0].text, "acceptor: port 1 is down");
    assert_string_equal(round.matches[0].hint, "acceptor: plug the cable in");
    assert_int_equal(round.matches[1].ours, RDMUX_MATCH_NO_PATH);
    assert_int_equal(round.matches[1].reason, RDMUX_REASON_NO_LIBRARY);
    assert_string_equal(round.matches[1].text, "connector: NO_LIBRARY");
    assert_string_equal(round.matches[1].hint, "");
    finish(&round);
}

static void a_provider_that_both_sides_lack_is_one_candidate(void **state)
{
    (void)state;
    struct round round = start();
    add_unusable(round.ours, "ib", "", RDMUX_REASON_NO_DEVICE, "no device", "buy one");
    add_unusable(round.theirs, "roce", "", RDMUX_REASON_NO_DEVICE, "no device", "buy one");
    add_unusable(round.theirs, "ib", "", RDMUX_REASON_NO_DEVICE, "no device", "buy one");
    add_unusable(round.ours, "roce", "", RDMUX_REASON_NO_DEVICE, "another text", "buy one");

    match(&round, SIZE);

    assert_string_equal(order_of(&round), "ib0 roce0 roce0");
    assert_int_equal(round.matches[0].ours, 0);
    assert_int_equal(round.matches[0].theirs, 1);
    assert_string_equal(round.matches[0].text, "both sides: no device");
    assert_string_equal(round.matches[0].hint, "both sides: buy one");
    finish(&round);
}

static void a_usable_path_without_a_counterpart_names_the_side_that_lacks_it(void **state)
{
    (void)state;
    struct round round = start();
    add_path(round.ours, "ib", "mlx5_0");
    add_path(round.theirs, "iwarp", "cxgb4_0");
    add_unusable(round.theirs, "ib", "mlx5_9", RDMUX_REASON_PORT_DOWN, "port 1 is down", "");

    match(&round, SIZE);

    assert_string_equal(order_of(&round), "ib0 iwarp0 ib0");
    assert_int_equal(round.matches[0].reason, RDMUX_REASON_PEER_HAS_NONE);
    assert_int_equal(round.matches[0].stage, RDMUX_STAGE_MATCH);
    assert_string_equal(round.matches[0].text,
                        "the connector has no usable ib path: port 1 is down");
    assert_int_equal(round.matches[1].reason, RDMUX_REASON_PEER_HAS_NONE);
    assert_int_equal(round.matches[1].theirs, 0);
    assert_string_equal(round.matches[1].text, "the acceptor has no usable iwarp path");
    assert_string_equal(round.matches[2].text, "connector: port 1 is down");
    finish(&round);
}

static void an_unusable_path_is_never_eligible_whatever_its_reason(void **state)
{
    (void)state;
    static const enum rdmux_reason reasons[] = { RDMUX_REASON_NONE, RDMUX_REASON_CHOSEN,
                                                 RDMUX_REASON_SLOWER };
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        struct round round = start();
        add_unusable(round.theirs, "ib", "", reasons[i], "", "");

        match(&round, SIZE);

        assert_int_equal(only_match(&round)->rank, 0);
        assert_int_equal(only_match(&round)->reason, RDMUX_REASON_NO_DEVICE);
        finish(&round);
    }
}

static void two_empty_offers_have_no_candidates(void **state)
{
    (void)state;
    struct round round = start();

    match(&round, SIZE);

    assert_int_equal(round.count, 0);
    finish(&round);
}

/* ---------------------------------------------------------------------------------------- order */

static void ties_are_broken_by_provider_and_device_names(void **state)
{
    (void)state;
    struct round round = start();
    static const char *const ours[][2] = { { "roce", "b" }, { "ib", "z" }, { "roce", "a" } };
    static const char *const theirs[][2] = { { "roce", "c" }, { "ib", "y" }, { "roce", "a" } };
    for (size_t i = 0; i < 3; i++) {
        add_path(round.ours, ours[i][0], ours[i][1]);
        add_path(round.theirs, theirs[i][0], theirs[i][1]);
    }
    /* by the lower name, then the other: ib y z, roce a a, a b, a c, b c */
    static const uint16_t expected[][2] = { { 1, 1 }, { 2, 2 }, { 0, 2 }, { 2, 0 }, { 0, 0 } };

    match(&round, SIZE);

    assert_string_equal(order_of(&round), "ib1 roce2 roce3 roce4 roce5");
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(round.matches[i].ours, expected[i][0]);
        assert_int_equal(round.matches[i].theirs, expected[i][1]);
        assert_int_equal(round.matches[i].cost_ns, round.matches[0].cost_ns);
    }
    finish(&round);
}

static void the_best_pairs_stay_when_there_are_too_many(void **state)
{
    (void)state;
    struct round round = start();
    for (uint32_t i = 0; i < RDMUX_OFFER_PATHS_MAX; i++) {
        char device[16];
        (void)snprintf(device, sizeof(device), "dev%02u", i);
        add_path(round.ours, "ib", device)->path.latency_ns = 2000 - i;
        add_path(round.theirs, "ib", device)->path.latency_ns = 10;
    }

    match(&round, 0);

    assert_int_equal(round.count, RDMUX_MATCH_MAX);
    for (size_t i = 0; i < round.count; i++) {
        assert_int_equal(round.matches[i].rank, i + 1);
        assert_int_equal(round.matches[i].ours, 31 - i / 32);
    }
    finish(&round);
}

/* The same sequence on every machine. */
static uint32_t random_number(uint32_t *seed, uint32_t below)
{
    *seed = (uint32_t)((uint64_t)*seed * 48271 % 2147483647);
    return *seed % below;
}

/* Few values for everything, so that ties and all verdicts are frequent. Addresses tell the sides
 * apart. */
static void fill_randomly(struct rdmux_offer *offer, uint32_t *seed, const char *address)
{
    static const char *const providers[] = { "ib", "roce", "shm", "tcp" };
    static const char *const filters[] = {
        "", "", "", "!shm", "roce", "roce,tcp", "ib,roce,shm,tcp"
    };
    offer->path_count = 0;
    uint32_t count = random_number(seed, 10);
    for (uint32_t i = 0; i < count; i++) {
        const char *provider = providers[random_number(seed, 4)];
        char device[2] = { (char)('a' + (char)random_number(seed, 3)), '\0' };
        struct rdmux_offer_path *path = add_path(offer, provider,
                                                 random_number(seed, 4) == 0 ? "" : device);
        path->provider_flags = strcmp(provider, "tcp") == 0 ? RDMUX_PROVIDER_LAST_RESORT : 0;
        path->path.software = random_number(seed, 4) == 0;
        path->path.latency_ns = 1000 * (1 + random_number(seed, 2));
        path->path.bandwidth = UINT64_C(1000000000) * (1 + random_number(seed, 2));
        path->path.native = 0xfff & ~(uint64_t)(random_number(seed, 3) == 0 ? RDMUX_CAP_SRQ : 0);
        path->path.emulated = random_number(seed, 3) == 0 ? RDMUX_CAP_SRQ : 0;
        path->path.reach[0] = (uint8_t)random_number(seed, 2);
        path->path.reason = random_number(seed, 4) == 0 ? RDMUX_REASON_NO_DEVICE
                                                        : RDMUX_REASON_USABLE;
        path->path.max_message = random_number(seed, 8) == 0 ? 4096 : 0;
        (void)snprintf(path->path.address, sizeof(path->path.address), "%s%u", address, i);
    }
    (void)snprintf(offer->filter[0], sizeof(offer->filter[0]), "%s",
                   filters[random_number(seed, 7)]);
    (void)snprintf(offer->filter[1], sizeof(offer->filter[1]), "%s",
                   filters[random_number(seed, 4)]);
    offer->require = random_number(seed, 3) == 0 ? RDMUX_CAP_SRQ : 0;
    offer->require_native = random_number(seed, 6) == 0 ? RDMUX_CAP_SRQ : 0;
}

static void both_sides_get_the_same_order(void **state)
{
    (void)state;
    uint32_t seed = 1;
    size_t ranked = 0;
    for (size_t i = 0; i < 3000; i++) {
        struct round there = start();
        struct round back = start();
        fill_randomly(there.ours, &seed, "192.0.2.");
        fill_randomly(there.theirs, &seed, "198.51.100.");
        *back.ours = *there.theirs;
        *back.theirs = *there.ours;
        uint64_t size = (uint64_t)random_number(&seed, 3) * 4096;

        match(&there, size);
        match(&back, size);

        assert_int_equal(there.count, back.count);
        for (size_t j = 0; j < there.count; j++) {
            const struct rdmux_match *a = &there.matches[j];
            const struct rdmux_match *b = &back.matches[j];
            assert_int_equal(a->ours, b->theirs);
            assert_int_equal(a->theirs, b->ours);
            assert_int_equal(a->rank, b->rank);
            assert_int_equal(a->reason, b->reason);
            assert_int_equal(a->stage, b->stage);
            assert_int_equal(a->cost_ns, b->cost_ns);
            assert_int_equal(a->native, b->native);
            assert_int_equal(a->emulated, b->emulated);
            ranked += a->rank != 0;
        }
        finish(&there);
        finish(&back);
    }
    assert_true(ranked > 1000);
}

/* Tells whether a path that no match names is one of several that lack the same thing, which is
 * reported once. */
static bool may_be_untold(const struct rdmux_offer_path *path)
{
    return path->path.reason != RDMUX_REASON_USABLE && path->path.device[0] == '\0';
}

static void every_path_is_in_a_candidate(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (size_t i = 0; i < 500; i++) {
        struct round round = start();
        bool ours_told[RDMUX_OFFER_PATHS_MAX] = { false };
        bool theirs_told[RDMUX_OFFER_PATHS_MAX] = { false };
        fill_randomly(round.ours, &seed, "a");
        fill_randomly(round.theirs, &seed, "b");

        match(&round, SIZE);

        assert_true(round.count < RDMUX_MATCH_MAX);
        for (size_t j = 0; j < round.count; j++) {
            const struct rdmux_match *one = &round.matches[j];
            if (one->ours != RDMUX_MATCH_NO_PATH) {
                ours_told[one->ours] = true;
            }
            if (one->theirs != RDMUX_MATCH_NO_PATH) {
                theirs_told[one->theirs] = true;
            }
        }
        for (uint32_t j = 0; j < RDMUX_OFFER_PATHS_MAX; j++) {
            assert_true(j >= round.ours->path_count || ours_told[j] ||
                        may_be_untold(&round.ours->paths[j]));
            assert_true(j >= round.theirs->path_count || theirs_told[j] ||
                        may_be_untold(&round.theirs->paths[j]));
        }
        finish(&round);
    }
}

static void a_process_that_connects_to_itself_gets_an_order(void **state)
{
    (void)state;
    struct round round = start();
    add_path(round.ours, "ib", "a");
    add_path(round.ours, "ib", "b");
    add_unusable(round.ours, "roce", "", RDMUX_REASON_NO_DEVICE, "no device", "");

    size_t count = rdmux_match_paths(round.ours, round.ours, SIZE, round.matches);

    assert_int_equal(count, 5);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(round.matches[i].rank, i + 1);
    }
    assert_int_equal(round.matches[0].ours + round.matches[0].theirs, 0);
    assert_int_equal(round.matches[3].ours + round.matches[3].theirs, 2);
    assert_string_equal(round.matches[4].text, "both sides: no device");
    finish(&round);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cheapest_path_comes_first_with_its_reason),
        cmocka_unit_test(the_slower_side_counts),
        cmocka_unit_test(low_latency_wins_small_messages_and_high_bandwidth_large_ones),
        cmocka_unit_test(a_cost_that_overflows_is_the_largest),
        cmocka_unit_test(an_unknown_bandwidth_of_one_side_is_taken_from_the_other),
        cmocka_unit_test(the_last_resort_comes_last_even_if_it_is_cheaper),
        cmocka_unit_test(the_last_resort_may_be_known_to_one_side_only),
        cmocka_unit_test(a_software_device_on_either_side_never_beats_tcp),
        cmocka_unit_test(a_software_device_ranks_by_cost_when_a_side_insists_on_it),
        cmocka_unit_test(software_devices_among_themselves_rank_by_cost),
        cmocka_unit_test(a_stand_in_ranks_behind_tcp_until_it_is_measured_faster),
        cmocka_unit_test(a_filter_of_either_side_keeps_a_path_out),
        cmocka_unit_test(filters_with_nothing_in_common_leave_no_path),
        cmocka_unit_test(paths_that_cannot_reach_each_other_have_that_reason),
        cmocka_unit_test(a_reason_without_a_providers_text_gets_a_default_text),
        cmocka_unit_test(the_reach_check_gets_our_bytes_first),
        cmocka_unit_test(a_required_capability_may_be_emulated_unless_it_must_be_native),
        cmocka_unit_test(a_capability_both_sides_require_names_both),
        cmocka_unit_test(a_path_is_ruled_out_by_messages_longer_than_its_limit),
        cmocka_unit_test(a_wish_for_long_messages_rules_out_no_path),
        cmocka_unit_test(a_wish_that_a_path_grants_in_full_is_not_explained),
        cmocka_unit_test(a_demand_rules_out_a_path_whatever_the_other_side_wishes),
        cmocka_unit_test(a_demand_for_encryption_rules_out_unencrypted_paths),
        cmocka_unit_test(an_unusable_path_keeps_its_reason_and_names_its_side),
        cmocka_unit_test(a_provider_that_both_sides_lack_is_one_candidate),
        cmocka_unit_test(a_usable_path_without_a_counterpart_names_the_side_that_lacks_it),
        cmocka_unit_test(an_unusable_path_is_never_eligible_whatever_its_reason),
        cmocka_unit_test(two_empty_offers_have_no_candidates),
        cmocka_unit_test(ties_are_broken_by_provider_and_device_names),
        cmocka_unit_test(the_best_pairs_stay_when_there_are_too_many),
        cmocka_unit_test(both_sides_get_the_same_order),
        cmocka_unit_test(every_path_is_in_a_candidate),
        cmocka_unit_test(a_process_that_connects_to_itself_gets_an_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
