/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The meaning of a completion's status for the program. */
#include "verbs/verbs_outcome.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void a_failed_request_has_the_status_of_its_cause(void **state)
{
    (void)state;
    static const struct {
        uint32_t wc_status;
        uint32_t op;
        enum rdmux_status status;
    } cases[] = {
        { VERBS_WC_SUCCESS, RDMUX_OP_SEND, RDMUX_OK },
        { VERBS_WC_WR_FLUSH_ERR, RDMUX_OP_WRITE, RDMUX_FLUSHED },
        { VERBS_WC_REM_ACCESS_ERR, RDMUX_OP_WRITE, RDMUX_DENIED },
        { VERBS_WC_REM_ACCESS_ERR, RDMUX_OP_READ, RDMUX_DENIED },
        { VERBS_WC_REM_ACCESS_ERR, RDMUX_OP_FETCH_ADD, RDMUX_DENIED },
        { VERBS_WC_RETRY_EXC_ERR, RDMUX_OP_SEND, RDMUX_FLUSHED },
        { VERBS_WC_RNR_RETRY_EXC_ERR, RDMUX_OP_SEND, RDMUX_PEER_GONE },
        { VERBS_WC_RESP_TIMEOUT_ERR, RDMUX_OP_READ, RDMUX_FLUSHED },
        { VERBS_WC_REM_ABORT_ERR, RDMUX_OP_READ, RDMUX_PEER_GONE },
        /* A message too long for its receive, as soft RoCE reports it. */
        { VERBS_WC_REM_INV_REQ_ERR, RDMUX_OP_SEND, RDMUX_LENGTH },
        { VERBS_WC_REM_INV_REQ_ERR, RDMUX_OP_SEND_IMM, RDMUX_LENGTH },
        { VERBS_WC_REM_OP_ERR, RDMUX_OP_SEND, RDMUX_LENGTH },
        { VERBS_WC_REM_INV_REQ_ERR, RDMUX_OP_WRITE, RDMUX_IO },
        { VERBS_WC_REM_OP_ERR, RDMUX_OP_WRITE_IMM, RDMUX_IO },
        { VERBS_WC_REM_OP_ERR, 0, RDMUX_IO },
        { VERBS_WC_LOC_LEN_ERR, RDMUX_OP_WRITE, RDMUX_LENGTH },
        { VERBS_WC_LOC_PROT_ERR, RDMUX_OP_READ, RDMUX_IO },
        { VERBS_WC_LOC_QP_OP_ERR, RDMUX_OP_SEND, RDMUX_IO },
        { VERBS_WC_FATAL_ERR, RDMUX_OP_SEND, RDMUX_IO },
        { VERBS_WC_BAD_RESP_ERR, RDMUX_OP_READ, RDMUX_PROTOCOL },
        { VERBS_WC_STATUSES, RDMUX_OP_SEND, RDMUX_IO },
        { UINT32_MAX, RDMUX_OP_SEND, RDMUX_IO },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct verbs_outcome outcome = rdmux_verbs_send_outcome(cases[i].wc_status, cases[i].op);
        assert_int_equal(outcome.status, cases[i].status);
        assert_non_null(outcome.text);
    }
}

static void a_failed_receive_has_the_status_of_its_cause(void **state)
{
    (void)state;
    static const struct {
        uint32_t wc_status;
        enum rdmux_status status;
    } cases[] = {
        { VERBS_WC_SUCCESS, RDMUX_OK },
        { VERBS_WC_LOC_LEN_ERR, RDMUX_LENGTH },
        { VERBS_WC_LOC_QP_OP_ERR, RDMUX_LENGTH },
        { VERBS_WC_LOC_ACCESS_ERR, RDMUX_DENIED },
        { VERBS_WC_REM_ACCESS_ERR, RDMUX_DENIED },
        { VERBS_WC_WR_FLUSH_ERR, RDMUX_FLUSHED },
        { VERBS_WC_LOC_PROT_ERR, RDMUX_IO },
        { VERBS_WC_STATUSES + 1, RDMUX_IO },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct verbs_outcome outcome = rdmux_verbs_receive_outcome(cases[i].wc_status);
        assert_int_equal(outcome.status, cases[i].status);
        assert_non_null(outcome.text);
    }
}

static void every_status_has_a_text_and_only_success_is_ok(void **state)
{
    (void)state;
    for (uint32_t status = 1; status < VERBS_WC_STATUSES; status++) {
        for (uint32_t op = 0; op <= RDMUX_OP_COMPARE_SWAP; op++) {
            struct verbs_outcome outcome = rdmux_verbs_send_outcome(status, op);
            assert_int_not_equal(outcome.status, RDMUX_OK);
            assert_true(strlen(outcome.text) > 0);
        }
        assert_int_not_equal(rdmux_verbs_receive_outcome(status).status, RDMUX_OK);
        assert_true(strlen(rdmux_verbs_receive_outcome(status).text) > 0);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_request_has_the_status_of_its_cause),
        cmocka_unit_test(a_failed_receive_has_the_status_of_its_cause),
        cmocka_unit_test(every_status_has_a_text_and_only_success_is_ok),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
