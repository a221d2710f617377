/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Judges a port's counters. Each driver has names of its own (mlx5: counters.c, bnxt_re:
 * hw_counters.c, irdma: verbs.c, cxgb4: provider.c, rxe: rxe_hw_counters.c in the kernel's
 * drivers/infiniband). Some drivers have changed their names, and siw has no counters. All names
 * are therefore tried; a missing counter counts as 0.
 */
#include "doctor.h"

#include <string.h>

enum {
    LEAST = 100,               /* fewest events for a finding, whatever the number of packets */
    PACKETS_PER_EVENT = 10000, /* more packets than this for each event are no problem */
    MARKS_PER_PACKETS = 100,   /* one packet of this many may be marked */
    LISTED_MAX = 4,            /* counters named in a finding */
};

/* Packets lost, out of order or retransmitted. A packet may count in several of these. */
static const char *const loss[] = {
    "out_of_sequence",       /* mlx5 */
    "packet_seq_err",        /* mlx5 */
    "implied_nak_seq_err",   /* mlx5 */
    "local_ack_timeout_err", /* mlx5 */
    "roce_adp_retrans",      /* mlx5 */
    "duplicate_request",     /* mlx5, rxe */
    "out_of_seq_request",    /* rxe */
    "rcvd_seq_err",          /* rxe */
    "completer_retry_err",   /* rxe */
    "to_retransmits",        /* bnxt_re */
    "seq_err_naks_rcvd",     /* bnxt_re */
    "missing_resp",          /* bnxt_re */
    "oos_drop_count",        /* bnxt_re */
    "dup_req",               /* bnxt_re */
    "tcpRetransSegs",        /* irdma */
    "RetransSegs",           /* irdma, newer */
    "Nak Sequence Error",    /* irdma, newer */
    "ip4RetransSegs",        /* cxgb4 */
    "ip6RetransSegs",        /* cxgb4 */
};

static const char *const not_ready[] = {
    "out_of_buffer",            /* mlx5 */
    "rnr_nak_retry_err",        /* mlx5 */
    "req_rnr_retries_exceeded", /* mlx5 */
    "rnr_naks_rcvd",            /* bnxt_re */
    "rx_out_of_buffer",         /* bnxt_re */
    "RNR sent",                 /* irdma, newer */
    "RNR received",             /* irdma, newer */
    "send_rnr_err",             /* rxe */
    "rcvd_rnr_err",             /* rxe */
    "retry_rnr_exceeded_err",   /* rxe */
};

static const char *const given_up[] = {
    "req_transport_retries_exceeded", /* mlx5 */
    "max_retry_exceeded",             /* bnxt_re */
    "retry_exceeded_err",             /* rxe */
};

static const char *const marks[] = {
    "np_ecn_marked_roce_packets", /* mlx5 */
    "rp_cnp_handled",             /* mlx5 */
    "rx_ecn_marked_pkts",         /* bnxt_re */
    "rx_cnp_pkts",                /* bnxt_re */
    "RxECNMrkd",                  /* irdma */
    "cnpHandled",                 /* irdma */
};

static const char *const ignored_notices[] = {
    "rp_cnp_ignored", /* mlx5 */
    "cnpIgnored",     /* irdma */
};

/* Packets sent and received by the port. The first line with counts is used; the other lines count
 * the same packets under other names. */
static const char *const packets[][4] = {
    { "port_xmit_packets", "port_rcv_packets" },  /* in counters; all others are in hw_counters */
    { "sent_pkts", "rcvd_pkts" },                 /* rxe */
    { "tx_roce_only_pkts", "rx_roce_only_pkts" }, /* bnxt_re */
    { "tx_pkts", "rx_pkts" },                     /* bnxt_re, efa */
    { "TxUDP", "RxUDP" },                         /* irdma as RoCE */
    { "tcpOutSegs", "tcpInSegs" },                /* irdma as iWARP */
    { "ip4OutSegs", "ip4InSegs", "ip6OutSegs", "ip6InSegs" }, /* cxgb4 */
};

/* Errors of the link itself, and the lowest count for a finding. */
static const struct {
    const char *name;
    uint64_t least;
} link_errors[] = {
    { "symbol_error", 1000 },
    { "link_error_recovery", 10 },
    { "link_downed", 10 },
    { "port_rcv_errors", 100 },
    { "local_link_integrity_errors", 1 },
    { "excessive_buffer_overrun_errors", 1 },
    { "rx_icrc_encapsulated", 100 }, /* mlx5 on Ethernet */
};

static uint64_t read_counter(const struct doctor_root *root, const struct doctor_port *port,
                             const char *name)
{
    static const char *const folders[] = { "hw_counters", "counters" };
    uint64_t value = 0;
    for (size_t i = 0; i < TOOL_COUNT_OF(folders); i++) {
        if (doctor_read_number(root, &value, "sys/class/infiniband/%s/ports/%llu/%s/%s",
                               port->device, (unsigned long long)port->number, folders[i], name)) {
            break;
        }
    }
    return value;
}

/* Sum of the counters of one kind, and the first few of them in words: "dup_req 5, missing_resp
 * 7". */
struct sum {
    uint64_t total;
    size_t listed;
    char words[DOCTOR_VALUE_MAX];
};

static void add_to_sum(struct sum *sum, const char *name, uint64_t value)
{
    sum->total = value > UINT64_MAX - sum->total ? UINT64_MAX : sum->total + value;
    if (value > 0 && sum->listed < LISTED_MAX) {
        size_t length = strlen(sum->words);
        (void)snprintf(sum->words + length, sizeof(sum->words) - length, "%s%s %llu",
                       sum->listed > 0 ? ", " : "", name, (unsigned long long)value);
        sum->listed++;
    }
}

static struct sum add_up(const struct doctor_root *root, const struct doctor_port *port,
                         const char *const *names, size_t count)
{
    struct sum sum = { .total = 0 };
    for (size_t i = 0; i < count; i++) {
        add_to_sum(&sum, names[i], read_counter(root, port, names[i]));
    }
    return sum;
}

/* Returns 0 if the driver does not count packets. */
static uint64_t count_packets(const struct doctor_root *root, const struct doctor_port *port)
{
    for (size_t line = 0; line < TOOL_COUNT_OF(packets); line++) {
        struct sum sum = { .total = 0 };
        for (size_t i = 0; i < TOOL_COUNT_OF(packets[line]) && packets[line][i] != NULL; i++) {
            add_to_sum(&sum, packets[line][i], read_counter(root, port, packets[line][i]));
        }
        if (sum.total > 0) {
            return sum.total;
        }
    }
    return 0;
}

static bool is_too_many(uint64_t events, uint64_t of_packets, uint64_t packets_per_event)
{
    return events >= LEAST && of_packets / packets_per_event <= events;
}

/* Writes the command that shows the port's counters again. */
static const char *statistic_command(const struct doctor_port *port, char out[DOCTOR_TEXT_MAX])
{
    char quoted[3 * DOCTOR_NAME_MAX];
    (void)snprintf(out, DOCTOR_TEXT_MAX, "rdma statistic show link %s/%llu",
                   doctor_quote(port->device, quoted, sizeof(quoted)),
                   (unsigned long long)port->number);
    return out;
}

static void add_loss(struct doctor_port *port, const struct sum *sum, uint64_t packet_count)
{
    static const char *const causes[] = {
        [DOCTOR_IB] = "look for the link or the switch that drops packets: ibqueryerrors",
        [DOCTOR_ROCE] = "see that PFC or ECN is on for RoCE at both hosts and on each switch "
                        "between them",
        [DOCTOR_IWARP] = "look for the link or the switch that drops packets",
        [DOCTOR_OTHER] = "look for the link or the switch that drops packets",
    };
    char command[DOCTOR_TEXT_MAX];
    char remedy[DOCTOR_TEXT_MAX + 64];
    char of_packets[64] = "";
    (void)snprintf(remedy, sizeof(remedy), "%s; %s", causes[port->fabric],
                   statistic_command(port, command));
    if (packet_count > 0) {
        (void)snprintf(of_packets, sizeof(of_packets), ", of %llu packets",
                       (unsigned long long)packet_count);
    }
    doctor_add(&port->findings, DOCTOR_WARNING, "RETRANSMISSIONS", remedy,
               "packets were lost or sent again: %s%s", sum->words, of_packets);
}

static void check_link_errors(const struct doctor_root *root, struct doctor_port *port)
{
    struct sum sum = { .total = 0 };
    for (size_t i = 0; i < TOOL_COUNT_OF(link_errors); i++) {
        uint64_t value = read_counter(root, port, link_errors[i].name);
        if (value >= link_errors[i].least) {
            add_to_sum(&sum, link_errors[i].name, value);
        }
    }
    if (sum.total == 0) {
        return;
    }
    char quoted[3 * DOCTOR_NAME_MAX];
    char remedy[DOCTOR_TEXT_MAX];
    if (port->fabric == DOCTOR_IB) {
        (void)snprintf(
            remedy, sizeof(remedy),
            "clean or replace the cable or transceiver, then: perfquery -R -C %s -P %llu",
            doctor_quote(port->device, quoted, sizeof(quoted)), (unsigned long long)port->number);
    } else {
        (void)snprintf(remedy, sizeof(remedy),
                       "clean or replace the cable or transceiver, then: ethtool -S %s | grep phy",
                       doctor_quote(port->netdev, quoted, sizeof(quoted)));
    }
    doctor_add(&port->findings, DOCTOR_WARNING, "LINK_ERRORS", remedy, "the link is faulty: %s",
               sum.words);
}

void doctor_check_counters(const struct doctor_root *root, struct doctor_port *port)
{
    char command[DOCTOR_TEXT_MAX];
    (void)statistic_command(port, command);
    uint64_t packet_count = count_packets(root, port);
    struct sum sum = add_up(root, port, loss, TOOL_COUNT_OF(loss));
    if (is_too_many(sum.total, packet_count, PACKETS_PER_EVENT)) {
        add_loss(port, &sum, packet_count);
    }
    sum = add_up(root, port, not_ready, TOOL_COUNT_OF(not_ready));
    if (is_too_many(sum.total, packet_count, PACKETS_PER_EVENT)) {
        doctor_add(
            &port->findings, DOCTOR_WARNING, "RECEIVER_NOT_READY",
            "let the receiving program post more receives (rdmux_ep_attr.recv_depth) and poll "
            "more often",
            "messages arrived while no receive was posted, and were sent again: %s", sum.words);
    }
    sum = add_up(root, port, ignored_notices, TOOL_COUNT_OF(ignored_notices));
    if (sum.total >= LEAST) {
        doctor_add(&port->findings, DOCTOR_WARNING, "CONGESTION_IGNORED",
                   "turn on the reaction to congestion, as for ECN_OFF, for every priority in use",
                   "the port received reports of congestion and did not slow down: %s", sum.words);
    }
    sum = add_up(root, port, marks, TOOL_COUNT_OF(marks));
    if (is_too_many(sum.total, packet_count, MARKS_PER_PACKETS)) {
        doctor_add(&port->findings, DOCTOR_INFO, "CONGESTION", command,
                   "the network is congested: %s", sum.words);
    }
    sum = add_up(root, port, given_up, TOOL_COUNT_OF(given_up));
    if (sum.total > 0) {
        doctor_add(&port->findings, DOCTOR_INFO, "CONNECTIONS_LOST", command,
                   "connections broke because the peer did not answer: %s", sum.words);
    }
    check_link_errors(root, port);
}
