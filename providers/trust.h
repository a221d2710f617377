/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Decides by owner and mode of a plug-in's file, and of the folders on its path, whether the
 * process may load it. */
#ifndef RDMUX_PROVIDERS_TRUST_H
#define RDMUX_PROVIDERS_TRUST_H

#include "providers/loader.h"

#include <limits.h>
#include <stdbool.h>

/* The object at the end of a path. */
enum rdmux_trust_kind {
    RDMUX_TRUST_FILE,   /* a plug-in, opened by its name */
    RDMUX_TRUST_FOLDER, /* a folder, all of its plug-ins are opened */
};

/*
 * Returns whether the program has rights that its user lacks (setuid, setgid, file capabilities).
 * The user of such a program chooses argv[0], the environment and the working folder, and must not
 * choose code by them.
 */
bool rdmux_trust_is_secure(void);

/*
 * Follows the path, symbolic links included, and checks each folder, link and file on it. Each must
 * belong to a trusted owner: root, the user that the process acts for, the owner of librdmux.so or
 * the owner of "/". No other user may have the right to write to it. A folder that everybody may
 * write to (/tmp) is accepted on the path if it is sticky.
 *
 * out     The path without links, dots and double slashes. It leads to the checked object and to no
 *         other, as long as the trusted owners do not change it. PATH_MAX bytes.
 * Errors  RDMUX_NO_PATH: refused. *refusal has the reason RDMUX_REASON_BAD_PLUGIN, or
 *         RDMUX_REASON_NO_LIBRARY if nothing is at the path. Its text and hint name no folder of
 *         this machine.
 */
enum rdmux_status rdmux_trust_check(const char *path, enum rdmux_trust_kind kind, char *out,
                                    struct rdmux_refusal *refusal);

#endif
