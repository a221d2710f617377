/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* One side's offer in a negotiation. Encoded as TLVs in the OFFER message; docs/WIRE.md has the
 * bytes. */
#ifndef RDMUX_NEGOTIATION_OFFER_H
#define RDMUX_NEGOTIATION_OFFER_H

#include <rdmux/provider.h>

#include <stddef.h>
#include <stdint.h>

enum { RDMUX_OFFER_PATHS_MAX = 32, RDMUX_OFFER_BYTES_MAX = 65536 };

struct rdmux_offer_path {
    char provider[RDMUX_NAME_MAX];
    uint32_t provider_flags; /* RDMUX_PROVIDER_LAST_RESORT counts in the ranking */
    /* Reason USABLE, or why the path is not: unusable paths are offered too, so that both sides can
     * explain. */
    struct rdmux_local_path path;
    uint32_t trusted; /* 1: this side treats it as encrypted */
    /* This side's only, never on the wire: rdmux_path_info.source; the provider's judgement of reach
     * bytes. NULL on a decoded offer. */
    const char *source;
    enum rdmux_reason (*reach)(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                               size_t theirs_length, char *text);
};

struct rdmux_offer {
    uint32_t path_count;
    uint32_t prefer;       /* RDMUX_PREFER_* */
    uint64_t typical_size; /* 0 = no preference */
    uint64_t max_send;
    uint64_t max_recv;
    uint64_t require;        /* RDMUX_CAP_* */
    uint64_t require_native; /* RDMUX_CAP_* */
    uint32_t liveness_ms;
    uint32_t data_sockets;
    uint32_t path_timeout_ms;
    uint32_t setup_timeout_ms;
    uint32_t require_encryption; /* 1: only paths that are encrypted or trusted */
    uint32_t send_wish;          /* 1: max_send is a wish, and rules out no path */
    uint32_t private_length;
    /* The fabric's filter (combined with the environment's), and the endpoint's or listener's; both
     * must allow a provider. */
    char filter[2][256];
    uint8_t private_data[RDMUX_PRIVATE_DATA_MAX];
    /* Acceptor's OFFER: the secret by which further sockets join this connection; else zero. */
    uint8_t secret[RDMUX_SECRET_SIZE];
    struct rdmux_offer_path paths[RDMUX_OFFER_PATHS_MAX];
};

/* Bytes of an offer up to the end of its last path. What is behind is undefined. */
static inline size_t rdmux_offer_used(const struct rdmux_offer *offer)
{
    return offsetof(struct rdmux_offer, paths) + offer->path_count * sizeof(offer->paths[0]);
}

/* Writes the OFFER's payload. *size: bytes of room, then bytes used. RDMUX_LENGTH: no room. */
enum rdmux_status rdmux_offer_encode(const struct rdmux_offer *offer, uint8_t *out, size_t *size);
/* Reads an untrusted payload. Unknown TLVs are skipped. RDMUX_PROTOCOL: a wrong size, a name
 * without end, too many paths; *out is undefined then. */
enum rdmux_status rdmux_offer_decode(const uint8_t *in, size_t size, struct rdmux_offer *out);

#endif
