/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Path filters: "auto", "roce,tcp", "!shm"; unordered, intersecting. Pure. */
#ifndef RDMUX_NEGOTIATION_FILTER_H
#define RDMUX_NEGOTIATION_FILTER_H

#include <rdmux/rdmux.h>

#include <stdbool.h>

enum { RDMUX_FILTER_MAX = 256 }; /* bytes of a filter's text with its NUL */

/* Is text a filter? Names are [a-z0-9_-]; blanks around them are skipped. RDMUX_INVALID names the
 * bad word in *word (may be NULL), which points into text. Which names exist is not looked at: a
 * plug-in may bring any. */
enum rdmux_status rdmux_filter_check(const char *text, const char **word);

/* Does the filter let this provider through? NULL and "" are "auto". Of a text that was not checked
 * (a peer's) a word that is no name stands for nobody. */
bool rdmux_filter_allows(const char *text, const char *provider);

/* Does the filter name this provider, not negated? "auto" names none. */
bool rdmux_filter_names(const char *text, const char *provider);

#endif
