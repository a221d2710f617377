/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A pair for tests of endpoints. It counts memory and descriptors, and must leave none behind. */
#ifndef RDMUX_TESTS_ENDPOINT_SCENE_H
#define RDMUX_TESTS_ENDPOINT_SCENE_H

#include "tests/unit/api_pair.h"

#include <fcntl.h>

static const char *const all_paths[] = { "tcp", "shm" };

static inline size_t open_descriptors(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* Two sides whose memory and descriptors are counted. */
struct scene {
    struct pair pair;
    struct meter meter_a;
    struct meter meter_b;
    size_t descriptors;
};

static inline void set_scene(struct scene *scene, const char *paths, uint32_t flags)
{
    memset(scene, 0, sizeof(*scene));
    scene->descriptors = open_descriptors();
    scene->pair.fabric_a = open_metered_fabric(paths, flags, NULL, &scene->meter_a);
    scene->pair.fabric_b = open_metered_fabric(paths, flags, NULL, &scene->meter_b);
    scene->pair.cq_a = create_cq(scene->pair.fabric_a);
    scene->pair.cq_b = create_cq(scene->pair.fabric_b);
    scene->pair.listener = listen_here(scene->pair.fabric_b, NULL, scene->pair.address);
}

static inline void clear_scene(struct scene *scene)
{
    close_pair(&scene->pair);
    assert_int_equal(atomic_load(&scene->meter_a.pieces), 0);
    assert_int_equal(atomic_load(&scene->meter_b.pieces), 0);
    assert_int_equal(open_descriptors(), scene->descriptors);
}

static inline uint32_t state_of(struct rdmux_ep *ep)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(ep, &info));
    return info.state;
}

/* Checks that every post on the send side returns this status. */
static inline void check_posts(struct rdmux_ep *ep, enum rdmux_status expected)
{
    uint64_t word = 0;
    size_t posted = 5;
    struct rdmux_sge sge = { &word, sizeof(word), NULL };
    struct rdmux_wr wr = { .op = RDMUX_OP_SEND, .sges = &sge, .sge_count = 1 };
    CHECK_STATUS(rdmux_send(ep, &word, sizeof(word), NULL, NULL, 0), expected);
    CHECK_STATUS(rdmux_send_imm(ep, &word, sizeof(word), NULL, 1, NULL, 0), expected);
    CHECK_STATUS(rdmux_write(ep, NULL, 0, NULL, NULL, 0, NULL, RDMUX_PLACED), expected);
    CHECK_STATUS(rdmux_write_imm(ep, &word, sizeof(word), NULL, NULL, 0, 1, NULL, 0), expected);
    CHECK_STATUS(rdmux_read(ep, &word, sizeof(word), NULL, NULL, 0, NULL, 0), expected);
    CHECK_STATUS(rdmux_fetch_add(ep, &word, NULL, NULL, 0, 1, NULL, 0), expected);
    CHECK_STATUS(rdmux_compare_swap(ep, &word, NULL, NULL, 0, 0, 1, NULL, 0), expected);
    CHECK_STATUS(rdmux_post(ep, &wr, 1, &posted), expected);
    assert_int_equal(posted, 0);
    assert_string_not_equal(rdmux_last_error(), "");
}

#endif
