/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What rdmux asks of the operating system beyond C11 and POSIX.1-2008.
 *
 * This header has the contract of each primitive. system_linux.h and system_linux.c implement them
 * for Linux; system_posix.h, system_posix.c and poller_posix.c with POSIX calls and poll(2) alone
 * (RDMUX_POSIX_ONLY). docs/PORTING.md says what a port to another system changes. The core and tcp
 * call Linux nowhere else; shm, verbs and the commands do.
 *
 * Unless stated otherwise, functions that return int return -1 and set errno if they fail, and any
 * thread may call them. Those of the data path are inline, so that a primitive costs what the call
 * below it costs.
 */
#ifndef RDMUX_API_SYSTEM_SYSTEM_H
#define RDMUX_API_SYSTEM_SYSTEM_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* -------------------------------------------------------------------------------------- pollers
 *
 * A poller is a set of descriptors, each with the events to wait for. Pollers nest: a poller may be
 * a member of another one, and is ready while one of its members is. A number stands for a poller,
 * as for a descriptor; only functions of this section take it. Changes of a set count for waits
 * that are under way.
 *
 * RDMUX_POLLER_IS_DESCRIPTOR  1: a poller is a descriptor, too, which poll(2) of the program may
 *                             wait for; 0: it is not
 *
 * Events, bits of an enumeration:
 * RDMUX_READY_IN, RDMUX_READY_OUT  as POLLIN and POLLOUT of poll(2)
 * RDMUX_READY_END                  the peer has shut down its side of the connection
 * RDMUX_READY_ERROR, RDMUX_READY_HANGUP
 *                                  as POLLERR and POLLHUP: reported without being asked for
 * RDMUX_READY_ONCE                 after its first report the member is quiet, until a change
 */

struct rdmux_ready; /* a member that is ready */

/* Returns a new poller. */
static inline int rdmux_poller_open(void);
static inline void rdmux_poller_close(int poller);
/* Adds a member. data: returned with its events. */
static inline int rdmux_poller_add(int poller, int fd, uint32_t events, void *data);
/* Replaces a member's events and data. Needs no memory. */
static inline int rdmux_poller_change(int poller, int fd, uint32_t events, void *data);
static inline int rdmux_poller_remove(int poller, int fd);
/* Waits until a member is ready, at most timeout_ms (-1: without limit). Returns how many of `out`
 * were filled; 0: none was ready. [data path] */
static inline int rdmux_poller_wait(int poller, struct rdmux_ready *out, int max, int timeout_ms);
static inline uint32_t rdmux_ready_events(const struct rdmux_ready *ready);
static inline void *rdmux_ready_data(const struct rdmux_ready *ready);
static inline void rdmux_ready_set_data(struct rdmux_ready *ready, void *data);
/* As poll(2); `fds` may contain pollers, for which POLLIN means ready. */
static inline int rdmux_poll(struct pollfd *fds, nfds_t count, int timeout_ms);

/* ------------------------------------------------------------------------------------- wake-ups
 *
 * struct rdmux_wake: its member fd is a descriptor that is readable from a signal to the next
 * drain. Signals before a drain are one. */

struct rdmux_wake;

/* Opens a wake-up; on failure its fd is -1. */
static inline int rdmux_wake_open(struct rdmux_wake *wake);
/* Closes one that is open, or that failed to open. */
static inline void rdmux_wake_close(struct rdmux_wake *wake);
/* Never blocks. A signal handler may call it; may change errno. */
static inline void rdmux_wake_signal(const struct rdmux_wake *wake);
static inline void rdmux_wake_drain(const struct rdmux_wake *wake);

/* -------------------------------------------------------------------------------------- sockets
 *
 * Options of setsockopt() that not every system has: RDMUX_TCP_KEEPIDLE, RDMUX_TCP_KEEPINTVL,
 * RDMUX_TCP_KEEPCNT (of level IPPROTO_TCP, as in tcp(7)), RDMUX_TCP_USER_TIMEOUT,
 * RDMUX_TCP_CONGESTION. -1 stands for one that is missing; setsockopt() and getsockopt() fail with
 * it. */

/* Returns a stream socket that is non-blocking and closed on exec. */
int rdmux_socket_open(int family);
/* As accept(2); the new socket is non-blocking and closed on exec. */
int rdmux_socket_accept(int listener, struct sockaddr *address, socklen_t *length);
/* Lets connect() choose among all local ports, also on a socket that is bound to an address. Best
 * effort. */
void rdmux_socket_use_all_ports(int socket);
/* Stores how many received bytes can be read. */
int rdmux_socket_unread(int socket, int *bytes);
/* Returns whether the peer has shut down its side, whatever bytes are unread, or the socket has
 * failed. May return false where bytes are unread and the system does not tell. */
bool rdmux_socket_has_ended(int socket);
/* Returns the round-trip time that the kernel has measured; 0: unknown. */
uint64_t rdmux_socket_round_trip_ns(int socket);
/* What the kernel has counted for a TCP socket. A count that it does not tell is 0, and its flag
 * false. */
struct rdmux_socket_counts {
    bool has_retransmissions;
    bool has_ecn_marks;
    uint64_t retransmissions; /* segments that were sent again */
    uint64_t ecn_marks;       /* acknowledged segments that the network marked (ECN CE) */
};
struct rdmux_socket_counts rdmux_socket_count(int socket);
/* Fills `out` with a name of the process at the other end of a local socket (AF_UNIX). */
enum { RDMUX_PEER_NAME_SIZE = 12 };
int rdmux_socket_peer(int socket, uint8_t out[RDMUX_PEER_NAME_SIZE]);

/* --------------------------------------------------------------------------------------- memory */

enum {
    RDMUX_PAGES_WIPED = 1 << 0,  /* in the child of a fork all bytes are 0 */
    RDMUX_PAGES_HIDDEN = 1 << 1, /* core dumps leave them out, where the system can do that */
    RDMUX_PAGES_LAZY = 1 << 2,   /* counts as memory once it is touched, where the system can */
};
/* Returns zeroed memory that begins at a page; NULL: none. Only touched pages are resident. */
void *rdmux_pages_map(size_t size, unsigned kinds);
void rdmux_pages_unmap(void *pages, size_t size);
/* Overwrites bytes with 0, although nothing reads them afterwards. */
void rdmux_wipe(void *bytes, size_t size);

/* Maps memory for a region. size: a multiple of `page`; page: bytes, 0 is the system's own size.
 * fd: where to store the descriptor by which other processes may map it, -1 if the system has none;
 * NULL: no process may. NULL: failed, errno says why. */
void *rdmux_region_map(size_t size, uint64_t page, int *fd);
void rdmux_region_unmap(void *addr, size_t size);
/* Makes sure that who gets the descriptor can neither change the size nor, unless `writes`, write. */
int rdmux_region_seal(int fd, bool writes);
/* Before the first touch: prefers large pages, or a NUMA node. Best effort. */
void rdmux_region_prefer_huge(void *addr, size_t size);
void rdmux_region_prefer_node(void *addr, size_t size, uint32_t node);
/* Checks that this process can read, and if `writes` write, a span of its memory. NULL: it can, or
 * the system does not tell. Else words on the fault, whose address is stored in *at. */
const char *rdmux_memory_fault(const void *addr, size_t length, bool writes, uint64_t *at);
/* Returns whether the descriptor is a dma-buf, which none is on a system without them. */
bool rdmux_fd_is_dmabuf(int fd);
/* Begins or ends the CPU's access to a dma-buf. */
int rdmux_dmabuf_begin(int fd, bool writes);
int rdmux_dmabuf_end(int fd, bool writes);

/* -------------------------------------------------------------------------------------- threads */

/* Names a thread for debuggers. At most 15 characters are kept. Best effort. */
void rdmux_thread_name(pthread_t thread, const char *name);
/* Prepares rdmux_membarrier(). Returns false if the system has none. */
bool rdmux_membarrier_register(void);
/* Prepares the barriers that other processes make threads of this one pass, for shm. Best effort. */
void rdmux_membarrier_register_global(void);
/* Makes every running thread of the process pass a full barrier. Call it only where
 * rdmux_membarrier_register() returned true. */
void rdmux_membarrier(void);
/* Returns how many processors are running, at least 1. */
long rdmux_processors(void);

/* -------------------------------------------------------------------------------------- process
 *
 * RDMUX_LOADS_PLUGINS  1: rdmux_object_path() and rdmux_is_same_object() have answers, which
 *                      plug-ins in files need; 0: they have none
 * RDMUX_O_PATH         flags of open(2) to reach an object of the file system, to look at its
 *                      owner and mode or to go on from it. With O_NOFOLLOW symbolic links are
 *                      reached themselves; a system that cannot do that fails. */

/* Fills `out` with random bytes that are fit for keys. */
int rdmux_random_bytes(void *out, size_t size);
/* Returns whether the program has rights that its user lacks, as one that is set-user-ID. */
bool rdmux_process_is_secure(void);
/* Returns a variable of the environment; NULL in such a program, or if it is not set. */
const char *rdmux_environment(const char *name);
/* Returns the name of the program's file, without its folder; "": not known. */
const char *rdmux_process_name(void);
/* Stores the path of the shared object that contains the address; "" if it is the program, or the
 * path is not known or does not fit. */
void rdmux_object_path(const void *address, char *out, size_t size);
/* Returns whether both addresses are in one program or shared object, or the answer is not known. */
bool rdmux_is_same_object(const void *one, const void *other);
/* Returns the words for an errno value, in English. */
const char *rdmux_errno_words(int error);
#ifdef RDMUX_POSIX_ONLY
#include "api/system/system_posix.h"
#endif
#ifndef RDMUX_POSIX_ONLY
#include "api/system/system_linux.h"
#endif

#endif
