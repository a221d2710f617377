/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "verbs/verbs_outcome.h"

#include <stdbool.h>

static const struct verbs_outcome unknown = {
    RDMUX_IO, "the device reported an error that rdmux does not know"
};

static const struct verbs_outcome send_outcomes[VERBS_WC_STATUSES] = {
    [VERBS_WC_SUCCESS] = { RDMUX_OK, "" },
    [VERBS_WC_LOC_LEN_ERR] = { RDMUX_LENGTH, "a request is longer than the device can send" },
    [VERBS_WC_LOC_QP_OP_ERR] = { RDMUX_IO, "the device refused a request as inconsistent" },
    [VERBS_WC_LOC_EEC_OP_ERR] = { RDMUX_IO, "the device refused a request as inconsistent" },
    [VERBS_WC_LOC_PROT_ERR] = {
        RDMUX_IO,
        "the device may not use a local buffer: its region was deregistered or does not "
        "allow this",
    },
    [VERBS_WC_WR_FLUSH_ERR] = { RDMUX_FLUSHED, "the queue pair went into error" },
    [VERBS_WC_MW_BIND_ERR] = { RDMUX_IO, "binding a memory window failed" },
    [VERBS_WC_BAD_RESP_ERR] = {
        RDMUX_PROTOCOL,
        "the peer's device sent an answer that makes no sense",
    },
    [VERBS_WC_LOC_ACCESS_ERR] = { RDMUX_IO, "the device may not write to a local buffer" },
    [VERBS_WC_REM_INV_REQ_ERR] = { RDMUX_IO, "the peer's device refused a request as invalid" },
    [VERBS_WC_REM_ACCESS_ERR] = {
        RDMUX_DENIED,
        "the peer's device denied an access: the region was revoked, or the access is "
        "beyond it or its rights",
    },
    [VERBS_WC_REM_OP_ERR] = { RDMUX_IO, "the peer's device could not carry a request out" },
    [VERBS_WC_RETRY_EXC_ERR] = { RDMUX_FLUSHED, "the peer's device does not answer" },
    [VERBS_WC_RNR_RETRY_EXC_ERR] = {
        RDMUX_PEER_GONE,
        "the peer's device had no receive for too long",
    },
    [VERBS_WC_LOC_RDD_VIOL_ERR] = { RDMUX_IO, "the device reported a violation of domains" },
    [VERBS_WC_REM_INV_RD_REQ_ERR] = { RDMUX_IO, "the peer's device refused a request as invalid" },
    [VERBS_WC_REM_ABORT_ERR] = { RDMUX_PEER_GONE, "the peer aborted" },
    [VERBS_WC_INV_EECN_ERR] = { RDMUX_IO, "the device reported an invalid context" },
    [VERBS_WC_INV_EEC_STATE_ERR] = { RDMUX_IO, "the device reported an invalid context" },
    [VERBS_WC_FATAL_ERR] = { RDMUX_IO, "the device failed" },
    [VERBS_WC_RESP_TIMEOUT_ERR] = { RDMUX_FLUSHED, "the peer's device does not answer" },
    [VERBS_WC_GENERAL_ERR] = { RDMUX_IO, "the device reported an error" },
};

static bool is_message(uint32_t op)
{
    return op == RDMUX_OP_SEND || op == RDMUX_OP_SEND_IMM;
}

struct verbs_outcome rdmux_verbs_send_outcome(uint32_t wc_status, uint32_t op)
{
    /* A message longer than its receive: remote invalid request by the specification (9.7.4.2.1),
     * remote operation error on soft RoCE. A peer has no other reason to refuse a message. */
    if (is_message(op) &&
        (wc_status == VERBS_WC_REM_INV_REQ_ERR || wc_status == VERBS_WC_REM_OP_ERR)) {
        return (struct verbs_outcome){ RDMUX_LENGTH,
                                       "a message is longer than the receive it met at the peer" };
    }
    return wc_status < VERBS_WC_STATUSES ? send_outcomes[wc_status] : unknown;
}

struct verbs_outcome rdmux_verbs_receive_outcome(uint32_t wc_status)
{
    switch (wc_status) {
    case VERBS_WC_LOC_LEN_ERR:
    case VERBS_WC_LOC_QP_OP_ERR: /* soft RoCE's code */
        return (struct verbs_outcome){ RDMUX_LENGTH,
                                       "a message of the peer is longer than the receive it met" };
    case VERBS_WC_LOC_ACCESS_ERR:
    case VERBS_WC_REM_ACCESS_ERR:
        return (struct verbs_outcome){ RDMUX_DENIED, "an access of the peer was denied" };
    default:
        return wc_status < VERBS_WC_STATUSES ? send_outcomes[wc_status] : unknown;
    }
}
