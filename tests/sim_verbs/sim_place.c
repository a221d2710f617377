/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bytes in flight into memory. A device may have acknowledged them and still hold them. A rule
 * makes them visible (a later completion polled, a later read or atomic, the end of the region), or
 * time does, if the world's "visible" allows it.
 */
#include "sim_place.h"

#include "sim_device.h"
#include "sim_macros.h"
#include "sim_options.h"
#include "sim_packet.h"
#include "sim_queue.h"
#include "sim_verbs.h"
#include "sim_world.h"

#include <string.h>

/* ---------------------------------------------------------------------------- a device's access */

#ifdef __has_feature
#define SIM_HAS_FEATURE(feature) __has_feature(feature)
#else
#define SIM_HAS_FEATURE(feature) 0
#endif

#if defined(__SANITIZE_THREAD__) || SIM_HAS_FEATURE(thread_sanitizer)

void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

/* A device's memory access belongs to no thread: programs learn of its end in ways invisible to the
 * sanitizer, for example through another process. */
static void access_begin(void)
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static void access_end(void)
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

#else

static void access_begin(void)
{
}

static void access_end(void)
{
}

#endif

static void access_memory(void *to, const void *from, size_t length)
{
    access_begin();
    memcpy(to, from, length);
    access_end();
}

/* --------------------------------------------------------------------------------- gather lists */

void sim_bytes_add(struct sim_bytes *bytes, void *base, size_t length)
{
    if (length > 0) {
        bytes->pieces[bytes->count].iov_base = base;
        bytes->pieces[bytes->count].iov_len = length;
        bytes->count++;
    }
}

size_t sim_bytes_length(const struct sim_bytes *bytes)
{
    size_t length = 0;
    for (int i = 0; i < bytes->count; i++) {
        length += bytes->pieces[i].iov_len;
    }
    return length;
}

void sim_bytes_cut(const struct sim_bytes *from, uint64_t offset, uint64_t length,
                   struct sim_bytes *out)
{
    out->count = 0;
    for (int i = 0; i < from->count && length > 0; i++) {
        size_t here = from->pieces[i].iov_len;
        if (offset >= here) {
            offset -= here;
            continue;
        }
        size_t taken = here - offset < length ? here - offset : length;
        sim_bytes_add(out, (char *)from->pieces[i].iov_base + offset, taken);
        length -= taken;
        offset = 0;
    }
}

void sim_bytes_copy_out(const struct sim_bytes *bytes, uint8_t *out)
{
    for (int i = 0; i < bytes->count; i++) {
        access_memory(out, bytes->pieces[i].iov_base, bytes->pieces[i].iov_len);
        out += bytes->pieces[i].iov_len;
    }
}

/* ----------------------------------------------------------------------------------- placements */

static void apply(struct sim_placement *placement)
{
    struct sim_world *world = placement->qp->world;
    sim_cancel(world, &placement->event);
    access_memory(placement->target, placement->bytes, placement->length);
    world->counters.placed_late++;
    sim_trace(world, SIM_TRACE_PLACE, sim_qp_num(placement->qp), placement->length);
    sim_free(placement);
}

static bool overlaps(const struct sim_placement *one, const struct sim_placement *other)
{
    return one->target < other->target + other->length && other->target < one->target + one->length;
}

/* Does a due placement between this one and the end of the list cover the same bytes? */
static bool is_under(const struct sim_placement *placement)
{
    for (const struct sim_placement *at = placement->next; at != NULL; at = at->next) {
        if (at->due && overlaps(placement, at)) {
            return true;
        }
    }
    return false;
}

/* Writes of one queue pair to the same bytes keep their order: placements under a due one are due
 * too, and so are those under them. */
static void mark_due(struct sim_placement *first, struct sim_placement *due)
{
    bool more = true;
    due->due = true;
    while (more) {
        more = false;
        for (struct sim_placement *at = first; at != due; at = at->next) {
            if (!at->due && is_under(at)) {
                at->due = true;
                more = true;
            }
        }
    }
}

static void placement_run(struct sim_event *event)
{
    struct sim_placement *due = SIM_OUTER(struct sim_placement, event, event);
    struct sim_placement **at = &due->qp->placements;
    mark_due(*at, due);
    while (*at != NULL) {
        struct sim_placement *placement = *at;
        if (placement->due) {
            *at = placement->next;
            apply(placement);
        } else {
            at = &placement->next;
        }
    }
}

void sim_place_until(struct sim_qp *qp, uint64_t serial)
{
    while (qp->placements != NULL && qp->placements->serial < serial) {
        struct sim_placement *placement = qp->placements;
        qp->placements = placement->next;
        qp->world->counters.placed_forced++;
        apply(placement);
    }
}

void sim_place_all(struct sim_qp *qp)
{
    sim_place_until(qp, SIM_FOREVER);
}

void sim_place_device(struct sim_device *device)
{
    struct sim_host *host = device->host;
    for (uint32_t i = 0; i < host->qps_room; i++) {
        if (host->qps[i] != NULL && host->qps[i]->device == device) {
            sim_place_all(host->qps[i]);
        }
    }
    sim_atomics_flush(device);
}

static void hold(struct sim_qp *qp, uint8_t *target, const struct sim_bytes *bytes, size_t length)
{
    struct sim_world *world = qp->world;
    struct sim_placement *placement = sim_alloc(world, sizeof(*placement) + length);
    if (placement == NULL) {
        sim_place_all(qp); /* earlier placements precede these bytes */
        sim_bytes_copy_out(bytes, target);
        return;
    }
    placement->qp = qp;
    placement->serial = qp->place_serial++;
    placement->target = target;
    placement->length = length;
    sim_bytes_copy_out(bytes, placement->bytes);
    struct sim_placement **at = &qp->placements;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = placement;
    if (world->options.visible != SIM_FOREVER) {
        sim_schedule(world, &placement->event, sim_chance(world, world->options.visible + 1),
                     placement_run);
    }
}

/* Splits bytes into up to four slices, each with its own time. */
static void hold_scattered(struct sim_qp *qp, uint8_t *target, const struct sim_bytes *bytes,
                           size_t length)
{
    size_t at = 0;
    for (int slice = 0; slice < 4 && at < length; slice++) {
        size_t rest = length - at;
        size_t taken = slice == 3 ? rest : 1 + sim_chance(qp->world, rest);
        struct sim_bytes part;
        sim_bytes_cut(bytes, at, taken, &part);
        hold(qp, target + at, &part, taken);
        at += taken;
    }
}

void sim_place(struct sim_qp *qp, void *target, const struct sim_bytes *bytes)
{
    const struct sim_world_options *options = &qp->world->options;
    if (options->visible == 0 || qp->device->options.data_in_order) {
        sim_bytes_copy_out(bytes, target);
        return;
    }
    size_t length = sim_bytes_length(bytes);
    if (length == 0) {
        return;
    }
    if (options->scatter) {
        hold_scattered(qp, target, bytes, length);
    } else {
        hold(qp, target, bytes, length);
    }
}

void sim_place_word(struct sim_qp *qp, void *target, uint64_t word)
{
    struct sim_bytes bytes = { .count = 0 };
    sim_bytes_add(&bytes, &word, sizeof(word));
    sim_place(qp, target, &bytes);
}

/* -------------------------------------------------------------------------------------- atomics */

/*
 * A word that the adapter works on. With IBV_ATOMIC_HCA it need not read memory again before it
 * writes the word back: the CPU's changes meanwhile are lost.
 */
struct sim_atomic {
    struct sim_event event;
    struct sim_atomic *next;
    struct sim_device *device;
    uint64_t *word;
    uint64_t value;
};

static void atomic_end(struct sim_atomic *atomic)
{
    struct sim_atomic **at = &atomic->device->atomics;
    while (*at != atomic) {
        at = &(*at)->next;
    }
    *at = atomic->next;
    sim_cancel(atomic->device->world, &atomic->event);
    access_begin();
    __atomic_store_n(atomic->word, atomic->value, __ATOMIC_SEQ_CST);
    access_end();
    sim_free(atomic);
}

static void atomic_run(struct sim_event *event)
{
    atomic_end(SIM_OUTER(struct sim_atomic, event, event));
}

void sim_atomics_flush(struct sim_device *device)
{
    while (device->atomics != NULL) {
        atomic_end(device->atomics);
    }
}

static struct sim_atomic *atomic_begin(struct sim_device *device, uint64_t *word)
{
    struct sim_world *world = device->world;
    for (struct sim_atomic *at = device->atomics; at != NULL; at = at->next) {
        if (at->word == word) {
            return at;
        }
    }
    if (device->options.atomics != IBV_ATOMIC_HCA || world->options.atomic_gap == 0) {
        return NULL;
    }
    struct sim_atomic *atomic = sim_alloc(world, sizeof(*atomic));
    if (atomic != NULL) {
        atomic->device = device;
        atomic->word = word;
        atomic->value = __atomic_load_n(word, __ATOMIC_SEQ_CST);
        atomic->next = device->atomics;
        device->atomics = atomic;
        sim_schedule(world, &atomic->event, sim_chance(world, world->options.atomic_gap + 1),
                     atomic_run);
    }
    return atomic;
}

static uint64_t atomic_in_memory(void *memory, bool add, uint64_t compare_add, uint64_t swap)
{
    uint64_t *word = memory;
    if (add) {
        return __atomic_fetch_add(word, compare_add, __ATOMIC_SEQ_CST);
    }
    uint64_t original = compare_add;
    (void)__atomic_compare_exchange_n(word, &original, swap, false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST);
    return original;
}

uint64_t sim_atomic(struct sim_device *device, void *word, enum ibv_wr_opcode opcode,
                    uint64_t compare_add, uint64_t swap)
{
    bool add = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    struct sim_atomic *held = atomic_begin(device, word);
    uint64_t original;
    if (held == NULL) {
        access_begin();
        original = atomic_in_memory(word, add, compare_add, swap);
        access_end();
        return original;
    }
    original = held->value;
    uint64_t swapped = original == compare_add ? swap : original;
    held->value = add ? original + compare_add : swapped;
    return original;
}
