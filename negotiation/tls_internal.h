/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared by the files of TLS sessions. Only with OpenSSL. */
#ifndef RDMUX_NEGOTIATION_TLS_INTERNAL_H
#define RDMUX_NEGOTIATION_TLS_INTERNAL_H

#include "negotiation/auth_internal.h"
#include "negotiation/tls.h"

#include <assert.h>
#include <sys/types.h>

enum {
    RDMUX_TLS_HOST_MAX = 256,
    RDMUX_TLS_HEADER_SIZE = 5, /* bytes of a record (RFC 8446, 5.1) */
};

enum stage {
    STAGE_CLEAR,   /* connector: has to send its HELLO; acceptor: waits for HELLO */
    STAGE_SHAKING, /* the peer is not authenticated yet; follows CLEAR */
    STAGE_REFUSED, /* connector: the peer's HELLO comes in clear, and nothing else; after SHAKING */
    STAGE_OPEN,    /* the peer is authenticated; after SHAKING */
};

struct rdmux_tls {
    struct rdmux_path_stream base; /* used if the session carries data */
    const struct rdmux_auth *auth;
    SSL *ssl;
    int socket;
    enum rdmux_role role;
    enum stage stage;      /* rdmux_tls_write_stage() alone writes it */
    bool is_answered;      /* connector: the peer has sent something */
    bool has_ended;        /* the socket has nothing more */
    bool wants_room;       /* the last step ended for lack of room */
    bool is_drained;       /* the last receive found no whole record, and the socket empty */
    bool is_write_waiting; /* OpenSSL has a record that is not all in the socket */
    bool carries_data;
    bool is_by_key;                   /* a data socket's: both ends know `key` */
    uint8_t key[RDMUX_DATA_KEY_SIZE]; /* until it is open */
    enum rdmux_status failed;         /* a stream's failure; text is why */
    uint64_t records;                 /* sent under this key */
    uint64_t renew_after;
    uint32_t call_records; /* received in the current call */
    uint32_t renewals;     /* of the peer's key, since: */
    uint64_t renewals_since_ns;
    const char *flood; /* error text if the peer repeats something endlessly; NULL: it does not */
    int error;         /* the socket's errno, 0 if there was none */
    size_t taken;      /* bytes from the socket before authentication */
    uint8_t header[RDMUX_TLS_HEADER_SIZE]; /* of the record being received, before authentication */
    size_t header_size;
    size_t body_left;   /* bytes of that record that have not come */
    uint8_t message[4]; /* a message's type and length, as far as they have come */
    size_t message_size;
    size_t message_left;             /* bytes of that message that have not come */
    size_t compared;                 /* bytes of the HELLO inside already compared */
    size_t hello_size;               /* bytes of hello so far */
    uint8_t hello[RDMUX_HELLO_SIZE]; /* in clear: the connector's, or the refusing acceptor's */
    char host[RDMUX_TLS_HOST_MAX];   /* dialled; "" if none */
    char identity[RDMUX_IDENTITY_MAX];
    char trouble[2 * RDMUX_TEXT_MAX]; /* why this side rejected the peer, "" if it did not */
};

static inline void rdmux_tls_write_stage(struct rdmux_tls *tls, enum stage next)
{
    assert(tls->stage == (next == STAGE_SHAKING ? STAGE_CLEAR : STAGE_SHAKING));
    tls->stage = next;
}

/* tls_socket.c. Like recv(2) and send(2), without waiting; they note how the socket ended. */
ssize_t rdmux_tls_take(struct rdmux_tls *tls, void *out, size_t size);
ssize_t rdmux_tls_give(struct rdmux_tls *tls, const void *bytes, size_t size);

/* tls_socket.c. Records taken from the socket in one call before authentication. */
enum { RDMUX_TLS_SHAKE_RECORDS = 32 };

/* tls_failure.c. Maps an unsuccessful OpenSSL call to a status. */
enum rdmux_status rdmux_tls_outcome(struct rdmux_tls *tls, int result);
/* tls_failure.c. Returns the status of a failed session and sets its error text. */
enum rdmux_status rdmux_tls_explain(const struct rdmux_tls *tls);

/* tls.c. Does the handshake's next step. RDMUX_OK: the peer is authenticated. */
enum rdmux_status rdmux_tls_shake(struct rdmux_tls *tls);
/* tls.c. key: of a data socket's session; NULL: the session is a control channel's. Returns NULL
 * without memory, and sets the error text. */
struct rdmux_tls *rdmux_tls_create_session(const struct rdmux_auth *auth, enum rdmux_role role,
                                           int socket, const uint8_t *key);

#endif
