/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Exports of a region: tokens, keys for peers of rdma:// endpoints, and peers' imports by token.
 *
 * Token, 64 bytes, big-endian except the bytes without order. Offset, size, field:
 *    0   4  magic "RDXT"
 *    4   4  version, 1
 *    8   8  region id, never reused by its fabric
 *   16   8  length of the region in bytes
 *   24   4  rights, RDMUX_ACCESS_REMOTE_* and ATOMIC_DEVICE
 *   28   4  zero
 *   32   8  first bytes of the process id of the owner's fabric
 *   40  16  random
 *   56   8  zero
 * The owner compares all bytes with two tokens. One is the token it exported for all peers, which
 * it keeps. The other is the token for the peer that presents it, whose random bytes are derived
 * from a secret of the region and the peer's identity. A reader trusts magic and version only.
 */
#include "api/object/mr_export.h"

#include "api/base/bytes.h"
#include "api/base/secrets.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/object/ep.h"
#include "api/object/importers.h"
#include "api/object/mr.h"
#include "api/object/mr_table.h"
#include "api/object/target.h"
#include "api/progress/cq_owner.h"
#include "api/system/system.h"
#include "negotiation/path_secret.h"

#include <assert.h>
#include <string.h>

enum {
    TOKEN_AT_MAGIC = 0,
    TOKEN_AT_VERSION = 4,
    TOKEN_AT_REGION = 8,
    TOKEN_AT_LENGTH = 16,
    TOKEN_AT_ACCESS = 24,
    TOKEN_AT_PROCESS = 32,
    TOKEN_AT_RANDOM = 40,
    TOKEN_PROCESS_SIZE = 8,
    TOKEN_RANDOM_SIZE = 16,
    TOKEN_VERSION = 1,
};
_Static_assert(TOKEN_AT_RANDOM + TOKEN_RANDOM_SIZE <= RDMUX_TOKEN_SIZE, "a token has room");
_Static_assert((int)TOKEN_RANDOM_SIZE == (int)RDMUX_SECRET_SIZE,
               "as rdmux_grant_bits() makes them");

static const uint8_t token_magic[4] = { 'R', 'D', 'X', 'T' };

/* --------------------------------------------------------------------------------------- tokens */

static void make_token(const struct rdmux_mr *mr, const uint8_t random[TOKEN_RANDOM_SIZE],
                       struct rdmux_token *out)
{
    uint8_t *bytes = out->bytes;
    memset(bytes, 0, sizeof(out->bytes));
    memcpy(bytes + TOKEN_AT_MAGIC, token_magic, sizeof(token_magic));
    rdmux_store_be32(bytes + TOKEN_AT_VERSION, TOKEN_VERSION);
    rdmux_store_be64(bytes + TOKEN_AT_REGION, mr->id);
    rdmux_store_be64(bytes + TOKEN_AT_LENGTH, mr->length);
    rdmux_store_be32(bytes + TOKEN_AT_ACCESS,
                     mr->access & (RDMUX_MR_REMOTE_RIGHTS | RDMUX_ACCESS_ATOMIC_DEVICE));
    memcpy(bytes + TOKEN_AT_PROCESS, mr->fabric->process, TOKEN_PROCESS_SIZE);
    memcpy(bytes + TOKEN_AT_RANDOM, random, TOKEN_RANDOM_SIZE);
}

/* Makes the token for peers of this identity and keeps none of it. fabric->lock is held. False: out
 * of memory. */
static bool make_grant(const struct rdmux_mr *mr, const char *identity, struct rdmux_token *out)
{
    uint8_t bits[TOKEN_RANDOM_SIZE];
    if (!rdmux_grant_bits(mr->secrets->grant, identity, bits)) {
        return false;
    }
    make_token(mr, bits, out);
    rdmux_wipe(bits, sizeof(bits));
    return true;
}

bool rdmux_token_is_valid(const struct rdmux_token *token)
{
    return memcmp(token->bytes + TOKEN_AT_MAGIC, token_magic, sizeof(token_magic)) == 0 &&
           rdmux_load_be32(token->bytes + TOKEN_AT_VERSION) == TOKEN_VERSION;
}

/* Checks that the region may have tokens, and draws the random bytes for a new one. */
static enum rdmux_status prepare_export(struct rdmux_mr *mr, uint8_t random[TOKEN_RANDOM_SIZE])
{
    if (*mr->fabric->alive == 0) {
        return rdmux_fail(RDMUX_INVALID, "export: the region belongs to the process before fork");
    }
    if ((mr->access & RDMUX_MR_REMOTE_RIGHTS) == 0) {
        return rdmux_fail(RDMUX_INVALID,
                          "export: the region has no remote rights; register it with "
                          "RDMUX_ACCESS_REMOTE_READ, WRITE or ATOMIC");
    }
    return rdmux_random(mr->fabric, random, TOKEN_RANDOM_SIZE);
}

/* Waits until no revocation is under way. Afterwards the region has a key, unless the last
 * revocation failed to get a new one and that still fails. fabric->lock is held, but released
 * meanwhile. */
static enum rdmux_status await_key(struct rdmux_mr *mr)
{
    while (mr->is_revoking) {
        pthread_cond_wait(&mr->changed, &mr->fabric->lock);
    }
    return mr->index == 0 ? rdmux_region_table_add(mr->fabric, mr) : RDMUX_OK;
}

/* fabric->lock is held. */
static enum rdmux_status keep_secrets(struct rdmux_mr *mr)
{
    if (mr->secrets == NULL) {
        mr->secrets = rdmux_secret_allocate(mr->fabric);
    }
    return mr->secrets != NULL ? RDMUX_OK
                               : rdmux_fail(RDMUX_NO_MEMORY, "export: no memory for a token");
}

/* Waits for the region's key and has its secrets allocated. fabric->lock is held. */
static enum rdmux_status await_secrets(struct rdmux_mr *mr)
{
    enum rdmux_status status = await_key(mr);
    return status == RDMUX_OK ? keep_secrets(mr) : status;
}

enum rdmux_status rdmux_mr_export(struct rdmux_mr *mr, struct rdmux_token *out)
{
    if (mr == NULL || out == NULL) {
        return rdmux_mr_null_argument("rdmux_mr_export", mr == NULL ? "mr" : "out");
    }
    uint8_t random[TOKEN_RANDOM_SIZE] = { 0 };
    enum rdmux_status status = prepare_export(mr, random);
    if (status != RDMUX_OK) {
        return status;
    }
    pthread_mutex_lock(&mr->fabric->lock);
    status = await_secrets(mr);
    if (status == RDMUX_OK && !mr->is_exported) {
        assert(mr->secrets != NULL);
        make_token(mr, random, &mr->secrets->token);
        mr->is_exported = true;
    }
    if (status == RDMUX_OK) {
        *out = mr->secrets->token;
    }
    pthread_mutex_unlock(&mr->fabric->lock);
    rdmux_wipe(random, sizeof(random));
    return status;
}

enum rdmux_status rdmux_mr_export_to(struct rdmux_mr *mr, const char *identity,
                                     struct rdmux_token *out)
{
    if (mr == NULL || identity == NULL || out == NULL) {
        return rdmux_mr_null_argument("rdmux_mr_export_to", mr == NULL         ? "mr"
                                                            : identity == NULL ? "identity"
                                                                               : "out");
    }
    size_t length = strnlen(identity, RDMUX_IDENTITY_MAX);
    if (length == 0 || length == RDMUX_IDENTITY_MAX) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_mr_export_to: identity has %s bytes; 1 to %d",
                          length == 0 ? "no" : "too many", RDMUX_IDENTITY_MAX - 1);
    }
    if (mr->fabric->auth == NULL) {
        return rdmux_fail(
            RDMUX_INVALID,
            "rdmux_mr_export_to: nobody authenticates, so no peer is \"%s\"; open the "
            "fabric with rdmux_fabric_attr.auth",
            identity);
    }
    uint8_t random[TOKEN_RANDOM_SIZE] = { 0 };
    enum rdmux_status status = prepare_export(mr, random);
    if (status != RDMUX_OK) {
        return status;
    }
    pthread_mutex_lock(&mr->fabric->lock);
    status = await_secrets(mr);
    if (status == RDMUX_OK && !mr->is_granted) {
        assert(mr->secrets != NULL);
        memcpy(mr->secrets->grant, random, sizeof(mr->secrets->grant));
        mr->is_granted = true;
    }
    if (status == RDMUX_OK && !make_grant(mr, identity, out)) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "export: no memory for a digest");
    }
    pthread_mutex_unlock(&mr->fabric->lock);
    rdmux_wipe(random, sizeof(random));
    return status;
}

/* Owner of ep's cq: returns the region's key on the endpoint's device. */
static enum rdmux_status give_raw(struct rdmux_mr *mr, struct rdmux_ep *ep, uint64_t *addr,
                                  uint32_t *key)
{
    struct rdmux_fabric *fabric = mr->fabric;
    struct rdmux_provider_mr *registration = rdmux_mr_with(mr, ep->domain);
    uint8_t bytes[RDMUX_RAW_KEY_SIZE];
    size_t size = sizeof(bytes);
    if (registration == NULL) {
        return rdmux_fail(RDMUX_UNSUPPORTED, "rdmux_mr_raw: the region is not registered with %s",
                          ep->info.device);
    }
    pthread_mutex_lock(&fabric->lock);
    while (mr->is_revoking) {
        pthread_cond_wait(&mr->changed, &fabric->lock);
    }
    mr->is_given_raw = true;
    mr->importing++;
    pthread_mutex_unlock(&fabric->lock);
    rdmux_error_clear();
    enum rdmux_status status = ep->ops->mr_describe(registration, ep->path, bytes, &size);
    rdmux_mr_import_done(mr);
    if (status == RDMUX_OK) {
        memcpy(addr, bytes, sizeof(*addr));
        memcpy(key, bytes + sizeof(*addr), sizeof(*key));
    }
    return status;
}

enum rdmux_status rdmux_mr_raw(struct rdmux_mr *mr, struct rdmux_ep *ep, uint64_t *addr,
                               uint32_t *key)
{
    if (mr == NULL || ep == NULL || addr == NULL || key == NULL) {
        return rdmux_mr_null_argument("rdmux_mr_raw", mr == NULL     ? "mr"
                                                      : ep == NULL   ? "ep"
                                                      : addr == NULL ? "addr"
                                                                     : "key");
    }
    if (*mr->fabric->alive == 0 || !rdmux_cq_enter(ep->cq)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_mr_raw: the region belongs to the process before fork");
    }
    enum rdmux_status status = rdmux_ep_check_rdmacm(ep, "rdmux_mr_raw");
    if (status == RDMUX_OK && mr->fabric != ep->fabric) {
        status = rdmux_fail(RDMUX_INVALID, "rdmux_mr_raw: mr belongs to another fabric");
    } else if (status == RDMUX_OK && (mr->access & RDMUX_MR_REMOTE_RIGHTS) == 0) {
        status = rdmux_fail(RDMUX_INVALID,
                            "rdmux_mr_raw: the region has no remote rights; register it with "
                            "RDMUX_ACCESS_REMOTE_READ, WRITE or ATOMIC");
    }
    if (status == RDMUX_OK) {
        status = give_raw(mr, ep, addr, key);
    }
    rdmux_cq_leave(ep->cq);
    return status;
}

/* Returns whether this is the token exported to all peers. fabric->lock is held, here and below. */
static bool is_for_all(const struct rdmux_mr *mr, const struct rdmux_token *token)
{
    return mr->is_exported &&
           rdmux_secret_bytes_match(mr->secrets->token.bytes, token->bytes, sizeof(token->bytes));
}

/* Returns whether this is the token granted to this peer. */
static bool is_granted(const struct rdmux_mr *mr, const struct rdmux_token *token,
                       const char *identity)
{
    struct rdmux_token grant;
    bool same = mr->is_granted && identity[0] != '\0' && make_grant(mr, identity, &grant) &&
                rdmux_secret_bytes_match(grant.bytes, token->bytes, sizeof(token->bytes));
    rdmux_wipe(&grant, sizeof(grant));
    return same;
}

/* Returns the region that this token opens for this peer now, or NULL. */
static struct rdmux_mr *find_exported(struct rdmux_fabric *fabric, const struct rdmux_token *token,
                                      const char *identity)
{
    struct rdmux_mr *mr = rdmux_mr_by_id(fabric, rdmux_load_be64(token->bytes + TOKEN_AT_REGION));
    bool valid = mr != NULL && !mr->is_revoking &&
                 (is_for_all(mr, token) || is_granted(mr, token, identity));
    return valid ? mr : NULL;
}

enum rdmux_status rdmux_mr_import(struct rdmux_fabric *fabric, const struct rdmux_token *token,
                                  const char *identity, struct rdmux_cq *cq, uint64_t ep_id,
                                  struct rdmux_provider_domain *domain, struct rdmux_mr **out,
                                  struct rdmux_provider_mr **registration)
{
    *out = NULL;
    *registration = NULL;
    enum rdmux_status status = RDMUX_OK;
    pthread_mutex_lock(&fabric->lock);
    struct rdmux_mr *mr = find_exported(fabric, token, identity);
    struct rdmux_provider_mr *found = mr != NULL ? rdmux_mr_with(mr, domain) : NULL;
    if (mr == NULL) {
        status = rdmux_fail(
            RDMUX_DENIED, "import: no region here has this token, or it was revoked, or it is for "
                          "another peer");
    } else if (found == NULL) {
        status = rdmux_fail(RDMUX_UNSUPPORTED, "import: the region is not registered with %s",
                            domain->ops->name);
    } else {
        status = rdmux_mr_note_importer(mr, cq, ep_id);
        if (status == RDMUX_OK) {
            mr->importing++;
            *out = mr;
            *registration = found;
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    return status;
}

void rdmux_mr_import_done(struct rdmux_mr *mr)
{
    struct rdmux_fabric *fabric = mr->fabric;
    pthread_mutex_lock(&fabric->lock);
    if (--mr->importing == 0 && mr->is_revoking) {
        pthread_cond_broadcast(&mr->changed);
    }
    pthread_mutex_unlock(&fabric->lock);
}
