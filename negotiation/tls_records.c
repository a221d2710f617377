/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Limits on a peer's TLS records that carry no data: OpenSSL skips them and reads on within one
 * call. */
#include "negotiation/tls.h"

#ifdef RDMUX_HAVE_OPENSSL

#include "negotiation/tls_internal.h"

enum {
    BARREN_MAX = 16,  /* records without data in one call; an rdmux peer does not send two */
    RENEWALS_MAX = 8, /* in RENEWALS_NS; 2^24 records take a sender at least half a minute */
};
#define RENEWALS_NS (60 * UINT64_C(1000000000))

/* Ends the session: OpenSSL sees the shutdown before it looks into the record just received. */
static void end_flooded_session(struct rdmux_tls *tls, const char *why)
{
    tls->flood = why;
    SSL_set_shutdown(tls->ssl, SSL_RECEIVED_SHUTDOWN);
}

/* Counts a record of the handshake's type in an open session: a key renewal, or part of one. */
static void count_renewal(struct rdmux_tls *tls)
{
    uint64_t now_ns = rdmux_now(tls->auth->fabric);
    if (tls->renewals == 0 || now_ns - tls->renewals_since_ns >= RENEWALS_NS) {
        tls->renewals_since_ns = now_ns;
        tls->renewals = 0;
    }
    if (++tls->renewals > RENEWALS_MAX) {
        end_flooded_session(tls, "the peer renews its key more often than eight times a minute");
    }
}

void rdmux_tls_see_record(int sent, int version, int kind, const void *bytes, size_t size, SSL *ssl,
                          void *user)
{
    struct rdmux_tls *tls = SSL_get_app_data(ssl);
    (void)version;
    (void)user;
    if (sent != 0 || kind != SSL3_RT_INNER_CONTENT_TYPE || size != 1 || tls->stage != STAGE_OPEN) {
        return;
    }
    const uint8_t type = *(const uint8_t *)bytes;
    if (++tls->call_records > BARREN_MAX) {
        end_flooded_session(tls, "the peer sends records that bring nothing");
    } else if (type == SSL3_RT_HANDSHAKE) {
        count_renewal(tls);
    }
}

#endif
