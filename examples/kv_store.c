/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A key-value table that its clients use without their server's help.
 *
 *   kv_store [PORT]                      holds the table until SIGTERM
 *   kv_store HOST:PORT get KEY
 *   kv_store HOST:PORT put KEY VALUE
 *   kv_store HOST:PORT add KEY TIMES     adds 1, TIMES times, each time under the lock
 *
 * The table lies in a region whose token every client gets with its connection. A client locks an
 * entry by compare_swap, reads and writes it one-sided, and unlocks it; meanwhile the server sleeps
 * in poll(2). A lock holds its owner's number, so that the server can free those of a dead client.
 */
#include <rdmux/rdmux.h>

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1024, CLIENTS = 64, WAIT_MS = 10000, IDLE_MS = 100 };

struct entry {
    char key[56]; /* "" = free; entries are never removed */
    char value[64];
};
struct slot {
    _Atomic uint64_t owner; /* number of the client that has locked the entry, 0 = none */
    struct entry entry;
};
struct welcome { /* the server's private data for a new client */
    struct rdmux_token table;
    uint64_t number;
};
struct client {
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    struct rdmux_remote *table;
    uint64_t number;
};

static void check(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fprintf(stderr, "kv_store: %s: %s\n", what, rdmux_last_error());
        exit(1);
    }
}

/* Waits for the one request that is under way; posted is what its post returned. */
static void finish(struct client *client, enum rdmux_status posted, const char *what)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_wc wc;
    size_t count;
    check(posted, what);
    check(rdmux_cq_wait(client->cq, &wc, 1, WAIT_MS, &count), what);
    if (wc.status != RDMUX_OK || wc.opcode == RDMUX_WC_DISCONNECTED) {
        check(rdmux_ep_info(client->ep, &info), "info");
        fprintf(stderr, "kv_store: %s: the server has gone: %s\n", what, info.text);
        exit(1);
    }
}

/* Waits until the lock of the slot at this offset is `from`'s, then makes it `to`'s. */
static void pass_lock(struct client *client, uint64_t offset, uint64_t from, uint64_t to)
{
    uint64_t owner;
    do {
        finish(client,
               rdmux_compare_swap(client->ep, &owner, NULL, client->table,
                                  offset + offsetof(struct slot, owner), from, to, NULL, 0),
               "compare_swap");
    } while (owner != from);
}

/* Locks the slot of a key, or the free one where it belongs; returns its offset in the table. */
static uint64_t find_and_lock(struct client *client, const char *key, struct entry *entry)
{
    uint64_t hash = 0;
    for (const char *c = key; *c != '\0'; c++) {
        hash = hash * 31 + (unsigned char)*c;
    }
    for (uint64_t i = 0; i < SLOTS; i++) {
        uint64_t offset = (hash + i) % SLOTS * sizeof(struct slot);
        pass_lock(client, offset, 0, client->number);
        finish(client,
               rdmux_read(client->ep, entry, sizeof(*entry), NULL, client->table,
                          offset + offsetof(struct slot, entry), NULL, 0),
               "read");
        if (entry->key[0] == '\0' || strcmp(entry->key, key) == 0) {
            return offset;
        }
        pass_lock(client, offset, client->number, 0);
    }
    fprintf(stderr, "kv_store: the table is full\n");
    exit(1);
}

/* Runs one command on one entry under its lock; false if there is nothing to get. */
static bool run(struct client *client, const char *command, const char *key, const char *value)
{
    struct entry entry;
    uint64_t offset = find_and_lock(client, key, &entry);
    bool exists = entry.key[0] != '\0', gets = strcmp(command, "get") == 0;
    if (gets && exists) {
        puts(entry.value);
    }
    if (!gets) {
        unsigned long long sum = strtoull(entry.value, NULL, 10) + 1;
        memcpy(entry.key, key, strlen(key) + 1);
        if (strcmp(command, "put") == 0) {
            memcpy(entry.value, value, strlen(value) + 1);
        } else {
            snprintf(entry.value, sizeof(entry.value), "%llu", sum);
        }
        /* Connections have no order between them: the bytes must be in place before the unlock. */
        finish(client,
               rdmux_write(client->ep, &entry, sizeof(entry), NULL, client->table,
                           offset + offsetof(struct slot, entry), NULL, RDMUX_PLACED),
               "write");
    }
    pass_lock(client, offset, client->number, 0);
    return exists || !gets;
}

static bool use(struct rdmux_fabric *fabric, struct rdmux_cq *cq, char **argv)
{
    struct client client = { .cq = cq };
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct welcome welcome;
    check(rdmux_connect(fabric, cq, argv[1], NULL, WAIT_MS, &client.ep), "connect");
    check(rdmux_ep_info(client.ep, &info), "info");
    memcpy(&welcome, info.private_data, sizeof(welcome));
    client.number = welcome.number;
    check(rdmux_remote_import(client.ep, &welcome.table, WAIT_MS, &client.table), "import");
    fprintf(stderr, "the table is reached over %s\n", info.provider);
    bool adds = strcmp(argv[2], "add") == 0, found = true;
    for (unsigned long i = adds ? strtoul(argv[4], NULL, 10) : 1; i > 0; i--) {
        found = run(&client, argv[2], argv[3], argv[4]);
    }
    check(rdmux_ep_shutdown(client.ep, WAIT_MS), "shutdown");
    rdmux_ep_close(client.ep); /* closes the import, too */
    return found;
}

/* ---------------------------------------------------------------------------------- the server */

struct server {
    struct rdmux_cq *cq;
    struct rdmux_listener *listener;
    struct slot *table;
    struct rdmux_token token;
    struct rdmux_ep *eps[CLIENTS];
    unsigned ep_count;
};

static volatile sig_atomic_t stopping;

static void stop(int signal_number)
{
    (void)signal_number;
    stopping = 1;
}

static void take_clients(struct server *server)
{
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    while (server->ep_count < CLIENTS &&
           rdmux_listener_next(server->listener, 0, &peer) == RDMUX_OK) {
        struct welcome welcome = { .table = server->token, .number = peer.id };
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        struct rdmux_ep **ep = &server->eps[server->ep_count];
        attr.peer = peer.id;
        attr.private_data = &welcome;
        attr.private_length = sizeof(welcome);
        attr.user = (void *)(uintptr_t)peer.id;
        if (rdmux_accept(server->listener, server->cq, &attr, 0, ep) == RDMUX_IN_PROGRESS) {
            server->ep_count++;
        } else {
            fprintf(stderr, "kv_store: accept %s: %s\n", peer.address, rdmux_last_error());
        }
    }
}

static void drop_client(struct server *server, unsigned index)
{
    uint64_t number = (uintptr_t)rdmux_ep_user(server->eps[index]);
    rdmux_ep_close(server->eps[index]);
    server->eps[index] = server->eps[--server->ep_count];
    for (unsigned i = 0; i < SLOTS; i++) {
        uint64_t owner = number;
        atomic_compare_exchange_strong(&server->table[i].owner, &owner, 0);
    }
}

static void take_events(struct server *server)
{
    struct rdmux_wc wc;
    while (rdmux_cq_poll(server->cq, &wc, 1) == 1) {
        bool ended = wc.opcode == RDMUX_WC_DISCONNECTED || wc.status != RDMUX_OK;
        for (unsigned i = 0; ended && i < server->ep_count; i++) {
            if (server->eps[i] == wc.ep) {
                drop_client(server, i);
            }
        }
    }
}

static void serve(struct rdmux_fabric *fabric, struct rdmux_cq *cq, const char *port)
{
    struct server server = { .cq = cq };
    struct rdmux_mr *mr;
    char address[RDMUX_ADDRESS_MAX];
    uint32_t access = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                      RDMUX_ACCESS_REMOTE_ATOMIC;
    snprintf(address, sizeof(address), ":%s", port);
    check(rdmux_mr_alloc(fabric, SLOTS * sizeof(struct slot), access, &mr), "allocate the table");
    check(rdmux_mr_export(mr, &server.token), "export");
    server.table = rdmux_mr_addr(mr);
    check(rdmux_listen(fabric, address, NULL, &server.listener), "listen");
    check(rdmux_listener_address(server.listener, address, sizeof(address)), "address");
    printf("listening on %s\n", address);
    fflush(stdout);
    while (!stopping) {
        /* Whatever this thread does now, for however long, the clients go on. */
        bool has_room = server.ep_count < CLIENTS;
        struct pollfd connections = { .fd = has_room ? rdmux_listener_fd(server.listener) : -1,
                                      .events = POLLIN };
        poll(&connections, 1, IDLE_MS);
        take_clients(&server);
        take_events(&server);
    }
    while (server.ep_count > 0) {
        drop_client(&server, 0);
    }
    rdmux_listener_close(server.listener);
    rdmux_mr_deregister(mr);
}

static bool is_command(int argc, char **argv)
{
    struct entry entry;
    if (argc == 4) {
        return strcmp(argv[2], "get") == 0 && strlen(argv[3]) < sizeof(entry.key);
    }
    return argc == 5 && (strcmp(argv[2], "put") == 0 || strcmp(argv[2], "add") == 0) &&
           strlen(argv[3]) < sizeof(entry.key) && strlen(argv[4]) < sizeof(entry.value);
}

int main(int argc, char **argv)
{
    bool is_client = is_command(argc, argv);
    if (!is_client && argc > 2) {
        fprintf(stderr,
                "usage: kv_store [PORT] | kv_store HOST:PORT COMMAND\n"
                "commands: get KEY, put KEY VALUE, add KEY TIMES; KEY and VALUE are short\n");
        return 2;
    }
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    check(rdmux_fabric_open(NULL, &fabric), "open");
    check(rdmux_cq_create(fabric, NULL, &cq), "create a completion queue");
    bool good = true;
    if (is_client) {
        good = use(fabric, cq, argv);
    } else {
        struct sigaction action = { .sa_handler = stop };
        sigaction(SIGTERM, &action, NULL);
        serve(fabric, cq, argc > 1 ? argv[1] : "7471");
    }
    check(rdmux_cq_destroy(cq), "destroy the completion queue");
    check(rdmux_fabric_close(fabric), "close");
    return good ? 0 : 1;
}
