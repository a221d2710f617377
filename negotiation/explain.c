/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Explanations and the names in them. An explanation's texts are cleaned when it is created. So
 * anything shown, logged or turned into JSON later is valid UTF-8 without control characters,
 * whatever a peer sent. */
#include "negotiation/explain.h"
#include "negotiation/verdict.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- names */

static const char *const reason_names[] = {
    [RDMUX_REASON_NONE] = "NONE",
    [RDMUX_REASON_CHOSEN] = "CHOSEN",
    [RDMUX_REASON_SLOWER] = "SLOWER",
    [RDMUX_REASON_NO_LIBRARY] = "NO_LIBRARY",
    [RDMUX_REASON_BAD_PLUGIN] = "BAD_PLUGIN",
    [RDMUX_REASON_NO_DEVICE] = "NO_DEVICE",
    [RDMUX_REASON_PORT_DOWN] = "PORT_DOWN",
    [RDMUX_REASON_NO_USABLE_GID] = "NO_USABLE_GID",
    [RDMUX_REASON_PEER_HAS_NONE] = "PEER_HAS_NONE",
    [RDMUX_REASON_OTHER_HOST] = "OTHER_HOST",
    [RDMUX_REASON_OTHER_NAMESPACE] = "OTHER_NAMESPACE",
    [RDMUX_REASON_NOT_REACHABLE] = "NOT_REACHABLE",
    [RDMUX_REASON_CAPABILITY_MISSING] = "CAPABILITY_MISSING",
    [RDMUX_REASON_FILTERED] = "FILTERED",
    [RDMUX_REASON_MEMLOCK_TOO_LOW] = "MEMLOCK_TOO_LOW",
    [RDMUX_REASON_MTU_MISMATCH] = "MTU_MISMATCH",
    [RDMUX_REASON_OPEN_FAILED] = "OPEN_FAILED",
    [RDMUX_REASON_CONNECT_FAILED] = "CONNECT_FAILED",
    [RDMUX_REASON_CONNECT_TIMED_OUT] = "CONNECT_TIMED_OUT",
    [RDMUX_REASON_PROOF_FAILED] = "PROOF_FAILED",
    [RDMUX_REASON_PROOF_TIMED_OUT] = "PROOF_TIMED_OUT",
    [RDMUX_REASON_NOT_ENCRYPTED] = "NOT_ENCRYPTED",
    [RDMUX_REASON_SOFTWARE_DEVICE] = "SOFTWARE_DEVICE",
    [RDMUX_REASON_NO_PERMISSION] = "NO_PERMISSION",
    [RDMUX_REASON_LIMIT_MISMATCH] = "LIMIT_MISMATCH",
    [RDMUX_REASON_PEER_FAILED] = "PEER_FAILED",
    [RDMUX_REASON_USABLE] = "USABLE",
    [RDMUX_REASON_OTHER_BYTE_ORDER] = "OTHER_BYTE_ORDER",
    [RDMUX_REASON_PATH_LOST] = "PATH_LOST",
};

static const char *const stage_names[] = {
    [RDMUX_STAGE_PROBE] = "probe", [RDMUX_STAGE_MATCH] = "match",
    [RDMUX_STAGE_OPEN] = "open",   [RDMUX_STAGE_CONNECT] = "connect",
    [RDMUX_STAGE_PROOF] = "proof", [RDMUX_STAGE_COMMIT] = "commit",
};

static const char *const security_names[] = {
    [RDMUX_SECURITY_NONE] = "none",           [RDMUX_SECURITY_TOKEN] = "token",
    [RDMUX_SECURITY_SAME_USER] = "same user", [RDMUX_SECURITY_BOUND_KEY] = "bound key",
    [RDMUX_SECURITY_ENCRYPTED] = "encrypted",
};

/* Indexed by the bit number of RDMUX_CAP_*. */
static const char *const capability_names[] = {
    "send",         "send_imm", "write", "write_imm", "read",          "fetch_add",
    "compare_swap", "placed",   "srq",   "fence",     "atomic_device", "target_passive",
};

enum {
    REASON_COUNT = sizeof(reason_names) / sizeof(reason_names[0]),
    STAGE_COUNT = sizeof(stage_names) / sizeof(stage_names[0]),
    SECURITY_COUNT = sizeof(security_names) / sizeof(security_names[0]),
    CAPABILITY_COUNT = sizeof(capability_names) / sizeof(capability_names[0]),
};

static_assert(RDMUX_CAP_TARGET_PASSIVE == 1 << (CAPABILITY_COUNT - 1),
              "every capability has its name");

const char *rdmux_reason_name(enum rdmux_reason reason)
{
    return (size_t)reason < REASON_COUNT ? reason_names[reason] : "?";
}

const char *rdmux_stage_name(enum rdmux_stage stage)
{
    return (size_t)stage < STAGE_COUNT ? stage_names[stage] : "?";
}

const char *rdmux_security_name(enum rdmux_security security)
{
    return (size_t)security < SECURITY_COUNT ? security_names[security] : "?";
}

const char *rdmux_capability_name(uint64_t capability)
{
    for (size_t i = 0; i < CAPABILITY_COUNT; i++) {
        if (capability == UINT64_C(1) << i) {
            return capability_names[i];
        }
    }
    return NULL;
}

void rdmux_capability_list(uint64_t capabilities, char *out, size_t size)
{
    out[0] = '\0';
    for (size_t i = 0; i < CAPABILITY_COUNT; i++) {
        if ((capabilities & UINT64_C(1) << i) != 0) {
            rdmux_text_add(out, size, "%s%s", out[0] == '\0' ? "" : ", ", capability_names[i]);
        }
    }
}

/* ---------------------------------------------------------------------------------------- texts */

void rdmux_text_add(char *text, size_t size, const char *format, ...)
{
    size_t used = strnlen(text, size);
    if (used >= size) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(text + used, size - used, format, arguments) < 0) {
        text[used] = '\0';
    }
    va_end(arguments);
}

/* Returns the bytes of the printable UTF-8 character at text; 0: none begins here, or it is a
 * control character. Never reads beyond the NUL. Follows table 3-7 of the Unicode standard: no
 * overlong forms, no surrogates. */
static size_t shown_character(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    if (c[0] < 0x80) {
        return c[0] >= 0x20 && c[0] != 0x7f ? 1 : 0;
    }
    size_t length = 0;
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    if (c[0] >= 0xc2 && c[0] <= 0xdf) {
        length = 2;
        low = c[0] == 0xc2 ? 0xa0 : low; /* U+0080 to U+009F are control characters, too */
    } else if (c[0] >= 0xe0 && c[0] <= 0xef) {
        length = 3;
        low = c[0] == 0xe0 ? 0xa0 : low;
        high = c[0] == 0xed ? 0x9f : high;
    } else if (c[0] >= 0xf0 && c[0] <= 0xf4) {
        length = 4;
        low = c[0] == 0xf0 ? 0x90 : low;
        high = c[0] == 0xf4 ? 0x8f : high;
    }
    if (length == 0 || c[1] < low || c[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if (c[i] < 0x80 || c[i] > 0xbf) {
            return 0;
        }
    }
    return length;
}

void rdmux_text_clean(char *text)
{
    while (*text != '\0') {
        size_t length = shown_character(text);
        if (length == 0) {
            *text = '?';
            length = 1;
        }
        text += length;
    }
}

/* Copies a text, cut to size; a character cut in two becomes '?'. */
static void copy_clean(char *out, size_t size, const char *text)
{
    out[0] = '\0';
    rdmux_text_add(out, size, "%s", text);
    rdmux_text_clean(out);
}

static void add_path(char *out, size_t size, const struct rdmux_candidate *candidate)
{
    bool ours = candidate->device[0] != '\0';
    const char *device = ours ? candidate->device : candidate->peer_device;
    rdmux_text_add(out, size, "%s%s%s", candidate->provider, device[0] != '\0' ? " " : "", device);
}

/* Adds "roce mlx5_0: PORT_DOWN (acceptor: the cable is out)". */
static void add_verdict(char *out, size_t size, const struct rdmux_candidate *candidate)
{
    add_path(out, size, candidate);
    rdmux_text_add(out, size, ": %s", rdmux_reason_name((enum rdmux_reason)candidate->reason));
    if (candidate->text[0] != '\0') {
        rdmux_text_add(out, size, " (%s)", candidate->text);
    }
}

static bool is_told_before(const struct rdmux_candidate *candidates, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (rdmux_verdict_is_same(&candidates[i], &candidates[at])) {
            return true;
        }
    }
    return false;
}

static bool is_aside(const struct rdmux_candidate *candidates, size_t count, size_t at)
{
    for (size_t i = 0; i < count; i++) {
        if (rdmux_verdict_is_outdone(&candidates[at], &candidates[i])) {
            return true;
        }
    }
    return false;
}

void rdmux_explain_no_path(const struct rdmux_candidate *candidates, size_t count, char *out,
                           size_t size)
{
    const char *before = "";
    out[0] = '\0';
    rdmux_text_add(out, size, "no path: %s", count == 0 ? "neither side has any" : "");
    for (int aside = 0; aside < 2; aside++) {
        for (size_t i = 0; i < count; i++) {
            if (is_aside(candidates, count, i) == (aside == 1) && !is_told_before(candidates, i)) {
                rdmux_text_add(out, size, "%s", before);
                add_verdict(out, size, &candidates[i]);
                before = "; ";
            }
        }
    }
    rdmux_text_clean(out);
}

/* ---------------------------------------------------------------------------------- explanation */

enum {
    VERDICT_MAX = 2 * RDMUX_NAME_MAX + RDMUX_TEXT_MAX +
                  64,  /* bytes of one candidate's part of the text */
    SUMMARY_MAX = 128, /* bytes around those */
};

struct explanation {
    struct rdmux_explanation base;
    struct rdmux_candidate *candidates; /* sorted by rank, unranked ones last */
    const struct rdmux_candidate **pointers;
    char *text;
    char *json; /* NULL until requested */
    char peer_address[RDMUX_ADDRESS_MAX];
};

static_assert(offsetof(struct explanation, base) == 0, "explanation_from_base() relies on it");

static struct explanation *explanation_from_base(struct rdmux_explanation *base)
{
    return (struct explanation *)base;
}

static bool candidate_comes_before(const struct rdmux_candidate *a, const struct rdmux_candidate *b)
{
    return a->rank != 0 && (b->rank == 0 || a->rank < b->rank);
}

/* Copies the candidates, sorted by rank; equal ranks keep their order. */
static void take_candidates(struct explanation *explanation,
                            const struct rdmux_candidate *candidates, size_t count)
{
    struct rdmux_candidate *sorted = explanation->candidates;
    for (size_t i = 0; i < count; i++) {
        size_t at = i;
        while (at > 0 && candidate_comes_before(&candidates[i], &sorted[at - 1])) {
            sorted[at] = sorted[at - 1];
            at--;
        }
        sorted[at] = candidates[i];
    }
    for (size_t i = 0; i < count; i++) {
        struct rdmux_candidate *candidate = &sorted[i];
        candidate->size = (uint32_t)sizeof(*candidate);
        rdmux_text_clean(candidate->provider);
        rdmux_text_clean(candidate->device);
        rdmux_text_clean(candidate->peer_device);
        rdmux_text_clean(candidate->text);
        rdmux_text_clean(candidate->hint);
        explanation->pointers[i] = candidate;
    }
}

/* Returns the chosen candidate's index. After a successful negotiation without connecting
 * (rdmux_explain()) none may be CHOSEN yet; the first in rank becomes it. */
static uint32_t find_chosen(struct explanation *explanation)
{
    uint32_t count = explanation->base.candidate_count;
    for (uint32_t i = 0; i < count; i++) {
        if (explanation->candidates[i].reason == RDMUX_REASON_CHOSEN) {
            return i;
        }
    }
    if (count > 0 && explanation->base.status == RDMUX_OK && explanation->candidates[0].rank == 1 &&
        explanation->candidates[0].reason == RDMUX_REASON_NONE) {
        explanation->candidates[0].reason = RDMUX_REASON_CHOSEN;
        return 0;
    }
    return UINT32_MAX;
}

/* Writes "chosen: tcp eth0 (cost 9 us); before it failed: roce mlx5_0: CONNECT_TIMED_OUT (…)". */
static void compose_chosen(const struct explanation *explanation, char *out, size_t size)
{
    const struct rdmux_candidate *chosen = &explanation->candidates[explanation->base.chosen];
    out[0] = '\0';
    rdmux_text_add(out, size, "chosen: ");
    add_path(out, size, chosen);
    if (chosen->text[0] != '\0') {
        rdmux_text_add(out, size, " (%s)", chosen->text);
    }
    const char *before = "; tried before it: ";
    for (uint32_t i = 0; i < explanation->base.candidate_count; i++) {
        const struct rdmux_candidate *candidate = &explanation->candidates[i];
        if (candidate->stage >= RDMUX_STAGE_OPEN && candidate != chosen) {
            rdmux_text_add(out, size, "%s", before);
            add_verdict(out, size, candidate);
            before = "; ";
        }
    }
}

static void compose_text(struct explanation *explanation, size_t size)
{
    const struct rdmux_explanation *base = &explanation->base;
    if (base->chosen != UINT32_MAX) {
        compose_chosen(explanation, explanation->text, size);
    } else if (base->status == RDMUX_NO_PATH || base->status == RDMUX_OK) {
        rdmux_explain_no_path(explanation->candidates, base->candidate_count, explanation->text,
                              size);
    } else if (base->status == RDMUX_IN_PROGRESS) {
        rdmux_text_add(explanation->text, size, "no path yet: %" PRIu32 " candidates",
                       base->candidate_count);
    } else {
        rdmux_text_add(explanation->text, size,
                       "no path was chosen before the negotiation ended with %s",
                       rdmux_status_name((enum rdmux_status)base->status));
        for (uint32_t i = 0; i < base->candidate_count; i++) {
            rdmux_text_add(explanation->text, size, "; ");
            add_verdict(explanation->text, size, &explanation->candidates[i]);
        }
    }
}

struct rdmux_explanation *rdmux_explanation_create(enum rdmux_status status,
                                                   const struct rdmux_candidate *candidates,
                                                   size_t count, const char *peer_address)
{
    struct explanation *explanation = calloc(1, sizeof(*explanation));
    if (explanation == NULL) {
        return NULL;
    }
    size_t text_size = SUMMARY_MAX + count * VERDICT_MAX;
    explanation->candidates = calloc(count + 1, sizeof(*explanation->candidates));
    explanation->pointers = calloc(count + 1, sizeof(const struct rdmux_candidate *));
    explanation->text = calloc(1, text_size);
    if (explanation->candidates == NULL || explanation->pointers == NULL ||
        explanation->text == NULL) {
        rdmux_explanation_free(&explanation->base);
        return NULL;
    }
    copy_clean(explanation->peer_address, sizeof(explanation->peer_address),
               peer_address != NULL ? peer_address : "");
    explanation->base.size = (uint32_t)sizeof(explanation->base);
    explanation->base.status = (uint32_t)status;
    explanation->base.candidate_count = (uint32_t)count;
    take_candidates(explanation, candidates, count);
    explanation->base.chosen = find_chosen(explanation);
    compose_text(explanation, text_size);
    explanation->base.candidates = explanation->pointers;
    explanation->base.text = explanation->text;
    explanation->base.peer_address = explanation->peer_address;
    return &explanation->base;
}

void rdmux_explanation_free(struct rdmux_explanation *base)
{
    if (base == NULL) {
        return;
    }
    struct explanation *explanation = explanation_from_base(base);
    free(explanation->json);
    free(explanation->text);
    free(explanation->pointers);
    free(explanation->candidates);
    free(explanation);
}

/* ---------------------------------------------------------------------------------------- JSON */

/* A text that grows. After a failed allocation every later addition fails too, so callers check
 * once, at the end. */
struct growing {
    char *text;
    size_t used;
    size_t room;
    bool has_failed;
};

static void add_bytes(struct growing *growing, const char *bytes, size_t length)
{
    if (growing->has_failed) {
        return;
    }
    if (growing->room - growing->used < length + 1) {
        size_t room = 2 * growing->room + length + 1;
        char *text = realloc(growing->text, room);
        if (text == NULL) {
            growing->has_failed = true;
            return;
        }
        growing->text = text;
        growing->room = room;
    }
    memcpy(growing->text + growing->used, bytes, length);
    growing->used += length;
    growing->text[growing->used] = '\0';
}

static void add_text(struct growing *growing, const char *text)
{
    add_bytes(growing, text, strlen(text));
}

/* text was cleaned: only the quote and the backslash need an escape. */
static void add_string(struct growing *growing, const char *text)
{
    add_text(growing, "\"");
    while (*text != '\0') {
        size_t plain = strcspn(text, "\"\\");
        add_bytes(growing, text, plain);
        text += plain;
        if (*text != '\0') {
            char escaped[2] = { '\\', *text };
            add_bytes(growing, escaped, sizeof(escaped));
            text++;
        }
    }
    add_text(growing, "\"");
}

/* Adds the key of any member but an object's first. */
static void add_key(struct growing *growing, const char *key)
{
    add_text(growing, ",\"");
    add_text(growing, key);
    add_text(growing, "\":");
}

static void add_string_member(struct growing *growing, const char *key, const char *value)
{
    add_key(growing, key);
    add_string(growing, value);
}

static void add_number_member(struct growing *growing, const char *key, uint64_t value)
{
    char digits[24];
    (void)snprintf(digits, sizeof(digits), "%" PRIu64, value);
    add_key(growing, key);
    add_text(growing, digits);
}

static void add_bool_member(struct growing *growing, const char *key, bool value)
{
    add_key(growing, key);
    add_text(growing, value ? "true" : "false");
}

/* The figures with which a side offers a path; null if it does not have the path. */
static void add_side_member(struct growing *growing, const char *key, bool has_path,
                            uint64_t latency_ns, uint64_t bandwidth)
{
    char figures[80];
    (void)snprintf(figures, sizeof(figures),
                   "{\"latency_ns\":%" PRIu64 ",\"bandwidth\":%" PRIu64 "}", latency_ns, bandwidth);
    add_key(growing, key);
    add_text(growing, has_path ? figures : "null");
}

static void add_capabilities_member(struct growing *growing, const char *key, uint64_t capabilities)
{
    add_key(growing, key);
    const char *before = "[";
    for (size_t i = 0; i < CAPABILITY_COUNT; i++) {
        if ((capabilities & UINT64_C(1) << i) != 0) {
            add_text(growing, before);
            add_string(growing, capability_names[i]);
            before = ",";
        }
    }
    add_text(growing, before[0] == '[' ? "[]" : "]");
}

static void add_path_members(struct growing *growing, const struct rdmux_candidate *candidate)
{
    add_text(growing, "{\"provider\":");
    add_string(growing, candidate->provider);
    add_string_member(growing, "device", candidate->device);
    add_string_member(growing, "peer_device", candidate->peer_device);
}

static void add_quality_members(struct growing *growing, const struct rdmux_candidate *candidate)
{
    add_capabilities_member(growing, "native", candidate->native);
    add_capabilities_member(growing, "emulated", candidate->emulated);
}

static void add_security_member(struct growing *growing, const struct rdmux_candidate *candidate)
{
    add_string_member(growing, "security",
                      rdmux_security_name((enum rdmux_security)candidate->security));
}

static void add_chosen(struct growing *growing, const struct rdmux_candidate *candidate)
{
    add_path_members(growing, candidate);
    add_security_member(growing, candidate);
    add_quality_members(growing, candidate);
    add_text(growing, "}");
}

static void add_candidate(struct growing *growing, const struct rdmux_candidate *candidate)
{
    add_path_members(growing, candidate);
    add_string_member(growing, "stage", rdmux_stage_name((enum rdmux_stage)candidate->stage));
    add_string_member(growing, "reason", rdmux_reason_name((enum rdmux_reason)candidate->reason));
    add_string_member(growing, "text", candidate->text);
    add_string_member(growing, "hint", candidate->hint);
    add_security_member(growing, candidate);
    add_number_member(growing, "cost_ns", candidate->cost_ns);
    add_number_member(growing, "rank", candidate->rank);
    add_quality_members(growing, candidate);
    add_bool_member(growing, "software", candidate->software != 0);
    add_bool_member(growing, "measured", candidate->measured != 0);
    add_side_member(growing, "here", (candidate->sides & RDMUX_SIDE_HERE) != 0,
                    candidate->latency_ns, candidate->bandwidth);
    add_side_member(growing, "peer", (candidate->sides & RDMUX_SIDE_PEER) != 0,
                    candidate->peer_latency_ns, candidate->peer_bandwidth);
    add_text(growing, "}");
}

/* NULL: out of memory. */
static char *compose_json(const struct rdmux_explanation *base)
{
    struct growing growing = { .text = NULL };
    add_text(&growing, "{\"status\":");
    add_string(&growing, rdmux_status_name((enum rdmux_status)base->status));
    add_key(&growing, "chosen");
    if (base->chosen == UINT32_MAX) {
        add_text(&growing, "null");
    } else {
        add_chosen(&growing, base->candidates[base->chosen]);
    }
    add_key(&growing, "candidates");
    add_text(&growing, "[");
    for (uint32_t i = 0; i < base->candidate_count; i++) {
        add_text(&growing, i == 0 ? "" : ",");
        add_candidate(&growing, base->candidates[i]);
    }
    add_text(&growing, "]");
    add_string_member(&growing, "text", base->text);
    add_string_member(&growing, "peer_address", base->peer_address);
    add_text(&growing, "}");
    if (growing.has_failed) {
        free(growing.text);
        return NULL;
    }
    return growing.text;
}

enum rdmux_status rdmux_explanation_json(struct rdmux_explanation *base, const char **out)
{
    if (out != NULL) {
        *out = NULL;
    }
    if (base == NULL || out == NULL) {
        rdmux_provider_error("explanation: %s is NULL", base == NULL ? "the explanation" : "out");
        return RDMUX_INVALID;
    }
    struct explanation *explanation = explanation_from_base(base);
    if (explanation->json == NULL) {
        explanation->json = compose_json(base);
    }
    if (explanation->json == NULL) {
        rdmux_provider_error("explanation: no memory for the JSON of %" PRIu32 " candidates",
                             base->candidate_count);
        return RDMUX_NO_MEMORY;
    }
    *out = explanation->json;
    return RDMUX_OK;
}
