/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Names, error texts, the log, and the fabric's hooks for memory and random bytes. */
#include "tests/unit/fake_fabric.h"

#include "api/core/fabric.h"
#include "api/setup/last_explanation.h"
#include "negotiation/explain.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* ------------------------------------------------------------------------------------- names */

static void every_status_has_a_name(void **state)
{
    (void)state;
    static const struct {
        enum rdmux_status status;
        const char *name;
    } cases[] = {
        { RDMUX_OK, "RDMUX_OK" },           { RDMUX_AGAIN, "RDMUX_AGAIN" },
        { RDMUX_NO_PATH, "RDMUX_NO_PATH" }, { RDMUX_OUTCOME_UNKNOWN, "RDMUX_OUTCOME_UNKNOWN" },
        { RDMUX_IO, "RDMUX_IO" },
    };

    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        assert_string_equal(rdmux_status_name(cases[i].status), cases[i].name);
    }
    for (int status = RDMUX_OK; status <= RDMUX_IO; status++) {
        assert_string_not_equal(rdmux_status_name((enum rdmux_status)status), "RDMUX_?");
        for (int other = RDMUX_OK; other < status; other++) {
            assert_string_not_equal(rdmux_status_name((enum rdmux_status)status),
                                    rdmux_status_name((enum rdmux_status)other));
        }
    }
}

static void an_unknown_status_or_opcode_has_a_name(void **state)
{
    (void)state;

    assert_string_equal(rdmux_status_name((enum rdmux_status)(RDMUX_IO + 1)), "RDMUX_?");
    assert_string_equal(rdmux_status_name((enum rdmux_status) - 1), "RDMUX_?");
    assert_string_equal(rdmux_wc_opcode_name(0), "?");
    assert_string_equal(rdmux_wc_opcode_name(UINT32_MAX), "?");
}

static void every_opcode_has_a_name(void **state)
{
    (void)state;

    assert_string_equal(rdmux_wc_opcode_name(RDMUX_WC_SEND), "SEND");
    assert_string_equal(rdmux_wc_opcode_name(RDMUX_WC_RECV_WRITE_IMM), "RECV_WRITE_IMM");
    for (uint32_t opcode = RDMUX_WC_SEND; opcode <= RDMUX_WC_RECV_WRITE_IMM; opcode++) {
        assert_string_not_equal(rdmux_wc_opcode_name(opcode), "?");
    }
    for (uint32_t opcode = RDMUX_WC_CONNECTED; opcode <= RDMUX_WC_REMOTE_READY; opcode++) {
        assert_string_not_equal(rdmux_wc_opcode_name(opcode), "?");
    }
}

/* ------------------------------------------------------------------------------------- errors */

static void a_failure_leaves_its_text_and_returns_its_status(void **state)
{
    (void)state;

    enum rdmux_status status = rdmux_fail(RDMUX_INVALID, "depth %d is too small", 3);

    assert_int_equal(status, RDMUX_INVALID);
    assert_string_equal(rdmux_last_error(), "depth 3 is too small");
    rdmux_provider_error("device %s is gone", "mlx5_0");
    assert_string_equal(rdmux_last_error(), "device mlx5_0 is gone");
    rdmux_error_clear();
    assert_string_equal(rdmux_last_error(), "");
}

static void an_error_text_may_quote_the_previous_one(void **state)
{
    (void)state;
    (void)rdmux_fail(RDMUX_IO, "cause");

    (void)rdmux_fail(RDMUX_IO, "%s, while connecting", rdmux_last_error());

    assert_string_equal(rdmux_last_error(), "cause, while connecting");
}

static void a_text_that_is_too_long_is_cut(void **state)
{
    (void)state;
    char text[5000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';

    (void)rdmux_fail(RDMUX_IO, "%s", text);

    size_t length = strlen(rdmux_last_error());
    assert_true(length > 1000 && length < sizeof(text) - 1);
}

static void *fail_elsewhere(void *user)
{
    char *first = user;
    (void)snprintf(first, 32, "%s", rdmux_last_error());
    (void)rdmux_fail(RDMUX_IO, "of the other thread");
    return NULL;
}

static void each_thread_has_its_own_text(void **state)
{
    (void)state;
    char first[32] = "?";
    pthread_t thread;
    (void)rdmux_fail(RDMUX_INVALID, "of this thread");

    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, first), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);

    assert_string_equal(first, "");
    assert_string_equal(rdmux_last_error(), "of this thread");
}

/* -------------------------------------------------------------------------- last explanation */

static struct rdmux_explanation *explanation_of(const char *provider)
{
    struct rdmux_candidate candidate = { .size = sizeof(candidate),
                                         .reason = RDMUX_REASON_PORT_DOWN };
    (void)snprintf(candidate.provider, sizeof(candidate.provider), "%s", provider);
    return rdmux_explanation_create(RDMUX_NO_PATH, &candidate, 1, "192.0.2.1:7471");
}

static void *ask_elsewhere(void *user)
{
    struct rdmux_explanation *got = NULL;
    enum rdmux_status *status = user;
    *status = rdmux_last_explanation(&got);
    rdmux_set_last_explanation(explanation_of("roce")); /* freed with the thread */
    return NULL;
}

static void the_last_explanation_belongs_to_the_thread_and_can_be_read_twice(void **state)
{
    (void)state;
    struct rdmux_explanation *one = NULL;
    struct rdmux_explanation *two = NULL;
    enum rdmux_status elsewhere = RDMUX_OK;
    pthread_t thread;
    rdmux_set_last_explanation(explanation_of("tcp"));
    rdmux_set_last_explanation(explanation_of("ib"));

    assert_int_equal(pthread_create(&thread, NULL, ask_elsewhere, &elsewhere), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    enum rdmux_status first = rdmux_last_explanation(&one);
    enum rdmux_status second = rdmux_last_explanation(&two);

    assert_int_equal(elsewhere, RDMUX_AGAIN);
    assert_int_equal(first, RDMUX_OK);
    assert_int_equal(second, RDMUX_OK);
    assert_ptr_not_equal(one, two);
    assert_int_equal(two->status, RDMUX_NO_PATH);
    assert_int_equal(two->candidate_count, 1);
    assert_string_equal(two->candidates[0]->provider, "ib");
    assert_int_equal(two->candidates[0]->reason, RDMUX_REASON_PORT_DOWN);
    assert_string_equal(two->peer_address, "192.0.2.1:7471");
    rdmux_explanation_free(one);
    rdmux_explanation_free(two);
    rdmux_set_last_explanation(NULL);
}

static void a_missing_explanation_returns_again(void **state)
{
    (void)state;
    struct rdmux_explanation *got = (struct rdmux_explanation *)(uintptr_t)1;
    rdmux_set_last_explanation(NULL);

    assert_int_equal(rdmux_last_explanation(&got), RDMUX_AGAIN);

    assert_null(got);
    assert_int_equal(rdmux_last_explanation(NULL), RDMUX_INVALID);
}

/* ---------------------------------------------------------------------------------------- log */

struct log_seen {
    char line[2048];
    enum rdmux_log_level level;
    size_t count;
};

static void see_line(void *user, enum rdmux_log_level level, const char *line)
{
    struct log_seen *seen = user;
    (void)snprintf(seen->line, sizeof(seen->line), "%s", line);
    seen->level = level;
    seen->count++;
}

static void a_line_reaches_the_hook_without_newline_and_the_file_with_one(void **state)
{
    (void)state;
    struct log_seen seen = { .count = 0 };
    struct fake_fabric *fake = fake_fabric_create();
    fake->fabric.hooks.log = see_line;
    fake->fabric.hooks.log_user = &seen;
    fake->fabric.hooks.log_level = RDMUX_LOG_WARN;
    fake->fabric.hooks.log_fd = memfd_create("log", MFD_CLOEXEC);
    char text[256] = "";
    errno = ERANGE;

    rdmux_log(&fake->fabric, RDMUX_LOG_WARN, "endpoint %d:\nis slow\n", 7);
    rdmux_provider_log(&fake->fabric, RDMUX_LOG_INFO, "too talkative");
    rdmux_log(&fake->fabric, RDMUX_LOG_NONE, "no level");

    assert_int_equal(errno, ERANGE);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.level, RDMUX_LOG_WARN);
    assert_string_equal(seen.line, "endpoint 7: is slow ");
    assert_true(pread(fake->fabric.hooks.log_fd, text, sizeof(text) - 1, 0) > 0);
    assert_non_null(strstr(text, "warn endpoint: endpoint 7: is slow"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    close(fake->fabric.hooks.log_fd);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void a_fabric_without_hook_and_file_is_silent(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    fake->fabric.hooks.log_level = RDMUX_LOG_TRACE;

    rdmux_log(&fake->fabric, RDMUX_LOG_ERROR, "nobody reads this");

    assert_int_equal(fake_fabric_destroy(fake), 0);
}

/* ------------------------------------------------------------------------- memory and random */

/* Returns memory aligned for any type, and no more than that. */
static void *allocate_badly(void *user, size_t size)
{
    size_t *count = user;
    unsigned char *memory = aligned_alloc(64, (size + 64 + 63) / 64 * 64);
    if (memory == NULL) {
        return NULL;
    }
    memset(memory, 0xee, size + 64);
    (*count)++;
    return memory + 16 * (1 + *count % 3);
}

static void release_badly(void *user, void *memory)
{
    size_t *count = user;
    (*count)--;
    free((void *)((uintptr_t)memory & ~(uintptr_t)63));
}

static void memory_of_any_allocator_is_zeroed_and_aligned(void **state)
{
    (void)state;
    size_t live = 0;
    struct rdmux_fabric fabric = { .hooks = { .allocate = allocate_badly,
                                              .release = release_badly,
                                              .allocate_user = &live,
                                              .log_fd = -1 } };

    for (size_t size = 0; size < 300; size += 7) {
        unsigned char *memory = rdmux_provider_allocate(&fabric, size);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t i = 0; i < size; i++) {
            assert_int_equal(memory[i], 0);
        }
        memset(memory, 0xff, size);
        assert_int_equal(live, 1);
        rdmux_provider_release(&fabric, memory);
        assert_int_equal(live, 0);
    }
}

static void a_failed_allocation_returns_null(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();

    assert_null(rdmux_allocate(&fake->fabric, SIZE_MAX));
    assert_null(rdmux_allocate(&fake->fabric, SIZE_MAX - 64));
    fake->allocations = 0;
    assert_null(rdmux_allocate(&fake->fabric, 1));
    rdmux_release(&fake->fabric, NULL);

    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static int count_up(void *user, void *out, size_t size)
{
    unsigned char *at = out;
    for (size_t i = 0; i < size; i++) {
        at[i] = (unsigned char)(i + 1);
    }
    return user == NULL ? 0 : -1;
}

static void random_bytes_come_from_the_hook_or_from_the_system(void **state)
{
    (void)state;
    static const unsigned char counted[4] = { 1, 2, 3, 4 };
    struct rdmux_fabric fabric = { .hooks = { .random = count_up, .log_fd = -1 } };
    unsigned char out[4] = { 0 };
    unsigned char one[32] = { 0 };
    unsigned char two[32] = { 0 };

    assert_int_equal(rdmux_provider_random(&fabric, out, sizeof(out)), RDMUX_OK);
    assert_memory_equal(out, counted, sizeof(out));
    fabric.hooks.random_user = &fabric;
    assert_int_equal(rdmux_random(&fabric, out, sizeof(out)), RDMUX_IO);
    fabric.hooks.random = NULL;
    assert_int_equal(rdmux_random(&fabric, one, sizeof(one)), RDMUX_OK);
    assert_int_equal(rdmux_random(&fabric, two, sizeof(two)), RDMUX_OK);
    assert_memory_not_equal(one, two, sizeof(one));
}

static void providers_see_the_clock_of_the_fabric(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();

    uint64_t before = fake_clock_ns(NULL);
    uint64_t now = rdmux_provider_now_ns(&fake->fabric);

    assert_true(now >= before);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name),
        cmocka_unit_test(an_unknown_status_or_opcode_has_a_name),
        cmocka_unit_test(every_opcode_has_a_name),
        cmocka_unit_test(a_failure_leaves_its_text_and_returns_its_status),
        cmocka_unit_test(an_error_text_may_quote_the_previous_one),
        cmocka_unit_test(a_text_that_is_too_long_is_cut),
        cmocka_unit_test(each_thread_has_its_own_text),
        cmocka_unit_test(the_last_explanation_belongs_to_the_thread_and_can_be_read_twice),
        cmocka_unit_test(a_missing_explanation_returns_again),
        cmocka_unit_test(a_line_reaches_the_hook_without_newline_and_the_file_with_one),
        cmocka_unit_test(a_fabric_without_hook_and_file_is_silent),
        cmocka_unit_test(memory_of_any_allocator_is_zeroed_and_aligned),
        cmocka_unit_test(a_failed_allocation_returns_null),
        cmocka_unit_test(random_bytes_come_from_the_hook_or_from_the_system),
        cmocka_unit_test(providers_see_the_clock_of_the_fabric),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
