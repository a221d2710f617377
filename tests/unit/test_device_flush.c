/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The flush that a shutdown posts, on a device that does not take it. */
#include "tests/unit/device_scene.h"

static struct refusal {
    enum rdmux_status status;
    unsigned left; /* flushes that are still refused */
    unsigned count;
} refusal;

static enum rdmux_status refuse_flushes(struct rdmux_provider_ep *ep,
                                        struct rdmux_request *requests, size_t count,
                                        uint32_t flags, size_t *posted)
{
    if (refusal.left == 0 || !is_flush(&requests[0])) {
        return device.tcp->post(ep, requests, count, flags, posted);
    }
    refusal.left--;
    refusal.count++;
    *posted = 0;
    if (refusal.status == RDMUX_AGAIN) {
        rdmux_provider_resume(ep);
    } else {
        rdmux_provider_error("device: no more requests");
    }
    return refusal.status;
}

static void set_refusing_scene(struct scene *scene, enum rdmux_status status, unsigned count)
{
    set_scene(scene, 0, 0, 8, 0);
    device.ops.post = refuse_flushes;
    refusal = (struct refusal){ .status = status, .left = count };
}

static void a_shutdown_whose_flush_is_refused_reports_the_reason(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    set_refusing_scene(&scene, RDMUX_IO, 1);

    enum rdmux_status status = rdmux_ep_shutdown(scene.pair.a, PATIENT_MS);

    CHECK_STATUS(status, RDMUX_IO);
    CHECK_OK(rdmux_ep_info(scene.pair.a, &info));
    assert_non_null(strstr(info.text, "device: no more requests"));
    clear_scene(&scene);
}

static void a_shutdown_whose_flush_finds_no_room_posts_it_again(void **state)
{
    (void)state;
    enum { TIMES = 3 };
    struct scene scene;
    set_refusing_scene(&scene, RDMUX_AGAIN, TIMES);

    enum rdmux_status status = rdmux_ep_shutdown(scene.pair.a, PATIENT_MS);

    CHECK_OK(status);
    assert_int_equal(refusal.count, TIMES);
    clear_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shutdown_whose_flush_is_refused_reports_the_reason),
        cmocka_unit_test(a_shutdown_whose_flush_finds_no_room_posts_it_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
