/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The meeting point of an endpoint pair: an AF_UNIX socket of the acceptor, which is a file in a
 * directory of the host. The file has mode 0600, so the kernel lets no other user connect. The
 * acceptor would have to close everything that another user could queue there, and a close can wait
 * as long as that user likes. For the same reason a connector connects only to a socket file of its
 * own user.
 *
 * The file exists from ep_open until the peer is accepted or the endpoint closes. A killed process
 * leaves its file behind; the next domain of the same user removes it.
 */
#ifndef RDMUX_SHM_MEETING_H
#define RDMUX_SHM_MEETING_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { SHM_NAME_SIZE = 16 /* random bytes of a socket's name */ };

/* Directories, in the order in which an acceptor tries them. Peers exchange the index, never a
 * path, so a peer cannot make this process look up a path of the peer's choice. */
enum shm_directory {
    SHM_DIRECTORY_USER,   /* /run/user/UID */
    SHM_DIRECTORY_SHARED, /* /dev/shm */
    SHM_DIRECTORY_TEMPORARY,
    SHM_DIRECTORY_COUNT,
};

struct shm_place {
    uint32_t directory; /* enum shm_directory */
    uint8_t name[SHM_NAME_SIZE];
};

/* On failure each function calls rdmux_provider_error(). None waits for the peer. */

/* Makes a listening socket named place->name in the first directory that can have it, and stores
 * the directory in *place. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_meeting_listen(struct shm_place *place, int *out);
/* Removes the file. A connection that was made stays. */
void rdmux_shm_meeting_remove(const struct shm_place *place);
/* Connects to the socket of process pid. If our directory lacks the file, looks in that process's
 * (another mount namespace). RDMUX_AGAIN: the backlog is full. RDMUX_DENIED: the file belongs to
 * another user, or lets others connect. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_meeting_connect(const struct shm_place *place,
                                                             pid_t pid, int *out);
/* Returns whether this process can make a socket for its peers. */
bool rdmux_shm_meeting_is_possible(void);
/* Removes this user's files on which no process listens any more. Checks a bounded number of
 * files. */
void rdmux_shm_meeting_clean(void);

/* Returns whether only root or our user can remove our files from this directory. Public for
 * tests. */
bool rdmux_shm_directory_is_safe(const char *path);

#endif
