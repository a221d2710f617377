/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The toy provider as a device would have it: it takes its time to open, every byte that it is given must lie within memory
 * registered with it, and no write or read may be longer than MESSAGE_MAX. What breaks that ends the endpoint with a text.
 */
#include "../toy/toy.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum {
    INLINE_MAX = 32, /* bytes that go without a key */
    MESSAGE_MAX = 8 * 1024 * 1024,
    OPENING_MS = 20,
};

struct strict_mr {
    struct rdmux_provider_mr base;
    uintptr_t addr;
    uint64_t length;
    uint32_t access;
};

static enum rdmux_status strict_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                      size_t max, size_t *count)
{
    enum rdmux_status status = toy_provider.probe(fabric, out, max, count);
    for (size_t i = 0; i < *count && i < max; i++) {
        out[i].max_inline = INLINE_MAX;
        out[i].max_message = MESSAGE_MAX;
    }
    return status;
}

/* Takes its time, as drivers do: the core has to serve others in the meantime. */
static enum rdmux_status strict_domain_open(struct rdmux_provider_domain *domain,
                                            const struct rdmux_local_path *path)
{
    const struct timespec long_time = { .tv_nsec = OPENING_MS * 1000000L };
    (void)nanosleep(&long_time, NULL);
    return toy_provider.domain_open(domain, path);
}

static enum rdmux_status strict_mr_register(struct rdmux_provider_mr *base,
                                            const struct rdmux_provider_mr_attr *attr)
{
    struct strict_mr *mr = (struct strict_mr *)base;
    mr->addr = (uintptr_t)attr->addr;
    mr->length = attr->length;
    mr->access = attr->access;
    return base->mr == NULL ? RDMUX_OK : toy_provider.mr_register(base, attr);
}

static void strict_mr_deregister(struct rdmux_provider_mr *base)
{
    struct strict_mr *mr = (struct strict_mr *)base;
    mr->length = 0;
    if (base->mr != NULL) {
        toy_provider.mr_deregister(base);
    }
}

static enum rdmux_status refuse(const char *what, const struct rdmux_request *request)
{
    rdmux_provider_error("strict: %s: op %u, %llu bytes", what, request->op,
                         (unsigned long long)request->length);
    return RDMUX_INVALID;
}

static enum rdmux_status check(const struct rdmux_request *request, uint32_t needed)
{
    bool keyless = request->length <= INLINE_MAX &&
                   (request->op == RDMUX_OP_SEND || request->op == RDMUX_OP_SEND_IMM ||
                    request->op == RDMUX_OP_WRITE || request->op == RDMUX_OP_WRITE_IMM);
    for (uint16_t i = 0; i < request->sge_count; i++) {
        const struct rdmux_provider_sge *sge = &request->sges[i];
        const struct strict_mr *mr = (const struct strict_mr *)sge->mr;
        if (mr == NULL) {
            if (!keyless) {
                return refuse("a buffer without a registration", request);
            }
            continue;
        }
        uint64_t at = (uintptr_t)sge->addr - mr->addr;
        if (at > mr->length || sge->length > mr->length - at) {
            return refuse("a buffer outside its registration", request);
        }
        if ((mr->access & needed) != needed) {
            return refuse("a registration that lacks the right", request);
        }
    }
    return RDMUX_OK;
}

static enum rdmux_status strict_post(struct rdmux_provider_ep *ep, struct rdmux_request *requests,
                                     size_t count, uint32_t flags, size_t *posted)
{
    *posted = 0;
    for (size_t i = 0; i < count; i++) {
        bool reads = requests[i].op == RDMUX_OP_READ || requests[i].op == RDMUX_OP_FETCH_ADD ||
                     requests[i].op == RDMUX_OP_COMPARE_SWAP;
        enum rdmux_status status = check(&requests[i], reads ? RDMUX_ACCESS_LOCAL_WRITE : 0);
        if (status == RDMUX_OK && requests[i].length > MESSAGE_MAX) {
            status = refuse("a message beyond the device's limit", &requests[i]);
        }
        if (status != RDMUX_OK) {
            return status;
        }
    }
    return toy_provider.post(ep, requests, count, flags, posted);
}

static enum rdmux_status strict_post_recv(struct rdmux_provider_ep *ep,
                                          struct rdmux_request *requests, size_t count)
{
    for (size_t i = 0; i < count && !rdmux_provider_has_srq(ep); i++) {
        enum rdmux_status status = check(&requests[i], RDMUX_ACCESS_LOCAL_WRITE);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    return toy_provider.post_recv(ep, requests, count);
}

RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);

const struct rdmux_plugin *rdmux_plugin(void)
{
    static struct rdmux_provider_ops strict_provider;
    static const struct rdmux_provider_ops *const providers[] = { &strict_provider };
    static const struct rdmux_plugin plugin = {
        .abi = RDMUX_PROVIDER_ABI,
        .count = 1,
        .providers = providers,
    };
    strict_provider = toy_provider;
    strict_provider.name = "strict";
    strict_provider.flags = RDMUX_PROVIDER_LOCAL_KEYS;
    strict_provider.mr_size = sizeof(struct strict_mr);
    strict_provider.probe = strict_probe;
    strict_provider.domain_open = strict_domain_open;
    strict_provider.mr_register = strict_mr_register;
    strict_provider.mr_deregister = strict_mr_deregister;
    strict_provider.post = strict_post;
    strict_provider.post_recv = strict_post_recv;
    return &plugin;
}
