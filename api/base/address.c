/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Parses, formats and resolves addresses. */
#include "api/base/address.h"

#include "api/base/error.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum rdmux_status refuse_address(const char *text, const char *why)
{
    return rdmux_fail(RDMUX_INVALID, "address \"%s\": %s; write HOST:PORT or [IPv6]:PORT", text,
                      why);
}

static enum rdmux_status take_port(const char *text, const char *port,
                                   struct rdmux_address_text *out)
{
    char *end;
    unsigned long number = strtoul(port, &end, 10);
    if (*port < '0' || *port > '9' || *end != '\0' || number > 65535) {
        return refuse_address(text, "the port is not a number from 0 to 65535");
    }
    snprintf(out->port, sizeof(out->port), "%lu", number);
    return RDMUX_OK;
}

enum rdmux_status rdmux_address_split(const char *text, struct rdmux_address_text *out)
{
    if (text == NULL) {
        return rdmux_fail(RDMUX_INVALID, "address is NULL; write HOST:PORT or [IPv6]:PORT");
    }
    const char *host = text;
    size_t host_length = strlen(text);
    const char *port = NULL;
    if (*text == '[') {
        const char *end = strchr(text, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':')) {
            return refuse_address(
                text, "the bracket is not closed, or something other than a port follows it");
        }
        host = text + 1;
        host_length = (size_t)(end - host);
        port = end[1] == ':' ? end + 2 : NULL;
    } else {
        const char *colon = strchr(text, ':');
        /* Two colons make a bare IPv6 address. */
        if (colon != NULL && strchr(colon + 1, ':') == NULL) {
            host_length = (size_t)(colon - text);
            port = colon + 1;
        }
    }
    if (host_length >= sizeof(out->host)) {
        return refuse_address("(too long)", "the host is longer than 255 bytes");
    }
    memcpy(out->host, host, host_length);
    out->host[host_length] = '\0';
    if (strcmp(out->host, "*") == 0) {
        out->host[0] = '\0';
    }
    snprintf(out->port, sizeof(out->port), "%d", RDMUX_DEFAULT_PORT);
    return port == NULL ? RDMUX_OK : take_port(text, port, out);
}

bool rdmux_address_format(const struct sockaddr *address, socklen_t length,
                          char out[RDMUX_ADDRESS_MAX])
{
    char host[96];
    char port[RDMUX_PORT_MAX];
    if ((address->sa_family != AF_INET && address->sa_family != AF_INET6) ||
        getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(out, RDMUX_ADDRESS_MAX, "socket");
        return false;
    }
    snprintf(out, RDMUX_ADDRESS_MAX, address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
             port);
    return true;
}

enum rdmux_status rdmux_address_resolve(const struct rdmux_address_text *text, bool passive,
                                        bool numeric, struct addrinfo **out)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0) | (numeric ? AI_NUMERICHOST : 0),
    };
    int error = getaddrinfo(text->host[0] == '\0' ? NULL : text->host, text->port, &hints, out);
    if (error == 0) {
        return RDMUX_OK;
    }
    if (numeric && error == EAI_NONAME) {
        return RDMUX_AGAIN;
    }
    return rdmux_fail(error == EAI_MEMORY ? RDMUX_NO_MEMORY : RDMUX_INVALID,
                      "address \"%s\": the name cannot be resolved (%s); check the spelling, or "
                      "give a numeric address",
                      text->host, gai_strerror(error));
}

static bool is_own_host(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
        return ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

void rdmux_address_explain_refusal(const struct addrinfo *addresses, char *out, size_t size)
{
    const struct addrinfo *last = addresses;
    while (last != NULL && last->ai_next != NULL) {
        last = last->ai_next;
    }
    if (last == NULL) {
        snprintf(out, size, "connection refused");
        return;
    }
    /* sin_port and sin6_port are in the same place */
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)last->ai_addr;
    snprintf(out, size, "connection refused: nothing listens on port %u there%s",
             (unsigned)ntohs(in->sin_port),
             is_own_host(last->ai_addr) ? ""
                                        : ", or the server listens on its loopback address alone");
}

size_t rdmux_address_network(const struct sockaddr_storage *address,
                             uint8_t key[RDMUX_ADDRESS_NETWORK_MAX])
{
    size_t size = 0;
    key[size++] = '4';
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        memcpy(key + size, &in->sin_addr, sizeof(in->sin_addr));
        size += sizeof(in->sin_addr);
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        bool mapped = IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr);
        size_t network = mapped ? sizeof(struct in_addr) : sizeof(uint64_t);
        key[0] = mapped ? '4' : '6';
        memcpy(key + size, in6->sin6_addr.s6_addr + (mapped ? 12 : 0), network);
        size += network;
    }
    return size;
}
