/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The rules of each operation. A table of each source that includes it: an operation that is known
 * when a function is compiled costs no access to the table. */
#ifndef RDMUX_API_DATA_OP_RULES_H
#define RDMUX_API_DATA_OP_RULES_H

#include <rdmux/rdmux.h>

#include <stdint.h>

enum {
    FLAGS_SEND = RDMUX_INLINE | RDMUX_UNSIGNALED | RDMUX_FENCE | RDMUX_PLACED | RDMUX_MORE |
                 RDMUX_NO_REPLAY,
    FLAGS_READ = RDMUX_UNSIGNALED | RDMUX_FENCE | RDMUX_PLACED | RDMUX_MORE | RDMUX_NO_REPLAY,
};

/* Index: RDMUX_OP_*. */
static const struct rdmux_op_rule {
    uint8_t wc_opcode;
    uint8_t atomic;
    uint16_t flags;  /* allowed request flags */
    uint32_t access; /* RDMUX_ACCESS_REMOTE_* that is needed; 0: two-sided */
    uint32_t cap;
} rdmux_op_rules[] = {
    [RDMUX_OP_SEND] = { RDMUX_WC_SEND, 0, FLAGS_SEND, 0, RDMUX_CAP_SEND },
    [RDMUX_OP_SEND_IMM] = { RDMUX_WC_SEND, 0, FLAGS_SEND, 0, RDMUX_CAP_SEND_IMM },
    [RDMUX_OP_RECV] = { RDMUX_WC_RECV, 0, 0, 0, 0 },
    [RDMUX_OP_WRITE] = { RDMUX_WC_WRITE, 0, FLAGS_SEND, RDMUX_ACCESS_REMOTE_WRITE, RDMUX_CAP_WRITE },
    [RDMUX_OP_WRITE_IMM] = { RDMUX_WC_WRITE, 0, FLAGS_SEND, RDMUX_ACCESS_REMOTE_WRITE,
                             RDMUX_CAP_WRITE_IMM },
    [RDMUX_OP_READ] = { RDMUX_WC_READ, 0, FLAGS_READ, RDMUX_ACCESS_REMOTE_READ, RDMUX_CAP_READ },
    [RDMUX_OP_FETCH_ADD] = { RDMUX_WC_FETCH_ADD, 1, FLAGS_READ, RDMUX_ACCESS_REMOTE_ATOMIC,
                             RDMUX_CAP_FETCH_ADD },
    [RDMUX_OP_COMPARE_SWAP] = { RDMUX_WC_COMPARE_SWAP, 1, FLAGS_READ, RDMUX_ACCESS_REMOTE_ATOMIC,
                                RDMUX_CAP_COMPARE_SWAP },
};

#endif
