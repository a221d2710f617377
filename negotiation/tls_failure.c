/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Statuses and error texts for failed TLS sessions. */
#include "negotiation/tls.h"

#include "api/base/compiler.h"

#ifdef RDMUX_HAVE_OPENSSL

#include "negotiation/tls_internal.h"

#include <openssl/err.h>
#include <string.h>

enum {
    ALERT_REASONS = 1000, /* where OpenSSL's reasons for the peer's alerts begin */
    ALERT_REASONS_END = 1256,
};

/* The peer has ended the handshake with an alert, which reveals little on purpose. */
static enum rdmux_status refused_by_peer(const struct rdmux_tls *tls, unsigned long error)
{
    const char *reason = ERR_reason_error_string(error);
    bool psk = tls->auth->method == RDMUX_AUTH_PSK;
    return rdmux_fail(RDMUX_AUTH, "authentication: the peer has refused %s%s%s (%s); %s",
                      psk ? "identity \"" : "this side's certificate",
                      psk ? tls->auth->keys[tls->auth->own].identity : "", psk ? "\"" : "",
                      reason == NULL ? "without a reason" : reason,
                      psk ? "are its line and key the same in both key files, and does the peer "
                            "let it in?"
                          : "does the peer know our authority, and let this identity in?");
}

/* Returns whether the peer sent something other than TLS. */
static bool is_no_tls(unsigned long error)
{
    static const int reasons[] = {
        SSL_R_WRONG_VERSION_NUMBER, SSL_R_PACKET_LENGTH_TOO_LONG, SSL_R_HTTP_REQUEST,
        SSL_R_HTTPS_PROXY_REQUEST,  SSL_R_UNSUPPORTED_PROTOCOL,   SSL_R_BAD_RECORD_TYPE,
        SSL_R_RECORD_TOO_SMALL,
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(reasons); i++) {
        if (ERR_GET_LIB(error) == ERR_LIB_SSL && ERR_GET_REASON(error) == reasons[i]) {
            return true;
        }
    }
    return false;
}

static bool is_alert(unsigned long error)
{
    int reason = ERR_GET_REASON(error);
    return ERR_GET_LIB(error) == ERR_LIB_SSL && reason >= ALERT_REASONS &&
           reason < ALERT_REASONS_END;
}

bool rdmux_tls_lacked_memory(void)
{
    return ERR_GET_REASON(ERR_peek_error()) == ERR_R_MALLOC_FAILURE;
}

static enum rdmux_status explain_data_failure(const struct rdmux_tls *tls)
{
    unsigned long error = ERR_peek_error();
    const char *reason = ERR_reason_error_string(error);
    reason = reason == NULL ? "without a reason" : reason;
    if (tls->error != 0) {
        return rdmux_fail(RDMUX_PEER_GONE, "data socket: lost: %s", strerror(tls->error));
    }
    if (tls->has_ended) {
        return rdmux_fail(RDMUX_PEER_GONE, "data socket: the peer closed it");
    }
    if (tls->stage != STAGE_OPEN) {
        return rdmux_fail(RDMUX_AUTH,
                          "data socket: the other end does not know this connection's secret (%s)",
                          reason);
    }
    if (is_alert(error)) {
        return rdmux_fail(RDMUX_PROTOCOL,
                          "data socket: bytes that this side sent were changed or lost on their "
                          "way (%s)",
                          reason);
    }
    return rdmux_fail(
        RDMUX_PROTOCOL,
        "data socket: the received bytes are not what the peer has sent: some were changed, left "
        "out, repeated or added on their way (%s)",
        reason);
}

enum rdmux_status rdmux_tls_explain(const struct rdmux_tls *tls)
{
    unsigned long error = ERR_peek_error();
    const char *text = ERR_reason_error_string(error);
    if (rdmux_tls_lacked_memory()) {
        return rdmux_fail(RDMUX_NO_MEMORY, "%s: no memory for its TLS session",
                          tls->carries_data ? "data socket" : "control channel");
    }
    if (tls->flood != NULL) {
        return rdmux_fail(RDMUX_PROTOCOL, "%s: %s",
                          tls->carries_data ? "data socket" : "control channel", tls->flood);
    }
    if (tls->carries_data) {
        return explain_data_failure(tls);
    }
    if (tls->trouble[0] != '\0') {
        return rdmux_fail(RDMUX_AUTH, "authentication: the peer is not let in: %s", tls->trouble);
    }
    if (is_alert(error)) {
        return refused_by_peer(tls, error);
    }
    if (tls->error != 0) {
        return rdmux_fail(RDMUX_PEER_GONE, "control channel: lost: %s", strerror(tls->error));
    }
    if (tls->has_ended && tls->stage == STAGE_OPEN) {
        return rdmux_fail(RDMUX_PEER_GONE, "control channel: the peer closed it");
    }
    if (tls->has_ended) {
        return rdmux_fail(RDMUX_PEER_GONE,
                          "control channel: the peer closed it before it was authenticated; is it "
                          "rdmux of this version, and is auth set there?");
    }
    if (is_no_tls(error)) {
        return rdmux_fail(RDMUX_PROTOCOL,
                          "control channel: the peer does not speak this protocol (%s)", text);
    }
    if (tls->stage == STAGE_OPEN) {
        return rdmux_fail(RDMUX_PROTOCOL,
                          "control channel: the received bytes are not what the peer has sent: %s",
                          text == NULL ? "broken record" : text);
    }
    return rdmux_fail(RDMUX_AUTH, "authentication: failed: %s%s", text == NULL ? "no TLS" : text,
                      tls->auth->method == RDMUX_AUTH_PSK
                          ? "; is the identity's key the same in both key files?"
                          : "");
}

enum rdmux_status rdmux_tls_outcome(struct rdmux_tls *tls, int result)
{
    switch (tls->flood != NULL ? SSL_ERROR_SSL : SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        tls->wants_room = false;
        return RDMUX_AGAIN;
    case SSL_ERROR_WANT_WRITE:
        tls->wants_room = true;
        return RDMUX_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        tls->has_ended = true;
        break;
    default:
        break;
    }
    enum rdmux_status status = rdmux_tls_explain(tls);
    ERR_clear_error(); /* the program may use OpenSSL, too */
    return status;
}

#endif
