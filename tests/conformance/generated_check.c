/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Memory against its model, and the rule that a wrong byte breaks. */
#include "generated_stage.h"
#include "rules.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 1024 };

/* -------------------------------------------------------------------------------- failure texts */

static const char *cited(const struct stage *stage, const char *rule)
{
    const struct rule *found = rule_find(rule, strlen(rule));
    const struct conformance_case test = { .rule = stage->rules };
    return found != NULL && case_cites(&test, found) ? rule : "1.1";
}

const char *wanted_text(const struct wanted *wanted)
{
    static char text[TEXT_MAX];
    static const char *const roles[] = { "before it: ", "", "behind it: " };
    char place[96] = "";
    if (wanted->remote < REMOTE_KINDS) {
        (void)snprintf(place, sizeof(place), " at offset %" PRIu64 " of region %u", wanted->offset,
                       wanted->remote);
    }
    const uint32_t flags = wanted->flags;
    (void)snprintf(text, sizeof(text), "%s%s of %zu bytes%s%s%s%s%s%s", roles[wanted->role],
                   rdmux_wc_opcode_name(wanted_opcode(wanted)), wanted->length, place,
                   (flags & RDMUX_INLINE) != 0 ? ", INLINE" : "",
                   (flags & RDMUX_PLACED) != 0 ? ", PLACED" : "",
                   (flags & RDMUX_UNSIGNALED) != 0 ? ", UNSIGNALED" : "",
                   (flags & RDMUX_FENCE) != 0 ? ", FENCE" : "",
                   (flags & RDMUX_MORE) != 0 ? ", MORE" : "");
    return text;
}

_Noreturn void rule_broken(const struct stage *stage, const char *rule, const struct wanted *wanted,
                           const char *format, ...)
{
    char came[TEXT_MAX];
    char row[TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(came, sizeof(came), format, arguments);
    va_end(arguments);
    row_describe(&stage->row, row, sizeof(row));
    rule = cited(stage, rule);
    FAIL("%s\n" BROKEN_RULE "%s: %s\nasked: %s%srow: %s", came, rule,
         rule_find(rule, strlen(rule))->title, wanted == NULL ? "" : wanted_text(wanted),
         wanted == NULL ? "" : "\n", row);
}

/* Returns the rule that says when the request's bytes must be placed. */
static const char *rule_of_bytes(const struct stage *stage, const struct wanted *wanted)
{
    if (wanted_is_atomic(wanted)) {
        return "2.11";
    }
    if (wanted->op == RDMUX_OP_WRITE_IMM) {
        return "2.5";
    }
    switch (stage->row.values[DIM_PROOF]) {
    case PROOF_SEND:
        return "2.3";
    case PROOF_WRITE_IMM:
        return "2.4";
    case PROOF_READ:
    case PROOF_ATOMIC:
        return "2.6";
    default:
        return (wanted->flags & RDMUX_PLACED) != 0 && wanted_is_signaled(wanted) ? "3.4" : "1.9";
    }
}

/* A wrong byte's value sometimes shows the cause. */
static const char *rule_of_wrong_byte(const struct wanted *wanted, uint8_t came, const char *rule)
{
    if (came == BYTE_INLINE && (wanted->flags & RDMUX_INLINE) != 0) {
        return "1.14";
    }
    if (came == BYTE_FREE) {
        return "3.1";
    }
    return wanted->role == ROLE_SUBJECT && wanted->list >= LIST_TWO ? "1.13" : rule;
}

/* --------------------------------------------------------------------- the regions of this side */

/* Applies the peer's requests up to this one to the model of this side's regions. */
static void apply_up_to(struct stage *stage, const struct wanted *last)
{
    while (stage->in_applied < stage->in.count) {
        const struct wanted *wanted = &stage->in.requests[stage->in_applied];
        if (last != NULL && wanted > last) {
            return;
        }
        uint64_t found = 0;
        uint64_t expects = 0;
        if (wanted->answer == RDMUX_OK && wanted->remote < REMOTE_KINDS) {
            (void)wanted_apply(wanted, stage->model[wanted->remote], &found, &expects);
        }
        stage->in_applied++;
    }
}

/* Returns whether a request behind this write may have changed its bytes: a request behind `last`,
 * or an atomic, which a later message does not wait for. */
static bool is_changed_again(const struct stage *stage, const struct wanted *write,
                             const struct wanted *last)
{
    const struct wanted *end = stage->in.requests + stage->in.count;
    for (const struct wanted *later = write + 1; later < end; later++) {
        if (later->op != RDMUX_OP_READ && later->remote == write->remote &&
            later->offset < write->offset + write->length &&
            write->offset < later->offset + later->length &&
            (later > last || wanted_is_atomic(later))) {
            return true;
        }
    }
    return false;
}

/* Finds the first wrong byte of the writes up to `last`, all of which must be placed. Returns the
 * write, NULL if there is none. */
static const struct wanted *find_missing_write(struct stage *stage, const struct wanted *last,
                                               size_t *at)
{
    apply_up_to(stage, last);
    for (const struct wanted *wanted = stage->in.requests; wanted <= last; wanted++) {
        if (wanted->answer == RDMUX_OK && wanted_is_write(wanted) && wanted->length > 0 &&
            !is_changed_again(stage, wanted, last) &&
            bytes_differ(stage->regions[wanted->remote].addr + wanted->offset,
                         stage->model[wanted->remote] + wanted->offset, wanted->length, at)) {
            return wanted;
        }
    }
    return NULL;
}

void stage_check_writes_before(struct stage *stage, const struct wanted *last)
{
    size_t at = 0;
    const struct wanted *wanted = find_missing_write(stage, last, &at);
    if (wanted != NULL) {
        const uint8_t *bytes = stage->regions[wanted->remote].addr + wanted->offset;
        const uint8_t *model = stage->model[wanted->remote] + wanted->offset;
        const char *rule = wanted == last ? "2.5" : last->op == RDMUX_OP_WRITE_IMM ? "2.4" : "2.3";
        rule_broken(
            stage, rule_of_wrong_byte(wanted, bytes[at], rule), wanted,
            "when the %s behind it was received, byte %zu of the write was 0x%02x, expected "
            "0x%02x",
            last->op == RDMUX_OP_WRITE_IMM ? "write_imm" : "message", at, bytes[at], model[at]);
    }
}

static void check_region(struct stage *stage, size_t region, const char *when)
{
    const uint8_t *bytes = stage->regions[region].addr;
    const uint8_t *model = stage->model[region];
    size_t at = 0;
    if (!bytes_differ(bytes, model, REGION_LENGTH, &at)) {
        return;
    }
    for (size_t i = stage->in.count; i-- > 0;) {
        const struct wanted *wanted = &stage->in.requests[i];
        if (wanted->remote == region && at >= wanted->offset &&
            at < wanted->offset + wanted->length && wanted->op != RDMUX_OP_READ &&
            wanted->answer == RDMUX_OK) {
            rule_broken(stage, rule_of_wrong_byte(wanted, bytes[at], rule_of_bytes(stage, wanted)),
                        wanted, "%s, byte %zu of the region is 0x%02x, expected 0x%02x", when, at,
                        bytes[at], model[at]);
        }
    }
    rule_broken(stage, row_is_refused(&stage->row) ? "6.3" : "3.4", NULL,
                "%s, byte %zu of region %zu is 0x%02x, expected 0x%02x: no request writes there",
                when, at, region, bytes[at], model[at]);
}

void stage_check_regions(struct stage *stage, const char *when)
{
    apply_up_to(stage, NULL);
    for (size_t i = 0; i < REMOTE_KINDS; i++) {
        check_region(stage, i, when);
    }
}

/* --------------------------------------------------------------------------------- local memory */

void stage_check_message(struct stage *stage, const struct receive_slot *slot, const char *when,
                         const char *rule)
{
    static uint8_t bytes[MESSAGE_MOST + 1];
    const struct wanted *message = slot->message;
    size_t at = 0;
    uint8_t came = 0;
    uint8_t wanted = 0;
    if (wanted_is_message(message)) {
        pattern_fill(bytes, message->length, message->seed, 0);
        buffer_expect(&slot->buffer, bytes, message->length);
    }
    if (!buffer_differs(&slot->buffer, &at, &came, &wanted)) {
        return;
    }
    if (!wanted_is_message(message)) {
        rule_broken(stage, "2.7", message,
                    "%s, byte %zu of the receive that it took is 0x%02x, was 0x%02x", when, at,
                    came, wanted);
    }
    if (at >= message->length) {
        rule_broken(stage, "5.2", message,
                    "%s, byte %zu behind the message of %zu bytes is 0x%02x, was "
                    "0x%02x",
                    when, at - message->length, message->length, came, wanted);
    }
    if (stage->row.values[DIM_RECEIVE] == RECEIVE_PIECES && message->list < LIST_TWO) {
        rule = "1.13";
    }
    rule_broken(stage, rule_of_wrong_byte(message, came, rule), message,
                "%s, byte %zu of the message is 0x%02x, expected 0x%02x", when, at, came, wanted);
}

void stage_check_arenas(struct stage *stage)
{
    for (size_t i = 0; i < ARENAS; i++) {
        const struct arena *arena = &stage->arenas[i];
        const size_t end = arena->end - GAP;
        size_t at = 0;
        size_t used = arena->used + GAP;
        bool wrong = bytes_differ(arena->region.addr, arena->shadow, used, &at);
        if (!wrong &&
            bytes_differ(arena->region.addr + end, arena->shadow + end, ARENA_LENGTH - end, &at)) {
            wrong = true;
            at += end;
        }
        if (wrong) {
            rule_broken(
                stage, stage->in.count > 0 ? "5.2" : "3.3", NULL,
                "byte %zu of this side's local memory is 0x%02x, was 0x%02x: no buffer in use was "
                "there",
                at, arena->region.addr[at], arena->shadow[at]);
        }
    }
}

/* ------------------------------------------------------------------ without a call of this side */

/* Receives without a region may be filled as late as when they are polled (3.5). */
void stage_check_unpolled(struct stage *stage)
{
    static const char when[] = "when the peer's completions had reported it as placed";
    const size_t placed = program_placed(&stage->in);
    const struct wanted *last = &stage->in.requests[placed - 1];
    size_t at = 0;
    uint8_t go = 0;
    TAKE(stage->side, &go, sizeof(go));
    if (placed == stage->in.count) {
        stage_check_regions(stage, when);
    } else {
        const struct wanted *wanted = find_missing_write(stage, last, &at);
        if (wanted != NULL) {
            const uint8_t *bytes = stage->regions[wanted->remote].addr + wanted->offset;
            const uint8_t *model = stage->model[wanted->remote] + wanted->offset;
            rule_broken(stage,
                        rule_of_wrong_byte(wanted, bytes[at], wanted == last ? "1.8" : "1.9"),
                        wanted, "%s, byte %zu of the write was 0x%02x, expected 0x%02x", when, at,
                        bytes[at], model[at]);
        }
    }
    /* Some messages may have been received while this side waited for the row to begin. */
    for (size_t i = stage->received;
         i < stage->receive_count && row_receives_in_region(&stage->row) &&
         stage->receives[i].message <= last;
         i++) {
        stage_check_message(stage, &stage->receives[i], when, "3.5");
    }
}
