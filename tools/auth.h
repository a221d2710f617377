/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Authentication options, the same for every command that connects or listens. */
#ifndef RDMUX_TOOL_AUTH_H
#define RDMUX_TOOL_AUTH_H

#include "options.h"

#include <rdmux/rdmux.h>

/* Returns the options' table. options_parse() adds it to every command that authenticates. */
const struct option_spec *tool_auth_options(size_t *count);
/* Returns the authentication that the options ask for, NULL if none was given. The options must
 * have been checked. */
const struct rdmux_fabric_auth *tool_auth(void);
/* Returns whether the given options are of use together; prints the error if not. The library
 * checks the rest. */
bool tool_auth_check(const char *command);

#endif
