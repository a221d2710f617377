/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The rules of docs/SEMANTICS.md as the suite knows them, and what a case says about them. */
#ifndef CONFORMANCE_RULES_H
#define CONFORMANCE_RULES_H

#include "harness.h"

struct rule {
    const char *id;
    const char *title;
    uint64_t needs; /* RDMUX_CAP_*; a path without one does not advertise the rule */
    bool breakable; /* a program, a peer or the machine can try to break it */
};

extern const struct rule rules[];
extern const size_t rule_count;

/* NULL: there is no such rule. */
const struct rule *rule_find(const char *id, size_t length);

/* One of the rules that a case cites. */
struct citation {
    const struct rule *rule; /* NULL: a rule that is not in the list */
    bool negative;           /* the case tries to break it */
    const char *text;        /* where it stands in the case's list */
    size_t length;
};

/* Steps through conformance_case.rule: *at is the list at first; false at its end. */
bool citation_next(const char **at, struct citation *out);

/* Whether the case cites the rule at all. */
bool case_cites(const struct conformance_case *test, const struct rule *rule);

#endif
