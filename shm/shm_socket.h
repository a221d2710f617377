/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The AF_UNIX socket of an endpoint pair. The two processes check each other's credentials and pass
 * descriptors over it. Its end is the end of the peer. It carries sequenced packets, so each
 * message is whole. */
#ifndef RDMUX_SHM_SOCKET_H
#define RDMUX_SHM_SOCKET_H

#include "shm_meeting.h"

#include <rdmux/provider.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    SHM_HELLO_SIZE = 32,
    SHM_REGION_SIZE = 32,
    SHM_FDS_MAX = 4,
};

/* The connection data of ep_describe. */
struct shm_description {
    uint32_t pid;
    uint32_t features;      /* SHM_FEATURE_*; unknown ones are ignored */
    struct shm_place place; /* of the acceptor's socket; zero from the connector */
};
enum { SHM_DESCRIPTION_SIZE = 24 };
enum { SHM_FEATURE_READY = 1 << 0 }; /* the side has ready sets; absent from older versions */

/* First message of each side. The connector passes the descriptors of doorbell, region table and
 * segment with it, the acceptor those of doorbell and region table. If both sides have ready sets,
 * the descriptor of the sender's set is the last. */
struct shm_hello {
    uint32_t magic; /* SHM_HELLO_CONNECTOR or SHM_HELLO_ACCEPTOR */
    uint32_t flags;
    uint8_t secret[RDMUX_SECRET_SIZE];
    uint32_t pid;
    uint32_t mark; /* the endpoint's mark in the sender's ready set */
};
#define SHM_HELLO_CONNECTOR UINT32_C(0x52534843)
#define SHM_HELLO_ACCEPTOR UINT32_C(0x52534841)
enum { SHM_HELLO_MEMBARRIER = 1 << 0 }; /* sleep and revocation use membarrier(2) */

/* A later message of either side, with the descriptor of the region's memory. */
struct shm_region_message {
    uint32_t index; /* in the sender's region table */
    uint32_t writable;
    uint64_t life;
    uint64_t length;
};

/* A later message of a side whose endpoint has changed its queue, with the descriptors that HELLO
 * has for the new one: doorbell, region table, ready set. */
struct shm_queue_message {
    uint32_t mark; /* the endpoint's mark in that ready set */
};
enum { SHM_QUEUE_FDS = 3 };

void rdmux_shm_description_encode(const struct shm_description *in,
                                  uint8_t out[SHM_DESCRIPTION_SIZE]);
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_description_decode(const uint8_t *in, size_t size,
                                                                struct shm_description *out);
void rdmux_shm_hello_encode(const struct shm_hello *in, uint8_t out[SHM_HELLO_SIZE]);
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_hello_decode(const uint8_t *in, size_t size,
                                                          struct shm_hello *out);
void rdmux_shm_region_message_encode(const struct shm_region_message *in,
                                     uint8_t out[SHM_REGION_SIZE]);
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_region_message_decode(const uint8_t *in, size_t size,
                                                                   struct shm_region_message *out);
void rdmux_shm_queue_message_encode(const struct shm_queue_message *in,
                                    uint8_t out[SHM_REGION_SIZE]);
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_queue_message_decode(const uint8_t *in, size_t size,
                                                                  struct shm_queue_message *out);

/* On failure each function calls rdmux_provider_error(). None waits. */

/* Accepts process `pid` of our user and turns away any other. RDMUX_AGAIN: the peer has not
 * connected yet. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_socket_accept(int listener, pid_t pid, int *out);
/* Checks that the other end is process `pid` of our user. RDMUX_DENIED: it is not. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_socket_check_peer(int socket, pid_t pid);
/* Sends one message with its descriptors. RDMUX_AGAIN: the queue is full. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_socket_send(int socket, const uint8_t *bytes,
                                                         size_t size, const int *fds,
                                                         size_t fd_count);
/* Receives one message. *size is the room, then the message's size. Exactly fd_count descriptors
 * come with the message, and the caller owns them; another number is RDMUX_PROTOCOL. RDMUX_AGAIN:
 * no message yet. RDMUX_PEER_GONE: the peer has closed. RDMUX_NO_MEMORY: this process may not have
 * so many descriptors, and the message is lost. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_socket_receive(int socket, uint8_t *bytes,
                                                            size_t *size, int *fds,
                                                            size_t fd_count);
/* As before, with any number of descriptors up to SHM_FDS_MAX. *size is also set when descriptors
 * are lost (RDMUX_NO_MEMORY). */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_socket_receive_any(int socket, uint8_t *bytes,
                                                                size_t *size, int fds[SHM_FDS_MAX],
                                                                size_t *fd_count);

#endif
