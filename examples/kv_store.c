/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A key-value table that clients use without their server's CPU.
 *
 * The server gives each client a token for the table, and a number. A client takes the lock by
 * compare_swap, reads and writes one-sided, and releases the lock; meanwhile the server sleeps. The
 * lock holds its owner's number, so the server can release it if the owner dies.
 */
#include <rdmux/rdmux.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 64, KEY_MAX = 55, WAIT_MS = 10000, TICK_MS = 100 };

struct table {
    _Atomic uint64_t owner; /* number of the client that has the lock, 0: none */
    struct entry {
        char key[KEY_MAX + 1]; /* "": free; entries are never removed */
        uint64_t value;
    } entries[ENTRIES];
};

static const char usage[] = "usage: kv_store serve ADDRESS [CLIENTS]\n"
                            "       kv_store get ADDRESS KEY\n"
                            "       kv_store put ADDRESS KEY NUMBER\n"
                            "       kv_store add ADDRESS KEY TIMES    adds 1, TIMES times\n"
                            "The server ends after CLIENTS clients (default: never).\n"
                            "ADDRESS is HOST:PORT, or *:PORT to serve; PORT 0: a free port.\n"
                            "KEY has 1 to 55 bytes.\n";

static struct rdmux_fabric *fabric;
static struct rdmux_cq *cq;
static struct rdmux_ep *ep;

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        const char *name = rdmux_status_name(status);
        fprintf(stderr, "kv_store: %s: %s %s\n", what, name, rdmux_last_error());
        exit(1);
    }
}

static void serve(const char *wanted, size_t clients)
{
    const uint32_t access = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                            RDMUX_ACCESS_REMOTE_ATOMIC;
    struct rdmux_listener *listener;
    struct rdmux_mr *mr;
    struct rdmux_token token;
    struct rdmux_wc wc;
    char address[RDMUX_ADDRESS_MAX];
    must(rdmux_mr_alloc(fabric, sizeof(struct table), access, &mr), "allocate");
    must(rdmux_mr_export(mr, &token), "export");
    must(rdmux_listen(fabric, wanted, NULL, &listener), "listen");
    must(rdmux_listener_address(listener, address, sizeof(address)), "address");
    printf("listening on %s\n", address);
    fflush(stdout);
    struct table *table = rdmux_mr_addr(mr);
    for (uint32_t come = 0, gone = 0; come < clients || gone < come;) {
        enum rdmux_status status = rdmux_accept(listener, cq, NULL, TICK_MS, &ep);
        if (status != RDMUX_TIMED_OUT) {
            must(status, "accept");
            rdmux_ep_set_user(ep, (void *)(uintptr_t)++come);
            if (rdmux_send_imm(ep, &token, sizeof(token), NULL, come, NULL, 0) != RDMUX_OK) {
                fprintf(stderr, "kv_store: client %u: %s\n", come, rdmux_last_error());
            }
        }
        while (rdmux_cq_poll(cq, &wc, 1) == 1) {
            if (wc.opcode == RDMUX_WC_DISCONNECTED) {
                uint64_t owner = (uintptr_t)rdmux_ep_user(wc.ep);
                atomic_compare_exchange_strong(&table->owner, &owner, 0);
                rdmux_ep_close(wc.ep);
                gone++;
            }
        }
    }
    rdmux_listener_close(listener);
    rdmux_mr_deregister(mr);
}

/* Waits for the client's one in-flight request; posted is the status of its post. */
static struct rdmux_wc finish(enum rdmux_status posted, const char *what)
{
    struct rdmux_wc wc;
    size_t count;
    must(posted, what);
    must(rdmux_cq_wait(cq, &wc, 1, WAIT_MS, &count), what);
    must((enum rdmux_status)wc.status, what);
    return wc;
}

static void use(const char *command, const char *address, const char *key, size_t number)
{
    struct rdmux_remote *table;
    struct rdmux_token token;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    bool gets = strcmp(command, "get") == 0, adds = strcmp(command, "add") == 0, done = true;
    must(rdmux_connect(fabric, cq, address, NULL, WAIT_MS, &ep), "connect");
    uint64_t owner, own = finish(rdmux_recv(ep, &token, sizeof(token), NULL, NULL), "welcome").imm;
    must(rdmux_remote_import(ep, &token, WAIT_MS, &table), "import");
    must(rdmux_ep_info(ep, &info), "info");
    fprintf(stderr, "the table is reached over %s\n", info.provider);
    for (size_t times = adds ? number : 1; times > 0; times--) {
        struct entry entries[ENTRIES], *entry = entries, *end = entries + ENTRIES;
        uint64_t at = offsetof(struct table, entries);
        do {
            finish(rdmux_compare_swap(ep, &owner, NULL, table, 0, 0, own, NULL, 0), "lock");
        } while (owner != 0);
        finish(rdmux_read(ep, entries, sizeof(entries), NULL, table, at, NULL, 0), "read");
        while (entry < end && entry->key[0] != '\0' && strcmp(entry->key, key) != 0) {
            entry++;
            at += sizeof(*entry);
        }
        done = entry < end && !(gets && entry->key[0] == '\0');
        if (done && gets) {
            printf("%ju\n", (uintmax_t)entry->value);
        } else if (done) {
            snprintf(entry->key, sizeof(entry->key), "%s", key);
            entry->value = adds ? entry->value + 1 : number;
            /* Placed before the unlock; otherwise another client's connection might overtake it. */
            finish(rdmux_write(ep, entry, sizeof(*entry), NULL, table, at, NULL, RDMUX_PLACED),
                   "write");
        }
        finish(rdmux_compare_swap(ep, &owner, NULL, table, 0, own, 0, NULL, 0), "unlock");
    }
    must(rdmux_ep_shutdown(ep, WAIT_MS), "shutdown");
    rdmux_ep_close(ep); /* closes the import, too */
    if (!done) {
        fprintf(stderr, "kv_store: %s: not in the table, or no room for it\n", key);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    bool helps = argc == 2 && strcmp(argv[1], "--help") == 0;
    bool serves = (argc == 3 || argc == 4) && strcmp(argv[1], "serve") == 0;
    bool gets = argc == 4 && strcmp(argv[1], "get") == 0;
    bool changes = argc == 5 && (strcmp(argv[1], "put") == 0 || strcmp(argv[1], "add") == 0);
    size_t number = SIZE_MAX, key_length = gets || changes ? strlen(argv[3]) : 1;
    char rest;
    if (!(serves || gets || changes) || key_length == 0 || key_length > KEY_MAX ||
        (argc > 3 && !gets && sscanf(argv[argc - 1], "%zu%c", &number, &rest) != 1)) {
        fputs(usage, helps ? stdout : stderr);
        return helps ? 0 : 2;
    }
    must(rdmux_fabric_open(NULL, &fabric), "open");
    must(rdmux_cq_create(fabric, NULL, &cq), "create a completion queue");
    serves ? serve(argv[2], number) : use(argv[1], argv[2], argv[3], number);
    must(rdmux_cq_destroy(cq), "destroy the completion queue");
    must(rdmux_fabric_close(fabric), "close");
    return 0;
}
