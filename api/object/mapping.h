/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the kernel knows of a span of this process's memory, without touching the pages. */
#ifndef RDMUX_API_MAPPING_H
#define RDMUX_API_MAPPING_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>

/*
 * Are all bytes of the span mapped and readable, and writable where `writes`? Asks the kernel for the
 * mappings of the span (PROCMAP_QUERY, Linux 6.11), else reads /proc/self/maps up to its end. Nothing
 * is paged in. Where /proc does not tell, nothing is checked.
 *
 * length  At least 1; the span does not wrap.
 * Errors  RDMUX_INVALID: no; the text names the bytes
 */
enum rdmux_status rdmux_mapping_check(const void *addr, size_t length, bool writes);

#endif
