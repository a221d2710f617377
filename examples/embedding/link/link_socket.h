/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* For what only a socket can do. */
#ifndef LINK_SOCKET_H
#define LINK_SOCKET_H

#include "link.h"

int link_fd(const struct link *link);

#endif
