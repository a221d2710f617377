/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The table of lives. A new life is a new entry. */
#include "stages.h"

enum {
    MANUAL = 1 << MODE_MANUAL,
    SERVED = 1 << MODE_SERVED,
    ASLEEP = 1 << MODE_ASLEEP,
    ALL = MANUAL | SERVED | ASLEEP,
};

/* An adapter with the addresses of the loopback interface. */
#define DEVICE(link) "link=" link ",netdev=lo"
/* An adapter with ibv_wr_*() and strict access rights, on a kernel that does not protect pinned
 * pages from fork. */
#define OTHER_DEVICE(link) "link=" link ",netdev=lo,like=hca,fork_needed=yes"

#define WHOLE                                               \
    {                                                       \
        meet, share_memory, send_messages, use_memory, part \
    }
#define REVOKED                                                        \
    {                                                                  \
        meet, share_memory, take_back, use_memory, send_messages, part \
    }
#define SUDDEN                                        \
    {                                                 \
        meet, share_memory, use_memory, part_suddenly \
    }
#define FLAPPED                                                        \
    {                                                                  \
        meet, share_memory, flap_port, send_messages, use_memory, part \
    }
#define PLAIN                                                         \
    {                                                                 \
        meet_plainly, share_plainly, send_messages, use_plainly, part \
    }

/* With failover: breaks in the middle, then continues as other lives do. */
#define BROKEN(by)                                              \
    {                                                           \
        meet, share_memory, by, send_messages, use_memory, part \
    }

/* Endpoints that become streams. */
#define STREAMS(by)                                 \
    {                                               \
        by, become_streams, move_bytes, end_streams \
    }

/* clang-format off */
const struct scenario scenarios[] = {
    { .name = "tcp",   .paths = "tcp",   .modes = ALL, .stages = WHOLE },
    { .name = "shm",   .paths = "shm",   .modes = ALL, .stages = WHOLE },
    { .name = "ib",    .paths = "ib",    .modes = ALL, .stages = WHOLE, .device = DEVICE("ib") },
    { .name = "roce",  .paths = "roce",  .modes = ALL, .stages = WHOLE, .device = DEVICE("roce") },
    { .name = "iwarp", .paths = "iwarp", .modes = ALL, .stages = WHOLE, .device = DEVICE("iwarp") },
    { .name = "roce-hca", .paths = "roce", .modes = MANUAL, .stages = WHOLE,
      .device = OTHER_DEVICE("roce") },

    { .name = "tcp-psk",  .paths = "tcp",  .modes = MANUAL | SERVED, .stages = WHOLE, .auth = RDMUX_AUTH_PSK },
    { .name = "tcp-cert", .paths = "tcp",  .modes = MANUAL, .stages = WHOLE, .auth = RDMUX_AUTH_CERT },
    { .name = "tcp-name", .paths = "tcp",  .modes = SERVED, .stages = WHOLE, .auth = RDMUX_AUTH_CERT,
      .host = "localhost" },
    { .name = "shm-psk",  .paths = "shm",  .modes = MANUAL, .stages = WHOLE, .auth = RDMUX_AUTH_PSK },
    { .name = "iwarp-psk", .paths = "iwarp", .modes = MANUAL, .stages = WHOLE, .auth = RDMUX_AUTH_PSK,
      .device = DEVICE("iwarp") },

    { .name = "tcp-srq",   .paths = "tcp",   .modes = MANUAL, .stages = WHOLE, .has_srq = true },
    { .name = "shm-srq",   .paths = "shm",   .modes = MANUAL, .stages = WHOLE, .has_srq = true },
    { .name = "ib-srq",    .paths = "ib",    .modes = MANUAL, .stages = WHOLE, .has_srq = true,
      .device = DEVICE("ib") },
    { .name = "iwarp-srq", .paths = "iwarp", .modes = MANUAL, .stages = WHOLE, .has_srq = true,
      .device = DEVICE("iwarp") },

    { .name = "tcp-revoke",   .paths = "tcp",   .modes = SERVED, .stages = REVOKED },
    { .name = "shm-revoke",   .paths = "shm",   .modes = SERVED, .stages = REVOKED },
    { .name = "ib-revoke",    .paths = "ib",    .modes = SERVED, .stages = REVOKED, .device = DEVICE("ib") },
    { .name = "iwarp-revoke", .paths = "iwarp", .modes = SERVED, .stages = REVOKED, .device = DEVICE("iwarp") },

    { .name = "tcp-sudden",   .paths = "tcp",   .modes = MANUAL, .stages = SUDDEN },
    { .name = "shm-sudden",   .paths = "shm",   .modes = MANUAL, .stages = SUDDEN },
    { .name = "roce-sudden",  .paths = "roce",  .modes = MANUAL, .stages = SUDDEN, .device = DEVICE("roce") },
    { .name = "iwarp-sudden", .paths = "iwarp", .modes = MANUAL, .stages = SUDDEN, .device = DEVICE("iwarp") },

    { .name = "ib-flap",     .paths = "ib",    .modes = MANUAL | SERVED, .stages = FLAPPED, .device = DEVICE("ib") },

    { .name = "strangers", .paths = "tcp", .modes = MANUAL | SERVED,
      .stages = { meet_strangers, share_memory, send_messages, part } },
    { .name = "strangers-psk", .paths = "tcp", .modes = MANUAL, .auth = RDMUX_AUTH_PSK,
      .stages = { meet_strangers, send_messages, part } },
    { .name = "adopted", .paths = "tcp", .modes = MANUAL | SERVED,
      .stages = { meet_by_socket, share_memory, send_messages, use_memory, part } },
    { .name = "four-sockets", .paths = "tcp", .modes = MANUAL, .stages = WHOLE, .data_sockets = 4 },
    { .name = "tcp-shown", .paths = "tcp", .modes = MANUAL | SERVED, .stages = WHOLE, .shares_counts = true },
    { .name = "shm-or-tcp", .paths = "shm,tcp", .modes = MANUAL, .stages = WHOLE },
    { .name = "ib-or-tcp",  .paths = "ib,tcp",  .modes = MANUAL, .stages = WHOLE, .device = DEVICE("ib") },

    { .name = "ib-plain",    .paths = "ib",    .modes = MANUAL, .stages = PLAIN, .device = DEVICE("ib") },
    { .name = "roce-plain",  .paths = "roce",  .modes = SERVED, .stages = PLAIN, .device = DEVICE("roce") },
    { .name = "iwarp-plain", .paths = "iwarp", .modes = MANUAL, .stages = PLAIN, .device = DEVICE("iwarp") },

    { .name = "shm-to-tcp",     .paths = "shm,tcp", .modes = ALL, .stages = BROKEN(lose_path),
      .has_failover = true },
    { .name = "tcp-to-tcp",     .paths = "tcp", .modes = MANUAL, .stages = BROKEN(lose_sockets),
      .has_failover = true },
    { .name = "tcp-to-tcp-psk", .paths = "tcp", .modes = SERVED, .stages = BROKEN(lose_sockets),
      .has_failover = true, .auth = RDMUX_AUTH_PSK },
    { .name = "shm-to-tcp-srq", .paths = "shm,tcp", .modes = MANUAL, .stages = BROKEN(lose_path),
      .has_failover = true, .has_srq = true },
    { .name = "ib-to-tcp",      .paths = "ib,tcp", .modes = MANUAL | SERVED, .stages = BROKEN(lose_queues),
      .has_failover = true, .device = DEVICE("ib") },
    { .name = "roce-to-roce",   .paths = "roce", .modes = MANUAL, .stages = BROKEN(lose_path),
      .has_failover = true, .device = DEVICE("roce") },
    { .name = "iwarp-to-tcp",   .paths = "iwarp,tcp", .modes = MANUAL, .stages = BROKEN(lose_queues),
      .has_failover = true, .device = DEVICE("iwarp") },
    { .name = "control-lost",   .paths = "tcp", .modes = MANUAL | SERVED,
      .stages = { meet, share_memory, lose_control, lose_both, use_memory, part }, .has_failover = true },
    { .name = "control-lost-psk", .paths = "shm,tcp", .modes = MANUAL, .auth = RDMUX_AUTH_PSK,
      .stages = { meet, share_memory, lose_control, lose_both, use_memory, part }, .has_failover = true },
    { .name = "control-lost-revoke", .paths = "tcp", .modes = SERVED,
      .stages = { meet, share_memory, lose_control, take_back, send_messages, part }, .has_failover = true },
    { .name = "moved-sudden",   .paths = "shm,tcp", .modes = MANUAL,
      .stages = { meet, share_memory, lose_path_and_part }, .has_failover = true },

    { .name = "stream-tcp",  .paths = "tcp", .modes = ALL,
      .stages = { meet_as_streams, move_bytes, end_streams } },
    { .name = "stream-shm",  .paths = "shm", .modes = MANUAL | ASLEEP,
      .stages = { meet_as_streams, move_bytes, end_streams } },
    { .name = "stream-lone", .paths = "shm", .modes = MANUAL | SERVED,
      .stages = { meet_as_lone_streams, move_bytes, end_streams } },
    { .name = "stream-of-ib", .paths = "ib", .modes = MANUAL, .stages = STREAMS(meet), .device = DEVICE("ib") },
    { .name = "stream-of-iwarp", .paths = "iwarp", .modes = MANUAL, .stages = STREAMS(meet),
      .device = DEVICE("iwarp") },
    { .name = "stream-adopted", .paths = "tcp", .modes = MANUAL, .stages = STREAMS(meet_by_socket) },
    { .name = "stream-to-tcp", .paths = "shm,tcp", .modes = MANUAL | SERVED, .has_failover = true,
      .stages = { meet_as_streams, move_bytes_and_lose_path, end_streams } },
};
/* clang-format on */
const size_t scenario_count = sizeof(scenarios) / sizeof(scenarios[0]);
