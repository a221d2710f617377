/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "receiver_park.h"

#include "timer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct park {
    struct partial partials[PARK_MAX]; /* the oldest first */
    unsigned count;
};

struct park *park_create(void)
{
    return calloc(1, sizeof(struct park));
}

void partial_drop(struct partial *partial)
{
    if (partial->temporary[0] != '\0') {
        unlinkat(partial->directory, partial->temporary, 0);
    }
    if (partial->file >= 0) {
        close(partial->file);
    }
    if (partial->directory >= 0) {
        close(partial->directory);
    }
    checksum_destroy(partial->checksum);
    free(partial->path);
    free(partial->origin);
    *partial = (struct partial){ .file = -1, .directory = -1 };
}

/* Closes the gap at `index`. */
static void forget(struct park *park, unsigned index)
{
    park->count--;
    for (unsigned i = index; i < park->count; i++) {
        park->partials[i] = park->partials[i + 1];
    }
}

static void drop(struct park *park, unsigned index)
{
    partial_drop(&park->partials[index]);
    forget(park, index);
}

bool park_clear(struct park *park)
{
    bool any = park->count > 0;
    while (park->count > 0) {
        drop(park, park->count - 1);
    }
    return any;
}

void park_destroy(struct park *park)
{
    if (park != NULL) {
        park_clear(park);
        free(park);
    }
}

/* Returns how many files of the same origin as this one there are. */
static unsigned count_of_origin(const struct park *park, unsigned index)
{
    unsigned count = 0;
    for (unsigned i = 0; i < park->count; i++) {
        count += strcmp(park->partials[i].origin, park->partials[index].origin) == 0 ? 1 : 0;
    }
    return count;
}

/* Returns the oldest file of an origin that has the most. */
static unsigned choose_victim(const struct park *park)
{
    unsigned victim = 0;
    unsigned most = 0;
    for (unsigned i = 0; i < park->count; i++) {
        unsigned count = count_of_origin(park, i);
        if (count > most) {
            most = count;
            victim = i;
        }
    }
    return victim;
}

void park_keep(struct park *park, struct partial *partial)
{
    if (partial->offset < PARK_BYTES_MIN) {
        partial_drop(partial);
        return;
    }
    for (unsigned i = park->count; i-- > 0;) {
        if (strcmp(park->partials[i].origin, partial->origin) == 0 &&
            strcmp(park->partials[i].path, partial->path) == 0) {
            drop(park, i);
        }
    }
    if (park->count == PARK_MAX) {
        drop(park, choose_victim(park));
    }
    partial->since_ns = timer_clock_ns();
    park->partials[park->count++] = *partial;
    *partial = (struct partial){ .file = -1, .directory = -1 };
}

bool park_take(struct park *park, const char *origin, const char *path,
               const struct proto_attributes *attributes, struct partial *out)
{
    for (unsigned i = park->count; i-- > 0;) {
        struct partial *partial = &park->partials[i];
        if (strcmp(partial->origin, origin) == 0 && strcmp(partial->path, path) == 0 &&
            partial->attributes.size == attributes->size &&
            partial->attributes.seconds == attributes->seconds &&
            partial->attributes.nanoseconds == attributes->nanoseconds) {
            *out = *partial;
            forget(park, i);
            return true;
        }
    }
    return false;
}

void park_expire(struct park *park, uint64_t now_ns)
{
    while (park->count > 0 &&
           now_ns - park->partials[0].since_ns >= PARK_SECONDS * UINT64_C(1000000000) &&
           now_ns >= park->partials[0].since_ns) {
        drop(park, 0);
    }
}
