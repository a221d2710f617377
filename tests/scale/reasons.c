/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "reasons.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

void reasons_init(struct reasons *reasons)
{
    pthread_mutexattr_t shared;
    memset(reasons, 0, sizeof(*reasons));
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&reasons->lock, &shared);
    pthread_mutexattr_destroy(&shared);
}

/* Ports, ids and times differ from one set-up to the next. Quotes would break the JSON. */
static void without_numbers(const char *text, char out[REASON_TEXT])
{
    size_t used = 0;
    for (const char *at = text; *at != '\0' && used + 1 < REASON_TEXT; at++) {
        if (!isdigit((unsigned char)*at)) {
            out[used++] = *at == '"' || *at == '\\' || (unsigned char)*at < ' ' ? '\'' : *at;
        } else if (used == 0 || out[used - 1] != 'N' || !isdigit((unsigned char)at[-1])) {
            out[used++] = 'N';
        }
    }
    out[used] = '\0';
}

/* The entry of this reason, a new one if need be. */
static struct reason *find(struct reasons *reasons, const char *where, uint32_t status,
                           const char *text)
{
    for (uint32_t i = 0; i < reasons->count; i++) {
        struct reason *reason = &reasons->all[i];
        if (reason->status == status && strcmp(reason->where, where) == 0 &&
            strcmp(reason->text, text) == 0) {
            return reason;
        }
    }
    struct reason *reason = &reasons->all[reasons->count];
    if (reasons->count == REASONS_MAX - 1) {
        snprintf(reason->where, sizeof(reason->where), "others");
        return reason;
    }
    reasons->count++;
    reason->status = status;
    snprintf(reason->where, sizeof(reason->where), "%s", where);
    memcpy(reason->text, text, REASON_TEXT);
    return reason;
}

void reasons_add(struct reasons *reasons, const char *where, uint32_t status, const char *text)
{
    char plain[REASON_TEXT] = "";
    without_numbers(text, plain);
    if (pthread_mutex_lock(&reasons->lock) != 0) {
        (void)pthread_mutex_consistent(&reasons->lock); /* its holder was killed */
    }
    find(reasons, where, status, plain)->count++;
    reasons->total++;
    pthread_mutex_unlock(&reasons->lock);
}
