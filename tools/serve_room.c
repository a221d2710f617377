/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Chooses the client to evict when the server is full. */
#include "serve.h"

#include <arpa/inet.h>
#include <string.h>

/* A client without traffic for this time is idle. */
static const uint64_t idle_ns = UINT64_C(1000000000);

/* Extracts the address without its port from "192.0.2.1:7471" or "[2001:db8::1%eth0]:7471". */
static void host_of(const char *address, char out[RDMUX_ADDRESS_MAX])
{
    bool brackets = address[0] == '[';
    const char *begin = address + (brackets ? 1 : 0);
    const char *end = brackets ? strpbrk(begin, "%]") : strrchr(begin, ':');
    size_t length = end != NULL ? (size_t)(end - begin) : strlen(begin);
    length = length < RDMUX_ADDRESS_MAX ? length : RDMUX_ADDRESS_MAX - 1;
    memcpy(out, begin, length);
    out[length] = '\0';
}

void serve_origin(const char *address, const char *identity, char out[SERVE_ORIGIN_MAX])
{
    if (identity[0] != '\0') {
        snprintf(out, SERVE_ORIGIN_MAX, "=%s", identity);
        return;
    }
    char host[RDMUX_ADDRESS_MAX];
    struct in6_addr ip;
    host_of(address, host);
    if (inet_pton(AF_INET6, host, &ip) == 1 && !IN6_IS_ADDR_V4MAPPED(&ip)) {
        memset(ip.s6_addr + 8, 0, 8);
        inet_ntop(AF_INET6, &ip, host, sizeof(host));
    }
    snprintf(out, SERVE_ORIGIN_MAX, "%.*s", SERVE_ORIGIN_MAX - 1, host);
}

/* Returns the clients, or the memory, that an origin holds. */
static uint64_t held_by(const struct server *server, const char *origin, bool by_memory)
{
    uint64_t held = 0;
    for (const struct served *at = server->clients; at != NULL; at = at->next) {
        if (strcmp(at->origin, origin) == 0) {
            held += by_memory ? at->memory_reserved : 1;
        }
    }
    return held;
}

/* Eviction order: 0 idle, 1 idle as far as the server can see, 2 busy. */
static unsigned rank_of(const struct server *server, const struct served *client)
{
    if (client->state != SERVED_RUNNING) {
        return 0;
    }
    if (server->now_ns - client->active_ns < idle_ns) {
        return 2;
    }
    return client->one_sided ? 1 : 0;
}

struct served *serve_choose(const struct server *server, const char *origin, uint64_t memory,
                            const struct served *except)
{
    bool by_memory = memory > 0;
    uint64_t ours = held_by(server, origin, by_memory);
    uint64_t most = 0;
    for (const struct served *at = server->clients; at != NULL; at = at->next) {
        uint64_t held = held_by(server, at->origin, by_memory);
        most = held > most ? held : most;
    }
    struct served *chosen = NULL;
    unsigned chosen_rank = 0;
    bool fewer = ours + (by_memory ? memory : 1) < most;
    for (struct served *at = server->clients; at != NULL; at = at->next) {
        bool same = strcmp(at->origin, origin) == 0;
        if (at == except || (by_memory && at->memory_reserved == 0) ||
            (ours == most ? !same : held_by(server, at->origin, by_memory) < most)) {
            continue;
        }
        unsigned rank = rank_of(server, at);
        if ((rank < 2 || fewer) && (chosen == NULL || rank < chosen_rank ||
                                    (rank == chosen_rank && at->active_ns < chosen->active_ns))) {
            chosen = at;
            chosen_rank = rank;
        }
    }
    return chosen;
}
