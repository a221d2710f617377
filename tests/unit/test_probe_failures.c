/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* attr.probe, and a path that carries its proof and then fails under the writes that measure it:
 * the path is dropped, the other one is chosen, and the explanation says why. */
#include "tests/unit/api_pair.h"

#include "providers/registry.h"

/* How shm fails. */
enum conduct {
    CARRY,
    REFUSE, /* posts of the measured path */
    FAIL,   /* takes them, and they end with an error */
};

enum { MEASURED = 8 /* bytes of the first writes that measure */ };

static struct {
    struct rdmux_provider_ops ops[2][2]; /* of each fabric: tcp, shm */
    const struct rdmux_provider_ops *shm;
    enum conduct conduct;
    size_t failures;
} world;

static enum rdmux_status faulty_post(struct rdmux_provider_ep *ep, struct rdmux_request *requests,
                                     size_t count, uint32_t flags, size_t *posted)
{
    bool measures = requests[0].internal != 0 && requests[0].op == RDMUX_OP_WRITE &&
                    requests[0].length == MEASURED;
    if (!measures || world.conduct == CARRY) {
        return world.shm->post(ep, requests, count, flags, posted);
    }
    world.failures++;
    *posted = 0;
    if (world.conduct == REFUSE) {
        rdmux_provider_error("shm: out of order");
        return RDMUX_IO;
    }
    for (; *posted < count; ++*posted) {
        rdmux_provider_done(ep, &requests[*posted], RDMUX_IO);
    }
    return RDMUX_OK;
}

/* Both paths are measured, as none is the last resort. */
static void change_providers(struct rdmux_fabric *fabric, struct rdmux_provider_ops ops[2])
{
    for (size_t i = 0; i < fabric->registry.count; i++) {
        struct rdmux_provider_entry *entry = &fabric->registry.entries[i];
        if (strcmp(entry->name, "tcp") == 0) {
            ops[0] = *entry->ops;
            ops[0].flags &= ~(uint32_t)RDMUX_PROVIDER_LAST_RESORT;
            entry->ops = &ops[0];
        } else if (strcmp(entry->name, "shm") == 0) {
            world.shm = entry->ops;
            ops[1] = *entry->ops;
            ops[1].post = faulty_post;
            entry->ops = &ops[1];
        }
    }
}

static void connect_probing(struct pair *pair, enum conduct conduct)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.probe = 1;
    memset(&world, 0, sizeof(world));
    world.conduct = conduct;
    open_sides(pair, NULL, 0, 0);
    change_providers(pair->fabric_a, world.ops[0]);
    change_providers(pair->fabric_b, world.ops[1]);
    connect_more(pair, &attr, &pair->a, &pair->b);
}

static void check_provider(const struct pair *pair, const char *expected)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(pair->a, &info));
    assert_string_equal(info.provider, expected);
    info = (struct rdmux_ep_info)RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(pair->b, &info));
    assert_string_equal(info.provider, expected);
}

static void a_path_that_fails_while_it_is_measured_is_out(void **state)
{
    (void)state;
    static const enum conduct conducts[] = { REFUSE, FAIL };
    static const char *const reasons[] = { "shm: out of order", "was to be measured failed" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(conducts); i++) {
        struct pair pair;
        struct rdmux_explanation *explanation = NULL;
        const char *json = NULL;
        connect_probing(&pair, conducts[i]);

        assert_true(world.failures > 0);
        check_provider(&pair, "tcp");
        check_messages(&pair);
        CHECK_OK(rdmux_ep_explanation(pair.a, &explanation));
        CHECK_OK(rdmux_explanation_json(explanation, &json));
        if (strstr(json, reasons[i]) == NULL) {
            fail_msg("%s does not say \"%s\"", json, reasons[i]);
        }
        rdmux_explanation_free(explanation);
        close_pair(&pair);
    }
}

/* Which of the two is faster is the machine's business. */
static void a_path_that_does_not_fail_is_measured_and_stays_in(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_explanation *explanation = NULL;
    const char *json = NULL;
    connect_probing(&pair, CARRY);
    CHECK_OK(rdmux_ep_info(pair.a, &info));
    CHECK_OK(rdmux_ep_explanation(pair.a, &explanation));
    CHECK_OK(rdmux_explanation_json(explanation, &json));
    bool is_shm = strcmp(info.provider, "shm") == 0;
    assert_true(is_shm || strcmp(info.provider, "tcp") == 0);
    const char *shm = strstr(json, "\"provider\":\"shm\",\"device\":\"memory\",\"peer_device\"");
    assert_non_null(shm);
    const char *reason = strstr(shm, "\"reason\":");
    assert_non_null(reason);
    const char *expected = is_shm ? "\"reason\":\"CHOSEN\"" : "\"reason\":\"SLOWER\"";
    assert_memory_equal(reason, expected, strlen(expected));
    rdmux_explanation_free(explanation);
    check_messages(&pair);
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_that_fails_while_it_is_measured_is_out),
        cmocka_unit_test(a_path_that_does_not_fail_is_measured_and_stays_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
