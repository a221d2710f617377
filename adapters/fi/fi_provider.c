/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The entry of the provider, its fabrics, errors and addresses. */
#include "adapters/fi/fi_internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char rdmux_fi_silent;

/* --------------------------------------------------------------------------------------- errors */

int rdmux_fi_error(enum rdmux_status status)
{
    switch (status) {
    case RDMUX_OK:
        return 0;
    case RDMUX_AGAIN:
    case RDMUX_IN_PROGRESS:
        return -FI_EAGAIN;
    case RDMUX_INVALID:
        return -FI_EINVAL;
    case RDMUX_UNSUPPORTED:
        return -FI_EOPNOTSUPP;
    case RDMUX_NO_MEMORY:
        return -FI_ENOMEM;
    case RDMUX_NO_PATH:
        return -FI_EHOSTUNREACH;
    case RDMUX_REFUSED:
        return -FI_ECONNREFUSED;
    case RDMUX_TIMED_OUT:
        return -FI_ETIMEDOUT;
    case RDMUX_DENIED:
    case RDMUX_AUTH:
        return -FI_EACCES;
    case RDMUX_OUT_OF_RANGE:
        return -FI_EINVAL;
    case RDMUX_LENGTH:
        return -FI_EMSGSIZE;
    case RDMUX_FLUSHED:
        return -FI_ECANCELED;
    case RDMUX_PEER_GONE:
    case RDMUX_OUTCOME_UNKNOWN:
        return -FI_ECONNABORTED;
    case RDMUX_PROTOCOL:
    case RDMUX_VERSION:
        return -FI_ECONNABORTED;
    case RDMUX_IO:
        return -FI_EIO;
    }
    return -FI_EOTHER;
}

const char *rdmux_fi_error_text(int provider_errno)
{
    return rdmux_status_name((enum rdmux_status)provider_errno);
}

int rdmux_fi_no_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
    (void)fid;
    (void)other;
    (void)flags;
    return -FI_ENOSYS;
}

int rdmux_fi_no_control(struct fid *fid, int command, void *arg)
{
    (void)fid;
    (void)command;
    (void)arg;
    return -FI_ENOSYS;
}

int rdmux_fi_no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops,
                         void *context)
{
    (void)fid;
    (void)name;
    (void)flags;
    (void)ops;
    (void)context;
    return -FI_ENOSYS;
}

/* ------------------------------------------------------------------------------------ addresses */

int rdmux_fi_address_print(const void *address, size_t size, char out[RDMUX_ADDRESS_MAX])
{
    struct sockaddr_storage storage = { 0 };
    if (address == NULL || size > sizeof(storage) || size < sizeof(struct sockaddr_in)) {
        return -FI_EINVAL;
    }
    memcpy(&storage, address, size);
    char host[INET6_ADDRSTRLEN] = "";
    unsigned port = 0;
    bool is_any = false;
    if (storage.ss_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, &storage, sizeof(in));
        (void)inet_ntop(AF_INET, &in.sin_addr, host, sizeof(host));
        port = ntohs(in.sin_port);
        is_any = in.sin_addr.s_addr == htonl(INADDR_ANY);
    } else if (storage.ss_family == AF_INET6 && size >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 in6;
        memcpy(&in6, &storage, sizeof(in6));
        (void)inet_ntop(AF_INET6, &in6.sin6_addr, host, sizeof(host));
        port = ntohs(in6.sin6_port);
        is_any = IN6_IS_ADDR_UNSPECIFIED(&in6.sin6_addr);
    } else {
        return -FI_EINVAL;
    }
    if (is_any) {
        (void)snprintf(out, RDMUX_ADDRESS_MAX, ":%u", port);
    } else {
        (void)snprintf(out, RDMUX_ADDRESS_MAX, storage.ss_family == AF_INET6 ? "[%s]:%u" : "%s:%u",
                       host, port);
    }
    return 0;
}

size_t rdmux_fi_address_parse(const char *text, struct sockaddr_storage *out)
{
    char host[RDMUX_ADDRESS_MAX];
    const char *colon = strrchr(text, ':');
    const bool is_bracketed = text[0] == '[';
    if (colon == NULL || colon == text) {
        return 0;
    }
    size_t length = (size_t)(colon - text);
    if (is_bracketed) {
        if (length < 3 || text[length - 1] != ']') {
            return 0;
        }
        length -= 2;
        text++;
    }
    if (length >= sizeof(host)) {
        return 0;
    }
    memcpy(host, text, length);
    host[length] = '\0';
    char *end = NULL;
    const unsigned long port = strtoul(colon + 1, &end, 10);
    if (end == colon + 1 || *end != '\0' || port > UINT16_MAX) {
        return 0;
    }
    memset(out, 0, sizeof(*out));
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
    if (!is_bracketed && inet_pton(AF_INET, host, &in.sin_addr) == 1) {
        memcpy(out, &in, sizeof(in));
        return sizeof(in);
    }
    if (is_bracketed && inet_pton(AF_INET6, host, &in6.sin6_addr) == 1) {
        memcpy(out, &in6, sizeof(in6));
        return sizeof(in6);
    }
    return 0;
}

void rdmux_fi_host_put(const void *address, size_t size, struct rdmux_fi_greeting *greeting)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    memset(greeting->host, 0, sizeof(greeting->host));
    greeting->family = 0;
    if (address == NULL) {
        return;
    }
    if (size == sizeof(in6)) {
        memcpy(&in6, address, sizeof(in6));
        greeting->family = IN6_IS_ADDR_UNSPECIFIED(&in6.sin6_addr) ? 0 : 6;
        memcpy(greeting->host, &in6.sin6_addr, sizeof(in6.sin6_addr));
    } else if (size >= sizeof(in)) {
        memcpy(&in, address, sizeof(in));
        greeting->family = in.sin_addr.s_addr == htonl(INADDR_ANY) ? 0 : 4;
        memcpy(greeting->host, &in.sin_addr, sizeof(in.sin_addr));
    }
}

size_t rdmux_fi_host_take(const struct rdmux_fi_greeting *greeting, struct sockaddr_storage *out)
{
    struct sockaddr_in in = { .sin_family = AF_INET };
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
    memset(out, 0, sizeof(*out));
    if (greeting->family == 4) {
        memcpy(&in.sin_addr, greeting->host, sizeof(in.sin_addr));
        memcpy(out, &in, sizeof(in));
        return sizeof(in);
    }
    if (greeting->family == 6) {
        memcpy(&in6.sin6_addr, greeting->host, sizeof(in6.sin6_addr));
        memcpy(out, &in6, sizeof(in6));
        return sizeof(in6);
    }
    return 0;
}

int rdmux_fi_address_copy(const void *from, size_t size, void *to, size_t *room)
{
    const size_t given = *room;
    *room = size;
    if (size > 0 && to != NULL) {
        memcpy(to, from, given < size ? given : size);
    }
    return given < size ? -FI_ETOOSMALL : 0;
}

/* -------------------------------------------------------------------------------------- fabrics */

/* Lines come only if RDMUX_LOG asks for them. */
static void print_line(void *user, enum rdmux_log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)fprintf(stderr, "rdmux: %s\n", line);
}

static int fabric_close(struct fid *fid)
{
    struct fi_rdmux_fabric *fabric = FI_OF(fid, struct fi_rdmux_fabric, fid.fid);
    if (atomic_load(&fabric->children) != 0) {
        return -FI_EBUSY;
    }
    if (rdmux_fabric_close(fabric->rdmux) != RDMUX_OK) {
        FI_COMPLAIN(FI_LOG_FABRIC, "%s\n", rdmux_last_error());
        return -FI_EBUSY;
    }
    free(fabric);
    return 0;
}

static int fabric_wait_open(struct fid_fabric *fid, struct fi_wait_attr *attr, struct fid_wait **out)
{
    (void)fid;
    (void)attr;
    (void)out;
    return -FI_ENOSYS;
}

static int fabric_trywait(struct fid_fabric *fid, struct fid **fids, int count)
{
    (void)fid;
    int result = 0;
    for (int i = 0; i < count && result == 0; i++) {
        if (fids[i]->fclass == FI_CLASS_CQ) {
            result = rdmux_fi_cq_trywait(FI_OF(fids[i], struct fi_rdmux_cq, fid.fid));
        } else if (fids[i]->fclass == FI_CLASS_EQ) {
            result = rdmux_fi_eq_trywait(FI_OF(fids[i], struct fi_rdmux_eq, fid.fid));
        } else {
            result = -FI_EINVAL;
        }
    }
    return result;
}

static struct fi_ops fabric_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = fabric_close,
    .bind = rdmux_fi_no_bind,
    .control = rdmux_fi_no_control,
    .ops_open = rdmux_fi_no_ops_open,
};

static struct fi_ops_fabric fabric_ops = {
    .size = sizeof(struct fi_ops_fabric),
    .domain = rdmux_fi_domain_open,
    .passive_ep = rdmux_fi_pep_open,
    .eq_open = rdmux_fi_eq_open,
    .wait_open = fabric_wait_open,
    .trywait = fabric_trywait,
};

int rdmux_fi_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
    (void)attr; /* the name is that of a network, and all of them are one fabric of rdmux */
    struct fi_rdmux_fabric *fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL) {
        return -FI_ENOMEM;
    }
    struct rdmux_fabric_attr options = RDMUX_FABRIC_ATTR_INIT;
    options.log = print_line;
    options.flags = RDMUX_FABRIC_FIND_REGIONS;
    enum rdmux_status status = rdmux_fabric_open(&options, &fabric->rdmux);
    if (status != RDMUX_OK) {
        FI_COMPLAIN(FI_LOG_FABRIC, "%s\n", rdmux_last_error());
        free(fabric);
        return rdmux_fi_error(status);
    }
    fabric->fid.fid.fclass = FI_CLASS_FABRIC;
    fabric->fid.fid.context = context;
    fabric->fid.fid.ops = &fabric_fid_ops;
    fabric->fid.ops = &fabric_ops;
    *out = &fabric->fid;
    return 0;
}

/* ------------------------------------------------------------------------------------ the entry */

static void cleanup(void)
{
    /* Threads belong to fabrics and domains, and end with them. */
}

struct fi_provider rdmux_fi_provider = {
    .version = FI_VERSION(RDMUX_VERSION_MAJOR, RDMUX_VERSION_MINOR),
    .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
    .name = "rdmux",
    .getinfo = rdmux_fi_getinfo,
    .fabric = rdmux_fi_fabric_open,
    .cleanup = cleanup,
};

FI_EXT_INI;
FI_EXT_INI
{
    return &rdmux_fi_provider;
}
