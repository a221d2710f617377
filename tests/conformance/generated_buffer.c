/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Local memory of a row: buffers in pieces, and the shadow that has their required bytes. */
#include "generated_stage.h"

#include <string.h>

bool bytes_differ(const uint8_t *bytes, const uint8_t *model, size_t length, size_t *at)
{
    if (memcmp(bytes, model, length) == 0) {
        return false;
    }
    *at = 0;
    while (bytes[*at] == model[*at]) {
        ++*at;
    }
    return true;
}

/* --------------------------------------------------------------------------------------- pieces */

struct piece piece_take(struct arena *arena, size_t length)
{
    struct piece piece = { arena, arena->used + GAP, length };
    EXPECT(piece.at + length + GAP + REGION_LENGTH < ARENA_LENGTH,
           "the case is wrong: its buffers do not fit");
    arena->used = piece.at + length;
    return piece;
}

uint8_t *piece_bytes(const struct piece *piece)
{
    return piece->arena->region.addr + piece->at;
}

static uint8_t *piece_shadow(const struct piece *piece)
{
    return piece->arena->shadow + piece->at;
}

/* -------------------------------------------------------------------------------------- buffers */

void buffer_fill(const struct buffer *buffer, uint8_t value)
{
    for (size_t i = 0; i < buffer->count; i++) {
        memset(piece_bytes(&buffer->pieces[i]), value, buffer->pieces[i].length);
        memset(piece_shadow(&buffer->pieces[i]), value, buffer->pieces[i].length);
    }
}

void buffer_pattern(const struct buffer *buffer, uint64_t seed)
{
    size_t done = 0;
    for (size_t i = 0; i < buffer->count; i++) {
        const struct piece *piece = &buffer->pieces[i];
        pattern_fill(piece_shadow(piece), piece->length, seed, done);
        memcpy(piece_bytes(piece), piece_shadow(piece), piece->length);
        done += piece->length;
    }
}

void buffer_expect(const struct buffer *buffer, const uint8_t *bytes, size_t length)
{
    size_t done = 0;
    for (size_t i = 0; i < buffer->count && done < length; i++) {
        const struct piece *piece = &buffer->pieces[i];
        size_t take = piece->length < length - done ? piece->length : length - done;
        memcpy(piece_shadow(piece), bytes + done, take);
        done += take;
    }
}

bool buffer_differs(const struct buffer *buffer, size_t *at, uint8_t *came, uint8_t *wanted)
{
    size_t done = 0;
    for (size_t i = 0; i < buffer->count; i++) {
        const struct piece *piece = &buffer->pieces[i];
        size_t place = 0;
        if (bytes_differ(piece_bytes(piece), piece_shadow(piece), piece->length, &place)) {
            *at = done + place;
            *came = piece_bytes(piece)[place];
            *wanted = piece_shadow(piece)[place];
            return true;
        }
        done += piece->length;
    }
    return false;
}

void buffer_sges(const struct buffer *buffer, struct rdmux_sge sges[PIECES_MAX])
{
    for (size_t i = 0; i < buffer->count; i++) {
        const struct piece *piece = &buffer->pieces[i];
        sges[i] = (struct rdmux_sge){
            .addr = piece_bytes(piece),
            .length = piece->length,
            .mr = piece->arena->region.mr,
        };
    }
}

/* --------------------------------------------------------------------------------- of a request */

static struct arena *arena_of(struct stage *stage, enum local local, size_t index)
{
    switch (local) {
    case LOCAL_REGISTERED:
    case LOCAL_END:
        return &stage->arenas[MEMORY_REGISTERED];
    case LOCAL_ALLOCATED:
        return &stage->arenas[MEMORY_ALLOCATED];
    case LOCAL_MIXED:
        return &stage->arenas[index % ARENAS];
    case LOCAL_PLAIN:
        break;
    }
    return &stage->arenas[MEMORY_UNREGISTERED];
}

/* Determines the lengths of a list's pieces. Returns the number of pieces. */
static size_t piece_lengths(enum list list, size_t length, size_t max_sge, size_t out[PIECES_MAX])
{
    size_t count = 1;
    switch (list) {
    case LIST_CALL:
    case LIST_ONE:
        out[0] = length;
        return 1;
    case LIST_NONE:
        return 0;
    case LIST_EMPTY:
        out[0] = out[2] = out[4] = 0;
        out[1] = length / 3;
        out[3] = length - out[1];
        return 5;
    case LIST_TWO:
        count = 2;
        break;
    case LIST_MOST:
    case LIST_STEEP:
        count = max_sge;
        break;
    case LIST_TOO_LONG:
        count = max_sge + 1;
        break;
    }
    size_t done = 0;
    for (size_t i = 0; i < count; i++) {
        size_t rest = length - done;
        size_t part = list == LIST_STEEP ? rest - rest / 16 : rest / 2 - (rest / 2 > 7 ? i : 0);
        out[i] = i + 1 == count || rest < 2 ? rest : part;
        done += out[i];
    }
    return count;
}

struct buffer buffer_take(struct stage *stage, const struct wanted *wanted)
{
    size_t lengths[PIECES_MAX] = { 0 };
    struct buffer buffer = { .length = wanted->length };
    buffer.count = piece_lengths(wanted->list, wanted->length, stage->limits[0].max_sge, lengths);
    for (size_t i = 0; i < buffer.count; i++) {
        struct arena *arena = arena_of(stage, wanted->local, i);
        const bool aligned = wanted_is_atomic(wanted); /* its result is a word */
        if (wanted->local == LOCAL_END) {
            size_t at = ARENA_LENGTH - lengths[i];
            at = aligned ? at / 8 * 8 : at;
            arena->end = at < arena->end ? at : arena->end;
            buffer.pieces[i] = (struct piece){ arena, at, lengths[i] };
        } else {
            buffer.pieces[i] = piece_take(arena, lengths[i]);
            size_t up = aligned ? 8 - buffer.pieces[i].at % 8 : 0;
            arena->used += up;
            buffer.pieces[i].at += up;
        }
    }
    return buffer;
}
