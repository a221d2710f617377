/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A server of links: one thread for each. */
#ifndef SERVER_H
#define SERVER_H

#include "link.h"

/* Ends the program with a message. */
_Noreturn void server_fail(const char *what, const char *why);

/* Prints "listening on ADDRESS", and "client over PROVIDER" for each link. Calls serve() in a thread
 * for each link, which it closes afterwards. Returns after clients links; 0: never. */
void server_run(const char *address, size_t clients, void (*serve)(struct link *link));

#endif
