/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Meaning of a completion's status. Devices differ in the code for one and the same fault, so the
 * outcome depends on the class of the code and on the operation. Pure; the codes are those of enum
 * ibv_wc_status (ibv_poll_cq(3)).
 */
#ifndef RDMUX_VERBS_OUTCOME_H
#define RDMUX_VERBS_OUTCOME_H

#include <rdmux/rdmux.h>

#include <stdint.h>

/* enum ibv_wc_status; verbs_completion.c compares them. */
enum {
    VERBS_WC_SUCCESS = 0,
    VERBS_WC_LOC_LEN_ERR = 1,
    VERBS_WC_LOC_QP_OP_ERR = 2,
    VERBS_WC_LOC_EEC_OP_ERR = 3,
    VERBS_WC_LOC_PROT_ERR = 4,
    VERBS_WC_WR_FLUSH_ERR = 5,
    VERBS_WC_MW_BIND_ERR = 6,
    VERBS_WC_BAD_RESP_ERR = 7,
    VERBS_WC_LOC_ACCESS_ERR = 8,
    VERBS_WC_REM_INV_REQ_ERR = 9,
    VERBS_WC_REM_ACCESS_ERR = 10,
    VERBS_WC_REM_OP_ERR = 11,
    VERBS_WC_RETRY_EXC_ERR = 12,
    VERBS_WC_RNR_RETRY_EXC_ERR = 13,
    VERBS_WC_LOC_RDD_VIOL_ERR = 14,
    VERBS_WC_REM_INV_RD_REQ_ERR = 15,
    VERBS_WC_REM_ABORT_ERR = 16,
    VERBS_WC_INV_EECN_ERR = 17,
    VERBS_WC_INV_EEC_STATE_ERR = 18,
    VERBS_WC_FATAL_ERR = 19,
    VERBS_WC_RESP_TIMEOUT_ERR = 20,
    VERBS_WC_GENERAL_ERR = 21,
    VERBS_WC_STATUSES = 22,
};

struct verbs_outcome {
    enum rdmux_status status;
    const char *text; /* what happened; follows the object's name */
};

/* Returns the outcome of a send-side request; op: RDMUX_OP_*, 0 for a work request of the library's
 * own. RDMUX_FLUSHED: the request is not the cause, or the device does not know the cause: the
 * peer's device did not answer, and its refusal may have been lost. */
struct verbs_outcome rdmux_verbs_send_outcome(uint32_t wc_status, uint32_t op);
/* Returns the outcome of a receive. */
struct verbs_outcome rdmux_verbs_receive_outcome(uint32_t wc_status);

#endif
