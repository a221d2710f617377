/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Packets: requests and answers on their way, and the bytes that they carry. */
#ifndef SIM_PACKET_H
#define SIM_PACKET_H

#include "sim_queue.h"

#include <infiniband/verbs.h>

#include <stdint.h>
#include <sys/uio.h>

enum {
    SIM_PIECES_MAX = SIM_SGES_MAX + 1,
    SIM_PSN_MASK = 0xffffff,
};

struct sim_request {
    uint32_t source; /* queue pair numbers */
    uint32_t target;
    uint32_t psn;
    uint32_t round; /* the sender's round when it was sent */
    uint32_t depth; /* reads and atomics in flight at the sender, this one included */
    uint32_t rkey;
    uint32_t imm_data;
    uint64_t remote_addr; /* of the whole message */
    uint64_t total;       /* bytes of the whole message */
    uint64_t offset;      /* of this packet in the message */
    uint64_t length;      /* of this packet */
    uint64_t compare_add;
    uint64_t swap;
    union ibv_gid dgid;
    uint16_t dlid;
    uint16_t pkey;
    uint8_t opcode; /* enum ibv_wr_opcode */
    uint8_t mtu;    /* enum ibv_mtu */
    uint8_t solicited;
    uint8_t link;     /* enum sim_link */
    uint8_t gid_type; /* enum ibv_gid_type */
    uint8_t global;   /* dgid is valid */
    uint8_t first;
    uint8_t last;
};

enum sim_answer_code {
    SIM_ANSWER_ACK,
    SIM_ANSWER_DATA, /* data of a read; an atomic's is in original */
    SIM_ANSWER_NAK,
    SIM_ANSWER_RNR,
    SIM_ANSWER_LOST,      /* no real device answers; the sender's timer detects it */
    SIM_ANSWER_LATER,     /* a separate answer follows */
    SIM_ANSWER_TERMINATE, /* iWARP: the connection ends */
};

struct sim_answer {
    uint32_t source; /* queue pair that answers */
    uint32_t target;
    uint32_t psn;
    uint32_t round; /* round of the packet that it answers */
    uint8_t code;   /* enum sim_answer_code */
    uint8_t timer;  /* of RNR: the receiver's min_rnr_timer */
    uint8_t status; /* of NAK: enum ibv_wc_status at the sender */
    uint8_t bad_read;
    uint64_t length;
    uint64_t original;
};

enum sim_packet_kind { SIM_PACKET_REQUEST, SIM_PACKET_ANSWER, SIM_PACKET_CM, SIM_PACKET_HELLO };

/* Bytes of a packet, as a list of pieces. */
struct sim_bytes {
    struct iovec pieces[SIM_PIECES_MAX];
    int count;
};

static inline int32_t sim_psn_distance(uint32_t to, uint32_t from)
{
    return (int32_t)((to - from) << 8) >> 8; /* 24-bit numbers, which wrap */
}

#endif
