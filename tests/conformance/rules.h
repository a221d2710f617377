/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The suite's list of the rules of docs/SEMANTICS.md, and the rules that a case cites. */
#ifndef CONFORMANCE_RULES_H
#define CONFORMANCE_RULES_H

#include "harness.h"

struct rule {
    const char *id;
    const char *title;
    uint64_t needs; /* RDMUX_CAP_*; a path that lacks one does not advertise the rule */
    bool breakable; /* a program, a peer or the machine can try to break it */
};

extern const struct rule rules[];
extern const size_t rule_count;

/* Returns NULL if there is no such rule. */
const struct rule *rule_find(const char *id, size_t length);

/* One of the rules that a case cites. */
struct citation {
    const struct rule *rule; /* NULL: the list has no such rule */
    bool negative;           /* the case tries to break it */
    const char *text;        /* points into the case's list */
    size_t length;
};

/* Steps through conformance_case.rule. *at is the list at first; returns false at its end. */
bool citation_next(const char **at, struct citation *out);

/* Returns whether the case cites the rule, in either form. */
bool case_cites(const struct conformance_case *test, const struct rule *rule);

#endif
