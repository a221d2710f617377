/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* For what only a stream can do. */
#ifndef LINK_STREAM_H
#define LINK_STREAM_H

#include "link.h"

struct rdmux_stream *link_stream(const struct link *link);

#endif
