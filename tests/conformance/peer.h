/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The target's side of cases on another host. The runner and a session there, a process of `rdmux
 * serve`, communicate over TCP. Each connection begins with the session's secret and a letter.
 *
 *   C  control: the session sends its version. For each case follow lines of text:
 *        runner   RUN suite case seed sleeps quick thorough patience caps-known native emulated
 *                 provider limit sequence
 *        runner   KILL                  the case is over; the session kills its process
 *        session  ENDED failed consequence killed wait-status line, then three lines of text, in
 *                 which newlines are \x01: the failure, the file, and the step it stood at
 *   S  bytes that the two sides of the case give and take
 *   A  the case's second socket, for rdmux_adopt()
 */
#ifndef CONFORMANCE_PEER_H
#define CONFORMANCE_PEER_H

#include "harness.h"

#include <sys/socket.h>

enum {
    PEER_SECRET_SIZE = 16,
    PEER_TEXT_MAX = REPORT_TEXT_MAX,
};

/* The runner's end of a session. */
struct peer {
    struct sockaddr_storage address;
    socklen_t address_length;
    uint8_t secret[PEER_SECRET_SIZE];
    int control; /* -1: lost */
    /* Bytes read and not yet split into lines. */
    char *lines;
    size_t used;
};

/* How the target's process ended on the other host. */
struct peer_end {
    bool failed;
    bool consequence;
    bool killed; /* it was killed at the place given */
    int wait_status;
    int line;
    char text[PEER_TEXT_MAX];
    char file[256];
    char what[512];
};

/* Connects to a session. On failure returns false with the reason in *why. */
bool peer_open(struct peer *peer, const char **why);
void peer_close(struct peer *peer);

/* Starts the target's side of suites[suite]->cases[test] on the other host. *sync and *second are
 * connected to it. Returns false if the session is lost. */
bool peer_start(struct peer *peer, size_t suite, size_t test, const char *provider,
                const struct run_options *options, const struct provider_caps *caps, int *sync,
                int *second);
/* Asks the session to end the case's process. */
void peer_kill(struct peer *peer);
/* Reads the report that the process has ended, if it has arrived. A lost session counts as an
 * end. */
bool peer_take_end(struct peer *peer, struct peer_end *out);

/* The session process: serves the one runner that knows the secret on this listening socket until
 * the runner leaves. Returns an exit code. */
int peer_session(int listener, const uint8_t secret[PEER_SECRET_SIZE]);

#endif
