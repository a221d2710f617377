/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Two endpoints of rdma:// in one process, for the cases of test_rdmacm. What fails ends the case. */
#ifndef RDMUX_INTEROP_RDMACM_PAIR_H
#define RDMUX_INTEROP_RDMACM_PAIR_H

#include <rdmux/rdmux.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>

enum { PATIENCE_MS = 60000, SIZE = 4096, SMALL = 16 };

extern char host[INET_ADDRSTRLEN]; /* an address of the device */

/* Both ends, on one cq. */
struct pair {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_listener *listener;
    char address[RDMUX_ADDRESS_MAX + 16]; /* "rdma://…" of the listener */
    struct rdmux_ep *client;
    struct rdmux_ep *server;
    struct rdmux_mr *mr;
    uint8_t *bytes; /* mr's */
    struct rdmux_ep_attr client_attr;
    struct rdmux_ep_attr server_attr;
};

#define OK(call) assert_int_equal((call), RDMUX_OK)
#define GOES(call) check_ok((call), #call)

/* The address of the simulated device: that of the first network interface that is up and has one,
 * else of the loopback interface. RDMUX_INTEROP_ADDRESS: of another device. */
void find_host(void);
void check_ok(enum rdmux_status status, const char *what);
void open_fabric(struct pair *pair);
void listen_here(struct pair *pair, const char *scheme);
void dial(struct pair *pair);
uint64_t await_peer(struct pair *pair, struct rdmux_peer *out);
/* The connector goes on only when the cq makes progress. */
uint64_t await_dialled(struct pair *pair, struct rdmux_peer *out);
void take(struct pair *pair, uint64_t peer);
/* Until both have said that they are connected. */
void await_both(struct pair *pair);
/* With a receive at the server, if wanted, that is there before the client may send: on iWARP nobody
 * waits for one. */
void connect_pair_to(struct pair *pair, void *buf, size_t length);
void connect_pair(struct pair *pair);
void add_region(struct pair *pair, uint32_t access);
void close_pair(struct pair *pair);
struct rdmux_wc next_entry(struct pair *pair);
struct rdmux_ep_info info_of(struct rdmux_ep *ep);
/* The next entry, which must be this one. */
struct rdmux_wc expect(struct pair *pair, const struct rdmux_ep *ep, uint32_t opcode,
                       enum rdmux_status status);
bool is_iwarp(struct rdmux_ep *ep);
/* One's own region, as if the peer had told it. */
struct rdmux_remote *import(struct pair *pair, size_t length);

/* The cases, by subject. */
struct rdmacm_cases {
    const struct CMUnitTest *cases;
    size_t count;
};
extern const struct rdmacm_cases rdmacm_connect_cases;
extern const struct rdmacm_cases rdmacm_memory_cases;
extern const struct rdmacm_cases rdmacm_end_cases;

#endif
