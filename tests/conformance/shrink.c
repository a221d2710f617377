/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Finds the shortest part of a random sequence that still fails: halves it, then removes smaller
 * and smaller pieces (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
 * 2002). An intermittent failure leaves a longer sequence, never a wrong one: the sequence kept has
 * failed. */
#include "random.h"

#include "generated.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORDS_MAX = 2 * REPORT_TEXT_MAX,
};

/* Both sides' operations in one array, the initiator's first. */
struct search {
    const struct case_place *place;
    const char *provider;
    struct run_options options;
    const struct provider_caps *caps;
    uint64_t deadline_ns;
    uint64_t per_side;
    uint64_t count; /* operations of both sides */
    bool *kept;
    bool *tried;
    struct run_result *last; /* result of the shortest sequence that failed */
    char *text;              /* its sequence, SEQUENCE_TEXT_MAX */
};

bool sequence_is_valid(const char *text)
{
    while (*text != '\0') {
        uint64_t first = 0;
        struct row row;
        int used = *text == 'r' ? row_scan(text + 1, &row) : 0;
        if (used > 0) {
            text += 1 + used;
            if (*text != ',' && *text != '\0') {
                return false;
            }
            text += *text == ',';
            continue;
        }
        if ((*text != 'i' && *text != 't') ||
            sscanf(text + 1, "%" SCNu64 "%n", &first, &used) != 1) {
            return false;
        }
        text += 1 + used;
        if (*text == '-' && sscanf(text + 1, "%" SCNu64 "%n", &first, &used) == 1) {
            text += 1 + used;
        }
        if (*text != ',' && *text != '\0') {
            return false;
        }
        text += *text == ',';
    }
    return true;
}

bool sequence_has(const char *text, bool initiator, uint64_t index)
{
    if (text == NULL) {
        return true;
    }
    while (*text != '\0') {
        bool mine = *text == (initiator ? 'i' : 't');
        char *end = NULL;
        uint64_t first = strtoull(text + 1, &end, 10);
        uint64_t last = *end == '-' ? strtoull(end + 1, &end, 10) : first;
        if (mine && index >= first && index <= last) {
            return true;
        }
        text = *end == ',' ? end + 1 : end + strlen(end);
    }
    return false;
}

bool rows_are_named(const char *text)
{
    return text != NULL && *text == 'r';
}

bool rows_next(const char **at, struct row *out)
{
    if (**at != 'r') {
        return false;
    }
    int used = row_scan(*at + 1, out);
    *at += 1 + used;
    *at += **at == ',';
    return used > 0;
}

static uint64_t place_in_side(const struct search *search, uint64_t place)
{
    return place < search->per_side ? place : place - search->per_side;
}

/* Returns false if the text does not fit. */
static bool write_sequence(const struct search *search, const bool *kept,
                           char out[SEQUENCE_TEXT_MAX])
{
    size_t used = 0;
    out[0] = '\0';
    for (uint64_t i = 0; i < search->count; i++) {
        if (!kept[i]) {
            continue;
        }
        uint64_t side_end = i < search->per_side ? search->per_side : search->count;
        uint64_t end = i;
        while (end + 1 < side_end && kept[end + 1]) {
            end++;
        }
        uint64_t base = i < search->per_side ? 0 : search->per_side;
        char range[64];
        int length = snprintf(range, sizeof(range),
                              end == i ? "%s%c%" PRIu64 : "%s%c%" PRIu64 "-%" PRIu64,
                              used == 0 ? "" : ",", base == 0 ? 'i' : 't', i - base, end - base);
        if (used + (size_t)length >= SEQUENCE_TEXT_MAX) {
            return false;
        }
        memcpy(out + used, range, (size_t)length + 1);
        used += (size_t)length;
        i = end;
    }
    return true;
}

static bool is_over(const struct search *search)
{
    return now_ns() > search->deadline_ns;
}

/* Runs the operations of search->tried. If they fail, keeps them and returns true. */
static bool fails(struct search *search)
{
    static struct run_result result;
    static char text[SEQUENCE_TEXT_MAX];
    struct provider_caps caps = *search->caps;
    if (is_over(search) || !write_sequence(search, search->tried, text)) {
        return false;
    }
    search->options.sequence = text;
    run_case(search->place, search->provider, &search->options, &caps, &result);
    if (!is_same_failure(search->last, &result)) {
        return false;
    }
    memcpy(search->kept, search->tried, search->count * sizeof(*search->kept));
    memcpy(search->text, text, sizeof(text));
    *search->last = result;
    return true;
}

/* Leaves out places [from, to) of the kept operations. Returns true if the rest still fails. */
static bool fails_without(struct search *search, uint64_t from, uint64_t to)
{
    memcpy(search->tried, search->kept, search->count * sizeof(*search->tried));
    bool fewer = false;
    for (uint64_t i = from; i < to && i < search->count; i++) {
        fewer = fewer || search->tried[i];
        search->tried[i] = false;
    }
    return fewer && fails(search);
}

/* Most failures come early: keeps the first half of both sides as long as that fails. */
static void cut_the_end(struct search *search)
{
    for (uint64_t length = search->per_side / 2; length > 0; length /= 2) {
        memcpy(search->tried, search->kept, search->count * sizeof(*search->tried));
        for (uint64_t i = 0; i < search->count; i++) {
            search->tried[i] = search->tried[i] && place_in_side(search, i) < length;
        }
        if (!fails(search)) {
            return;
        }
    }
}

static uint64_t kept_count(const struct search *search)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < search->count; i++) {
        count += search->kept[i];
    }
    return count;
}

/* Returns the place of the n-th kept operation. */
static uint64_t place_of(const struct search *search, uint64_t n)
{
    uint64_t place = 0;
    for (; place < search->count; place++) {
        if (search->kept[place] && n-- == 0) {
            break;
        }
    }
    return place;
}

static void take_out_pieces(struct search *search)
{
    uint64_t piece = kept_count(search) / 2;
    while (piece > 0 && !is_over(search)) {
        bool shorter = false;
        for (uint64_t n = 0; n < kept_count(search) && !is_over(search);) {
            if (fails_without(search, place_of(search, n), place_of(search, n + piece))) {
                shorter = true;
            } else {
                n += piece;
            }
        }
        if (!shorter || piece > 1) {
            piece /= 2;
        }
    }
}

static void tell_in_words(struct search *search, struct run_result *result)
{
    static char words[WORDS_MAX];
    size_t used = strlen(result->text);
    model_describe(search->options.seed, search->options.quick, search->text, words, sizeof(words));
    (void)snprintf(result->text + used, sizeof(result->text) - used,
                   "the shortest sequence found that fails, %" PRIu64 " of %" PRIu64
                   " operations:\n%s",
                   kept_count(search), search->count, words);
}

void shrink(const struct case_place *place, const char *provider, const struct run_options *options,
            const struct provider_caps *caps, uint64_t limit_ms, struct run_result *result,
            char sequence[SEQUENCE_TEXT_MAX])
{
    uint64_t per_side = model_operations(options->quick);
    struct search search = {
        .place = place,
        .provider = provider,
        .options = *options,
        .caps = caps,
        .deadline_ns = now_ns() + limit_ms * 1000000,
        .per_side = per_side,
        .count = 2 * per_side,
        .kept = calloc(2 * per_side, sizeof(bool)),
        .tried = calloc(2 * per_side, sizeof(bool)),
        .last = result,
        .text = sequence,
    };
    uint64_t took_ns = result->took_ns;
    sequence[0] = '\0';
    if (search.kept != NULL && search.tried != NULL) {
        for (uint64_t i = 0; i < search.count; i++) {
            search.kept[i] = sequence_has(options->sequence, i < per_side,
                                          place_in_side(&search, i));
        }
        search.options.limit_s = TRY_LIMIT_S * options->patience;
        cut_the_end(&search);
        (void)fails_without(&search, per_side, search.count);
        (void)fails_without(&search, 0, per_side);
        take_out_pieces(&search);
        if (sequence[0] != '\0') {
            tell_in_words(&search, result);
        }
    }
    result->took_ns = took_ns;
    free(search.kept);
    free(search.tried);
}
