/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The explanation of each thread's last call that ended with RDMUX_NO_PATH. */
#include "api/setup/last_explanation.h"

#include "negotiation/explain.h"

#include <stdlib.h>

static pthread_once_t explanation_once = PTHREAD_ONCE_INIT;
static pthread_key_t explanation_key;
static bool explanation_key_made;

static void free_explanation(void *explanation)
{
    rdmux_explanation_free(explanation);
}

static void make_explanation_key(void)
{
    explanation_key_made = pthread_key_create(&explanation_key, free_explanation) == 0;
}

/* The key's destructor is code of this library, and must not be called after the library is
 * unloaded. */
__attribute__((destructor)) static void drop_explanation_key(void)
{
    if (explanation_key_made) {
        rdmux_explanation_free(pthread_getspecific(explanation_key));
        (void)pthread_key_delete(explanation_key);
        explanation_key_made = false;
    }
}

void rdmux_set_last_explanation(struct rdmux_explanation *explanation)
{
    (void)pthread_once(&explanation_once, make_explanation_key);
    if (!explanation_key_made) {
        rdmux_explanation_free(explanation);
        return;
    }
    struct rdmux_explanation *before = pthread_getspecific(explanation_key);
    if (pthread_setspecific(explanation_key, explanation) != 0) {
        rdmux_explanation_free(explanation);
        return;
    }
    rdmux_explanation_free(before);
}

enum rdmux_status rdmux_last_explanation(struct rdmux_explanation **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "last explanation: out is NULL");
    }
    *out = NULL;
    (void)pthread_once(&explanation_once, make_explanation_key);
    const struct rdmux_explanation *kept = explanation_key_made
                                               ? pthread_getspecific(explanation_key)
                                               : NULL;
    if (kept == NULL) {
        return rdmux_fail(RDMUX_AGAIN,
                          "last explanation: no call of this thread ended with NO_PATH");
    }
    /* The caller owns the result and may ask again, so it gets a copy. */
    size_t count = kept->candidate_count;
    struct rdmux_candidate *candidates = calloc(count > 0 ? count : 1, sizeof(*candidates));
    if (candidates == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "last explanation: no memory for %zu candidates", count);
    }
    for (size_t i = 0; i < count; i++) {
        candidates[i] = *kept->candidates[i];
    }
    struct rdmux_explanation *copy = rdmux_explanation_create(
        (enum rdmux_status)kept->status, candidates, count, kept->peer_address);
    free(candidates);
    if (copy == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "last explanation: no memory for %zu candidates", count);
    }
    *out = copy;
    return RDMUX_OK;
}
