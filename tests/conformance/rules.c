/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "rules.h"

#include <string.h>

const struct rule rules[] = {
#define RULE(id, title, needs, breakable) { id, title, needs, breakable },
#include "rules.def"
#undef RULE
};

const size_t rule_count = COUNT_OF(rules);

const struct rule *rule_find(const char *id, size_t length)
{
    for (size_t i = 0; i < rule_count; i++) {
        if (strlen(rules[i].id) == length && memcmp(rules[i].id, id, length) == 0) {
            return &rules[i];
        }
    }
    return NULL;
}

bool citation_next(const char **at, struct citation *out)
{
    const char *text = *at + strspn(*at, ", ");
    if (*text == '\0') {
        return false;
    }
    bool negative = *text == '-';
    text += negative;
    size_t length = strcspn(text, ", ");
    *out = (struct citation){ rule_find(text, length), negative, text, length };
    *at = text + length;
    return true;
}

bool case_cites(const struct conformance_case *test, const struct rule *rule)
{
    const char *at = test->rule;
    struct citation citation;
    while (citation_next(&at, &citation)) {
        if (citation.rule == rule) {
            return true;
        }
    }
    return false;
}

uint64_t caps_missing(const struct provider_caps *caps, uint64_t needs)
{
    const uint64_t draining = NEEDS_PLACED | NEEDS_READ;
    uint64_t has = caps->native | caps->emulated;
    if (!caps->known) {
        return 0;
    }
    if ((needs & NEEDS_SETTLED) != 0 && (has & draining) == 0) {
        needs |= draining;
    }
    return needs & ~NEEDS_SETTLED & ~has;
}
