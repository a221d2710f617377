/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Whose code may become part of the process: the folders and the file that a plug-in's path leads
 * through. */
#ifndef RDMUX_PROVIDERS_TRUST_H
#define RDMUX_PROVIDERS_TRUST_H

#include "providers/loader.h"

#include <limits.h>
#include <stdbool.h>

/* What is at the end of a path. */
enum rdmux_trust_kind {
    RDMUX_TRUST_FILE,   /* a plug-in, opened by its name */
    RDMUX_TRUST_FOLDER, /* a folder whose plug-ins are all opened */
};

/*
 * Does the program have rights that its user lacks (setuid, setgid, file capabilities)? Then the user
 * chooses argv[0], the environment and the working folder, and must not choose code by them.
 */
bool rdmux_trust_is_secure(void);

/*
 * Follows the path, symbolic links included, and judges each folder, link and file on the way. Each
 * belongs to root, the user, or the owner of librdmux.so, and nobody else may write to it. A folder
 * that everybody may write to (/tmp) may stand on the way if it is sticky.
 *
 * out     The path without links, dots and double slashes: what was judged, and no other object, is
 *         found there as long as root and those owners leave it alone. PATH_MAX bytes.
 * Errors  RDMUX_NO_PATH: refused, *refusal says why, without naming folders of this machine:
 *         RDMUX_REASON_BAD_PLUGIN; RDMUX_REASON_NO_LIBRARY if there is nothing at the path
 */
enum rdmux_status rdmux_trust_check(const char *path, enum rdmux_trust_kind kind, char *out,
                                    struct rdmux_refusal *refusal);

#endif
