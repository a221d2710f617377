/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tokens and keys that a peer presents: only the token or key of a region that is exported now
 * gives access, and only to the bytes and rights of the region. Byte 0 picks the region; then come
 * a count of changes to its token and key (place, bits), and offset, length and rights of an
 * access; then the same for the token that was exported to one peer, and the name of the peer that
 * presents it.
 */
#include "driver.h"

#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/object/mr_export.h"
#include "tcp_fallback/tcp_provider.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH = 256, GUARD_SIZE = 64, GUARD = 0xa5 };

enum { EXPORTED, REVOKED, NOT_EXPORTED, REGION_COUNT };

struct input {
    const uint8_t *at;
    size_t left;
};

struct region {
    _Alignas(8) uint8_t memory[GUARD_SIZE + LENGTH + GUARD_SIZE];
    uint32_t access;
    struct rdmux_mr *mr;
    struct rdmux_token token;
    struct rdmux_token grant; /* to `granted` */
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
};

static const char granted[] = "anna";

static struct rdmux_fabric *fabric;
static bool has_grants; /* false: without OpenSSL no peer authenticates */
static struct rdmux_cq *cq;
static struct rdmux_provider_cq provider_cq;
static struct rdmux_provider_ep ep = { .cq = &provider_cq };
static struct region regions[REGION_COUNT] = {
    [EXPORTED] = { .access = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_ATOMIC },
    [REVOKED] = { .access = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE },
    [NOT_EXPORTED] = { .access = RDMUX_ACCESS_REMOTE_WRITE },
};

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static uint64_t take(struct input *in, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size && in->left > 0; i++) {
        value = value << 8 | *in->at++;
        in->left--;
    }
    return value;
}

static void region_open(struct region *region)
{
    struct rdmux_provider_mr registration = { .mr = NULL };
    memset(region->memory, GUARD, sizeof(region->memory));
    require(rdmux_mr_register(fabric, region->memory + GUARD_SIZE, LENGTH, region->access,
                              &region->mr) == RDMUX_OK);
    registration.mr = region->mr;
    if (region != &regions[NOT_EXPORTED]) {
        require(rdmux_mr_export(region->mr, &region->token) == RDMUX_OK);
        require(!has_grants || rdmux_mr_export_to(region->mr, granted, &region->grant) == RDMUX_OK);
    }
    rdmux_target_key(&registration, region->key);
    if (region == &regions[REVOKED]) {
        require(rdmux_mr_revoke(region->mr) == RDMUX_OK);
    }
}

/* Opens a fabric that authenticates, if the library was built for it. */
static void fabric_open(struct rdmux_fabric_attr *attr)
{
    static const char line[] = "anna:00112233445566778899aabbccddeeff\n";
    char name[64];
    int fd = memfd_create("keys", MFD_CLOEXEC);
    require(fd >= 0 && fchmod(fd, 0600) == 0 &&
            write(fd, line, sizeof(line) - 1) == (ssize_t)sizeof(line) - 1);
    (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    struct rdmux_fabric_auth auth = RDMUX_FABRIC_AUTH_INIT;
    auth.method = RDMUX_AUTH_PSK;
    auth.key_file = name;
    attr->auth = &auth;
    enum rdmux_status status = rdmux_fabric_open(attr, &fabric);
    has_grants = status == RDMUX_OK;
    attr->auth = NULL;
    require(has_grants ||
            (status == RDMUX_UNSUPPORTED && rdmux_fabric_open(attr, &fabric) == RDMUX_OK));
    close(fd);
}

static void scene_open(void)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS |
                 RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD;
    attr.paths = "tcp";
    fabric_open(&attr);
    require(rdmux_cq_create(fabric, NULL, &cq) == RDMUX_OK);
    provider_cq.cq = cq;
    for (int i = 0; i < REGION_COUNT; i++) {
        region_open(&regions[i]);
    }
}

/* Changes bytes; tells whether any differs from before. */
static bool spoil(struct input *in, uint8_t *bytes, size_t size)
{
    uint8_t before[64];
    memcpy(before, bytes, size);
    for (uint64_t left = take(in, 1) % 8; left > 0; left--) {
        size_t at = (size_t)take(in, 1) % size;
        bytes[at] ^= (uint8_t)take(in, 1);
    }
    return memcmp(before, bytes, size) != 0;
}

/* Imports. No domain has the region, so a good token gives RDMUX_UNSUPPORTED. */
static void import(const struct rdmux_token *token, const char *identity, bool good)
{
    static struct rdmux_provider_domain nowhere = { .ops = &rdmux_tcp_provider };
    struct rdmux_mr *mr = NULL;
    struct rdmux_provider_mr *registration = NULL;
    (void)rdmux_token_is_valid(token);
    enum rdmux_status status = rdmux_mr_import(fabric, token, identity, cq, 1, &nowhere, &mr,
                                               &registration);
    require(status == (good ? RDMUX_UNSUPPORTED : RDMUX_DENIED));
    require(mr == NULL && registration == NULL);
}

static void try_token(struct input *in, const struct region *region)
{
    struct rdmux_token token = region->token;
    bool spoilt = spoil(in, token.bytes, sizeof(token.bytes));
    import(&token, "", !spoilt && region == &regions[EXPORTED]);
}

/* The rest of the input is the name, which mostly belongs to no peer. */
static void try_grant(struct input *in, const struct region *region)
{
    struct rdmux_token token = region->grant;
    char identity[RDMUX_IDENTITY_MAX] = "";
    bool spoilt = spoil(in, token.bytes, sizeof(token.bytes));
    size_t length = in->left < sizeof(identity) ? in->left : sizeof(identity) - 1;
    memcpy(identity, in->at, length);
    bool theirs = has_grants && strcmp(identity, granted) == 0;
    import(&token, identity, theirs && !spoilt && region == &regions[EXPORTED]);
}

static void try_access(struct input *in, struct region *region, const uint8_t *key, bool good)
{
    uint64_t offset = take(in, 1);
    uint64_t length = take(in, 1);
    uint64_t wide = take(in, 1);
    uint32_t access = (uint32_t)take(in, 1) &
                      (RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                       RDMUX_ACCESS_REMOTE_ATOMIC);
    offset = (wide & 1) != 0 ? UINT64_MAX - offset : (wide & 2) != 0 ? offset << 1 : offset;
    length = (wide & 4) != 0 ? UINT64_MAX - length : (wide & 8) != 0 ? length << 1 : length;
    void *addr = NULL;
    enum rdmux_status status = rdmux_target_enter(&ep, key, offset, length, access, &addr);
    if (status == RDMUX_OK) {
        require(good && (region->access & access) == access);
        require(offset <= LENGTH && length <= LENGTH - offset);
        require(addr == region->memory + GUARD_SIZE + offset);
        rdmux_target_leave(&ep);
    } else if (good && (region->access & access) == access) {
        require(status == RDMUX_OUT_OF_RANGE && (offset > LENGTH || length > LENGTH - offset));
    }
    uint64_t old = 0;
    uint32_t op = (wide & 16) != 0 ? RDMUX_OP_FETCH_ADD : RDMUX_OP_COMPARE_SWAP;
    status = rdmux_target_atomic(&ep, key, op, offset, 1, 2, &old);
    require(status != RDMUX_OK || (good && (region->access & RDMUX_ACCESS_REMOTE_ATOMIC) != 0 &&
                                   offset <= LENGTH - sizeof(old) && offset % sizeof(old) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    if (fabric == NULL) {
        scene_open();
    }
    struct region *region = &regions[take(&in, 1) % REGION_COUNT];
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
    try_token(&in, region);
    memcpy(key, region->key, sizeof(key));
    bool spoilt = spoil(&in, key, sizeof(key));
    try_access(&in, region, key, !spoilt && region != &regions[REVOKED]);
    try_grant(&in, region);
    for (size_t i = 0; i < GUARD_SIZE; i++) {
        require(region->memory[i] == GUARD && region->memory[GUARD_SIZE + LENGTH + i] == GUARD);
    }
    return 0;
}
