/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The options by which a command authenticates, the same for all that connect or listen. */
#ifndef RDMUX_TOOL_AUTH_H
#define RDMUX_TOOL_AUTH_H

#include "options.h"

#include <rdmux/rdmux.h>

/* The options' table; options_parse() takes them for every command that authenticates. */
const struct option_spec *tool_auth_options(size_t *count);
/* What they say; NULL: none was given. They must have been checked. */
const struct rdmux_fabric_auth *tool_auth(void);
/* Are the options that were given of any use together? Prints what is wrong, if not. The library
 * looks at the rest. */
bool tool_auth_check(const char *command);

#endif
