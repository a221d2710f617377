/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The index of spans: what a search finds, and searches during changes. */
#include "api/base/span_index.h"
#include "tests/unit/fake_fabric.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    MANY = 10000,
    SPANS_MAX = 300, /* of the random test: several tables */
    SPACE = 512,     /* its addresses */
    CHANGES = 4000,
    SEARCHES = 20000,
    SEARCHERS = 3,
};

struct scene {
    struct fake_fabric *fake;
    struct rdmux_span_index *index;
};

static struct scene set_scene(void)
{
    struct fake_fabric *fake = fake_fabric_create();
    struct scene scene = { fake, rdmux_span_index_create(&fake->fabric) };
    assert_non_null(scene.index);
    return scene;
}

static void clear_scene(struct scene *scene)
{
    rdmux_span_index_destroy(scene->index);
    assert_int_equal(fake_fabric_destroy(scene->fake), 0);
}

static void add(struct scene *scene, uintptr_t first, uintptr_t last, uint32_t rights, void *item)
{
    const struct rdmux_span span = { first, last, rights, item };
    assert_int_equal(rdmux_span_index_reserve(scene->index), RDMUX_OK);
    rdmux_span_index_add(scene->index, &span);
}

static void *find(struct scene *scene, uintptr_t first, uintptr_t last, uint32_t rights)
{
    return rdmux_span_index_find(scene->index, first, last, rights, NULL);
}

/* ---------------------------------------------------------------------------------- what is found */

static void a_span_is_found_by_any_bytes_in_it_and_by_no_others(void **state)
{
    (void)state;
    struct scene scene = set_scene();
    int item;
    for (int sorted = 0; sorted < 2; sorted++) {
        assert_ptr_equal(find(&scene, 100, 199, 0), sorted ? &item : NULL);
        if (sorted == 0) {
            add(&scene, 100, 199, 0, &item);
        }
        assert_ptr_equal(find(&scene, 100, 199, 0), &item);
        assert_ptr_equal(find(&scene, 100, 100, 0), &item);
        assert_ptr_equal(find(&scene, 199, 199, 0), &item);
        assert_null(find(&scene, 99, 100, 0));
        assert_null(find(&scene, 199, 200, 0));
        assert_null(find(&scene, 99, 200, 0));
        assert_null(find(&scene, 0, 0, 0));
        assert_null(find(&scene, UINTPTR_MAX, UINTPTR_MAX, 0));
        for (int i = 0; i < 2 * RDMUX_SPAN_FRESH_MAX && sorted == 0; i++) {
            add(&scene, 5000, 5000, 0, &scene); /* a table follows with the span in order */
        }
    }
    clear_scene(&scene);
}

static void the_first_and_the_last_address_are_in_spans(void **state)
{
    (void)state;
    struct scene scene = set_scene();
    int whole;
    int end;
    add(&scene, UINTPTR_MAX, UINTPTR_MAX, 1, &end);
    assert_ptr_equal(find(&scene, UINTPTR_MAX, UINTPTR_MAX, 1), &end);
    add(&scene, 0, UINTPTR_MAX, 2, &whole);
    assert_ptr_equal(find(&scene, 0, UINTPTR_MAX, 0), &whole);
    assert_ptr_equal(find(&scene, UINTPTR_MAX, UINTPTR_MAX, 2), &whole);
    clear_scene(&scene);
}

static void rights_choose_among_spans_over_the_same_bytes(void **state)
{
    (void)state;
    struct scene scene = set_scene();
    int items[8];
    for (uint32_t rights = 0; rights < 8; rights++) {
        add(&scene, 10, 20, rights, &items[rights]);
    }
    for (int sorted = 0; sorted < 2; sorted++) {
        for (uint32_t rights = 1; rights < 8; rights++) {
            const int *found = find(&scene, 12, 20, rights);
            assert_non_null(found);
            assert_int_equal((uint32_t)(found - items) & rights, rights);
        }
        assert_null(find(&scene, 12, 20, 8));
        for (int i = 0; i < 2 * RDMUX_SPAN_FRESH_MAX && sorted == 0; i++) {
            add(&scene, 5000, 5000, 0, &scene);
        }
    }
    clear_scene(&scene);
}

/* One that covers all, and many below it: bytes of two neighbours are in the first alone. */
static void one_of_ten_thousand_overlapping_spans_is_found(void **state)
{
    (void)state;
    struct scene scene = set_scene();
    static char items[MANY];
    int outer;
    add(&scene, 0, (uintptr_t)MANY * 10, 0, &outer);
    for (uintptr_t i = 0; i < MANY; i++) {
        const uintptr_t at = i * 7919 % MANY; /* in no order */
        add(&scene, at * 10, at * 10 + 9, 1, &items[at]);
    }

    for (uintptr_t i = 0; i + 1 < MANY; i++) {
        assert_ptr_equal(find(&scene, i * 10 + 1, i * 10 + 9, 1), &items[i]);
        assert_ptr_equal(find(&scene, i * 10 + 9, i * 10 + 10, 0), &outer);
        assert_null(find(&scene, i * 10 + 9, i * 10 + 10, 1));
    }
    for (uintptr_t i = 0; i < MANY; i++) {
        rdmux_span_index_remove(scene.index, i * 10, &items[i]);
        assert_null(find(&scene, i * 10, i * 10 + 9, 1));
        assert_ptr_equal(find(&scene, i * 10, i * 10 + 9, 0), &outer);
    }
    clear_scene(&scene);
}

static uint32_t next_random(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525U + 1013904223U;
    return (uint32_t)(((uint64_t)*state * below) >> 32);
}

static bool covers(const struct rdmux_span *span, uintptr_t first, uintptr_t last, uint32_t rights)
{
    return span->item != NULL && span->first <= first && span->last >= last &&
           (span->rights & rights) == rights;
}

/* Compares each search with a look at all spans. */
static void check_search(struct scene *scene, const struct rdmux_span *spans, uint32_t *random)
{
    const uintptr_t first = next_random(random, SPACE);
    const uintptr_t last = first + next_random(random, 30);
    const uint32_t rights = next_random(random, 4);
    const struct rdmux_span *found = find(scene, first, last, rights);
    if (found != NULL) {
        assert_true(covers(found, first, last, rights));
        return;
    }
    for (size_t i = 0; i < SPANS_MAX; i++) {
        assert_false(covers(&spans[i], first, last, rights));
    }
}

static void a_search_finds_what_a_look_at_all_spans_finds(void **state)
{
    (void)state;
    struct scene scene = set_scene();
    struct rdmux_span spans[SPANS_MAX] = { { .item = NULL } };
    uint32_t random = 1;
    for (int i = 0; i < CHANGES; i++) {
        struct rdmux_span *span = &spans[next_random(&random, SPANS_MAX)];
        if (span->item != NULL) {
            rdmux_span_index_remove(scene.index, span->first, span);
            span->item = NULL;
        } else {
            span->first = next_random(&random, SPACE);
            span->last = span->first + next_random(&random, i % 50 == 0 ? SPACE : 40);
            span->rights = next_random(&random, 4);
            span->item = span;
            add(&scene, span->first, span->last, span->rights, span);
        }
        for (int j = 0; j < 5; j++) {
            check_search(&scene, spans, &random);
        }
    }
    clear_scene(&scene);
}

/* --------------------------------------------------------------------------------- the last hit */

static void a_hit_answers_until_a_span_is_removed(void **state)
{
    (void)state;
    struct scene scene = set_scene();
    struct rdmux_span_hit hit = { .removals = 0 };
    int inner;
    int outer;
    add(&scene, 100, 199, 1, &inner);
    assert_ptr_equal(rdmux_span_index_find(scene.index, 110, 120, 1, &hit), &inner);
    assert_ptr_equal(hit.span.item, &inner);
    assert_ptr_equal(rdmux_span_index_find(scene.index, 199, 199, 1, &hit), &inner);

    assert_null(rdmux_span_index_find(scene.index, 199, 200, 1, &hit));
    assert_null(rdmux_span_index_find(scene.index, 110, 120, 2, &hit));
    add(&scene, 50, 300, 3, &outer);
    assert_ptr_equal(rdmux_span_index_find(scene.index, 110, 120, 2, &hit), &outer);
    rdmux_span_index_remove(scene.index, 50, &outer);
    assert_null(rdmux_span_index_find(scene.index, 110, 120, 2, &hit));
    assert_ptr_equal(rdmux_span_index_find(scene.index, 110, 120, 1, &hit), &inner);
    rdmux_span_index_remove(scene.index, 100, &inner);
    assert_null(rdmux_span_index_find(scene.index, 110, 120, 1, &hit));
    clear_scene(&scene);
}

/* --------------------------------------------------------------------------------------- memory */

static void without_memory_a_span_is_removed_and_none_is_added(void **state)
{
    (void)state;
    struct scene scene = set_scene();
    static char items[4 * RDMUX_SPAN_FRESH_MAX];
    for (uintptr_t i = 0; i < RDMUX_SPAN_FRESH_MAX; i++) {
        add(&scene, i * 10, i * 10 + 9, 0, &items[i]);
    }
    scene.fake->allocations = 0;
    assert_int_equal(rdmux_span_index_reserve(scene.index), RDMUX_NO_MEMORY);
    assert_ptr_equal(find(&scene, 0, 9, 0), &items[0]);
    scene.fake->allocations = -1;
    for (uintptr_t i = RDMUX_SPAN_FRESH_MAX; i < sizeof(items); i++) {
        add(&scene, i * 10, i * 10 + 9, 0, &items[i]);
    }

    scene.fake->allocations = 0;
    for (uintptr_t i = 0; i < sizeof(items); i++) {
        assert_ptr_equal(find(&scene, i * 10, i * 10 + 9, 0), &items[i]);
        rdmux_span_index_remove(scene.index, i * 10, &items[i]);
        assert_null(find(&scene, i * 10, i * 10 + 9, 0));
    }

    scene.fake->allocations = -1;
    add(&scene, 7, 8, 0, &items[0]);
    assert_ptr_equal(find(&scene, 7, 8, 0), &items[0]);
    clear_scene(&scene);
}

static void an_index_is_created_whole_or_not_at_all(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    const size_t before = fake->live;
    long allocations = 0;
    struct rdmux_span_index *index = NULL;
    for (; index == NULL; allocations++) {
        fake->allocations = allocations;
        index = rdmux_span_index_create(&fake->fabric);
        assert_true(index != NULL || fake->live == before);
    }
    fake->allocations = -1;
    assert_int_equal(allocations, 3);
    rdmux_span_index_destroy(index);
    rdmux_span_index_destroy(NULL);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

/* -------------------------------------------------------------------------------------- threads */

struct searcher {
    struct scene *scene;
    pthread_t thread;
    uint32_t random;
    int *standing; /* an item that is there all the time */
    size_t wrong;
};

/* Spans come and go over 1000 to 1999, and one stands at 500. */
static void *search_on(void *user)
{
    struct searcher *searcher = user;
    struct rdmux_span_hit hit = { .removals = 0 };
    for (int i = 0; i < SEARCHES; i++) {
        const uintptr_t at = 1000 + next_random(&searcher->random, 1000);
        const uintptr_t *item = rdmux_span_index_find(searcher->scene->index, at, at, 0, NULL);
        searcher->wrong += item != NULL && *item != at / 10;
        searcher->wrong += rdmux_span_index_find(searcher->scene->index, 500, 509, 1, &hit) !=
                           searcher->standing;
    }
    return NULL;
}

static void searches_during_changes_find_what_is_there(void **state)
{
    (void)state;
    struct scene scene = set_scene();
    static uintptr_t items[100];
    int standing;
    struct searcher searchers[SEARCHERS];
    uint32_t random = 7;
    bool is_in[100] = { false };
    add(&scene, 500, 509, 1, &standing);
    for (uintptr_t i = 0; i < 100; i++) {
        items[i] = 100 + i;
    }
    for (uint32_t i = 0; i < SEARCHERS; i++) {
        searchers[i] = (struct searcher){ .scene = &scene, .random = i, .standing = &standing };
        assert_int_equal(pthread_create(&searchers[i].thread, NULL, search_on, &searchers[i]), 0);
    }

    for (int i = 0; i < CHANGES; i++) {
        const uintptr_t which = next_random(&random, 100);
        const uintptr_t first = 1000 + 10 * which;
        if (is_in[which]) {
            rdmux_span_index_remove(scene.index, first, &items[which]);
        } else {
            add(&scene, first, first + 9, 0, &items[which]);
        }
        is_in[which] = !is_in[which];
    }

    for (uint32_t i = 0; i < SEARCHERS; i++) {
        assert_int_equal(pthread_join(searchers[i].thread, NULL), 0);
        assert_int_equal(searchers[i].wrong, 0);
    }
    clear_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_span_is_found_by_any_bytes_in_it_and_by_no_others),
        cmocka_unit_test(the_first_and_the_last_address_are_in_spans),
        cmocka_unit_test(rights_choose_among_spans_over_the_same_bytes),
        cmocka_unit_test(one_of_ten_thousand_overlapping_spans_is_found),
        cmocka_unit_test(a_search_finds_what_a_look_at_all_spans_finds),
        cmocka_unit_test(a_hit_answers_until_a_span_is_removed),
        cmocka_unit_test(without_memory_a_span_is_removed_and_none_is_added),
        cmocka_unit_test(an_index_is_created_whole_or_not_at_all),
        cmocka_unit_test(searches_during_changes_find_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
