/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Where the two processes of an endpoint pair meet: an AF_UNIX socket of the acceptor that stands in a
 * directory of the host. Its file has mode 0600, so the kernel lets no other user connect: what a stranger
 * could queue there, the acceptor would have to close, and a close can wait as long as a stranger likes.
 * For the same reason a connector connects to nothing but a socket file of its own user.
 *
 * The file is there from ep_open until the peer was accepted or the endpoint closes. A killed process leaves
 * it behind; the next domain of the same user removes it.
 */
#ifndef RDMUX_SHM_MEETING_H
#define RDMUX_SHM_MEETING_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { SHM_NAME_SIZE = 16 /* random bytes of a socket's name */ };

/* The directories, in the order in which an acceptor tries them. Peers tell each other the index, never a
 * path: nobody makes us look up a path of his choice. */
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

/* Each with rdmux_provider_error() on failure; none waits for the peer. */

/* A listening socket with place->name, in the first directory that can have it, which is stored. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_meeting_listen(struct shm_place *place, int *out);
/* Takes the file away. A connection that was made stays. */
void rdmux_shm_meeting_remove(const struct shm_place *place);
/* Connects to the socket of process pid, seen from there if our own directory lacks it (another mount
 * namespace). RDMUX_AGAIN: its backlog is full. RDMUX_DENIED: its file is not our user's alone. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_meeting_connect(const struct shm_place *place,
                                                             pid_t pid, int *out);
/* Can this process make a socket for its peers? */
bool rdmux_shm_meeting_is_possible(void);
/* Removes the files of this user on which no process listens any more. Looks at so many files at most. */
void rdmux_shm_meeting_clean(void);

/* For tests: only root, or our user, can take files of ours away in this directory. */
bool rdmux_shm_directory_is_safe(const char *path);

#endif
