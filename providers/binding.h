/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Which copy of rdmux a plug-in is bound to. A process may have several: librdmux.so, and copies
 * that are linked into the program or into libraries. */
#ifndef RDMUX_PROVIDERS_BINDING_H
#define RDMUX_PROVIDERS_BINDING_H

#include "providers/loader.h"

#include <stdbool.h>

/* Writes the path that librdmux.so was loaded from, or "" if this copy of rdmux is linked into a
 * program or another library, which has no plug-in folder. size is at least PATH_MAX. */
void rdmux_library_file(char *out, size_t size);
/* Returns whether this copy of rdmux is librdmux.so, for which plug-ins are made. */
bool rdmux_binding_is_shared(void);

/*
 * Checks, before a plug-in is opened, that it would be bound to this copy of rdmux: this copy is
 * librdmux.so, and no other copy comes before it when the dynamic linker looks a name up. So no
 * code of the plug-in runs if it would be bound to another copy.
 * Errors  RDMUX_NO_PATH: it would not, *refusal says why
 */
enum rdmux_status rdmux_binding_check(struct rdmux_refusal *refusal);

/*
 * Checks the same of an open plug-in, which may need a librdmux.so of another version. handle: of
 * dlopen().
 * Errors  RDMUX_NO_PATH: it is bound to another copy, *refusal says so
 */
enum rdmux_status rdmux_binding_check_opened(void *handle, struct rdmux_refusal *refusal);

#endif
