/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Checks spans of this process's memory against the kernel's mappings, without touching pages. */
#ifndef RDMUX_API_OBJECT_MAPPING_H
#define RDMUX_API_OBJECT_MAPPING_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>

/*
 * Checks that all bytes of the span are mapped and readable, and writable where `writes` is set.
 * Asks the kernel for the mappings of the span (Linux 6.11: PROCMAP_QUERY, else /proc/self/maps,
 * read until the span ends). Pages nothing in. Checks nothing where the system gives no
 * answer.
 *
 * length  At least 1; the span does not wrap.
 * Errors  RDMUX_INVALID: the check failed; the text names the bytes
 */
enum rdmux_status rdmux_mapping_check(const void *addr, size_t length, bool writes);

#endif
