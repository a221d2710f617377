/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A hostile peer that writes to the shared segment while the victim looks at it. The victim's mapping of
 * the segment's words, slots and published receives cannot be accessed while its code runs: each access
 * stops in SIGSEGV, is let through alone (by the processor's single step), and behind it the script may
 * change what was read, or something near, by the peer's mapping of the same pages. So every machine
 * instruction that touches shared memory is a place where the peer can be just then, on one thread, the
 * same in each run.
 *
 * Besides what other targets look for, no field of a slot or of a published receive may be read twice in
 * one call, and nothing at all of the slots that the victim itself produces: whoever checks one copy and
 * uses another is found even where the script changes nothing. The bytes of a message that stands in its
 * slot are the exception: they are the application's, nothing here decides by them, and they are copied in
 * pieces that overlap (shm_copy_small()).
 *
 * Byte 0 says how many races follow, 4 bytes each; the rest is as fuzz_shm_ring.c's. Where the processor
 * is no x86-64 there is no single step, and the races are left out.
 */
#include "driver.h"

#include "tests/fuzz/shm_victim.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

enum {
    RACES_MAX = 16,
    READS_MAX = 4096,
    TRAP_FLAG = 0x100, /* of the processor's flags: a trap behind the next instruction */
    WROTE = 1 << 1,    /* of a page fault's error code */
    SLOTS_SIZE = offsetof(struct shm_direction, data),
};

/* What the peer does behind an access of the victim. */
struct race {
    uint8_t gap;   /* accesses since the one before */
    uint8_t where; /* 0: to what was read; else that many 4 byte words from there, both ways */
    uint8_t width; /* 1, 2, 4, 8 bytes */
    uint8_t value;
};

struct read {
    const uint8_t *at;
    uintptr_t by; /* the instruction */
};

/* Of the victim that runs; used by the handlers, which is why it is global. */
static struct {
    uint8_t *base;     /* the victim's mapping, NULL: none is guarded */
    uint8_t *alias;    /* the peer's */
    bool closed;       /* the victim's pages cannot be accessed */
    const uint8_t *at; /* accessed now */
    struct race races[RACES_MAX];
    size_t race_count;
    size_t race_next;
    uint32_t gap;
    struct read reads[READS_MAX];
    size_t read_count;
    size_t slot;    /* of the kind that the victim read last, as an offset */
    uint8_t kind;   /* what it was */
    bool is_inline; /* that slot's message stands in its body, by what the victim read */
} scene;

#if defined(__x86_64__)

static struct sigaction before_segv;

/* Pages that are guarded: all but the rings' bytes, which are no more than copied. */
static void protect(int protection)
{
    size_t first = SHM_PAGE + SLOTS_SIZE;
    uint8_t *second = scene.base + offsetof(struct shm_segment, directions[1]);
    static_assert(SLOTS_SIZE % SHM_PAGE == 0, "whole pages");
    if (mprotect(scene.base, first, protection) != 0 ||
        mprotect(second, SLOTS_SIZE, protection) != 0) {
        abort();
    }
    scene.closed = protection == PROT_NONE;
}

extern const char __executable_start;
extern const char etext;

static bool is_ours(uintptr_t code)
{
    return code >= (uintptr_t)&__executable_start && code < (uintptr_t)&etext;
}

/* The byte's place in a slot or published receive, whose first word may be read at any time; and whether the
 * victim is the one who reads there. False: it is another of the segment's words. */
static bool is_field(size_t offset, bool *for_victim)
{
    if (offset < SHM_PAGE) {
        return false;
    }
    size_t direction = (offset - SHM_PAGE) / sizeof(struct shm_direction);
    size_t within = (offset - SHM_PAGE) % sizeof(struct shm_direction);
    bool slot = within < offsetof(struct shm_direction, receives);
    /* The connector, 0, produces slots in direction 0, and reads receives there. */
    *for_victim = slot == (direction == 0);
    size_t line = within % SHM_LINE;
    return slot ? line >= sizeof(uint32_t) : line >= sizeof(uint64_t);
}

/* The bytes of a message that stands in a slot itself are copied once, in what steps the copy likes. */
static bool is_body(size_t offset)
{
    return (offset - SHM_PAGE) % SHM_LINE >= offsetof(struct shm_slot, body);
}

/* What the victim is about to read of a slot's header tells it what the body is. Nothing writes between
 * this look and the victim's. */
static void note_header(size_t offset)
{
    size_t slot = offset - offset % SHM_LINE;
    const uint8_t *field = scene.alias + offset;
    if (offset - slot == offsetof(struct shm_slot, kind)) {
        scene.slot = slot;
        scene.kind = *field;
        scene.is_inline = false;
    } else if (offset - slot == offsetof(struct shm_slot, chunk) && slot == scene.slot) {
        uint32_t chunk;
        memcpy(&chunk, field, sizeof(chunk));
        scene.is_inline = scene.kind == SHM_SEND && chunk == 0;
    }
}

/* Is this a byte of a message of the application? */
static bool is_application_data(size_t offset)
{
    return scene.is_inline && is_body(offset) && offset - offset % SHM_LINE == scene.slot;
}

static void note_read(uintptr_t by)
{
    size_t offset = (size_t)(scene.at - scene.base);
    bool for_victim = false;
    if (!is_field(offset, &for_victim)) {
        return;
    }
    if (!for_victim) {
        (void)fprintf(stderr, "fuzz_shm_race: reads what it wrote for the peer, offset %zu\n",
                      offset);
        abort();
    }
    note_header(offset);
    if (is_application_data(offset)) {
        return;
    }
    for (size_t i = 0; i < scene.read_count; i++) {
        /* libc's copies may read a piece twice, one instruction behind the other. */
        bool copy = i + 1 == scene.read_count && !is_ours(by) && !is_ours(scene.reads[i].by);
        if (scene.reads[i].at == scene.at && !copy) {
            (void)fprintf(stderr, "fuzz_shm_race: read twice in one call: offset %zu, %s %zu\n",
                          offset, is_body(offset) ? "body byte" : "byte", offset % SHM_LINE);
            abort();
        }
    }
    if (scene.read_count < READS_MAX) {
        scene.reads[scene.read_count++] = (struct read){ scene.at, by };
    }
}

/* The peer writes. */
static void run_race(void)
{
    static const uint64_t values[] = {
        0,      1,      2,      3,      8,          47,         48,  49,         0xff,
        0x3fff, 0x4000, 0x4001, 0xffff, 0x7fffffff, 0xffffffff, 256, UINT64_MAX, UINT64_MAX - 8
    };
    if (scene.race_next >= scene.race_count) {
        return;
    }
    const struct race *race = &scene.races[scene.race_next];
    if (scene.gap++ < race->gap) {
        return;
    }
    scene.gap = 0;
    scene.race_next++;
    size_t offset = (size_t)(scene.at - scene.base);
    offset = (offset + (size_t)((int8_t)race->where * 4)) % SHM_PAGE + offset / SHM_PAGE * SHM_PAGE;
    uint64_t value = race->value < 0x80 ? values[race->value % (sizeof(values) / sizeof(values[0]))]
                                        : (uint64_t)race->value - 0x80;
    size_t width = (size_t)1 << race->width % 4;
    offset -= offset % width;
    memcpy(scene.alias + offset, &value, width);
}

static void on_access(int number, siginfo_t *info, void *context)
{
    ucontext_t *state = context;
    uint8_t *at = info->si_addr;
    if (scene.base == NULL || !scene.closed || at < scene.base ||
        at >= scene.base + sizeof(struct shm_segment)) {
        /* A real one: whoever was there before deals with it, when the instruction is met again. */
        (void)sigaction(number, &before_segv, NULL);
        return;
    }
    scene.at = at;
    if ((state->uc_mcontext.gregs[REG_ERR] & WROTE) == 0) {
        note_read((uintptr_t)state->uc_mcontext.gregs[REG_RIP]);
    }
    protect(PROT_READ | PROT_WRITE);
    state->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void on_step(int number, siginfo_t *info, void *context)
{
    ucontext_t *state = context;
    (void)number;
    (void)info;
    state->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    if (scene.base != NULL) {
        run_race();
        protect(PROT_NONE);
    }
}

static void catch_accesses(void)
{
    static bool caught;
    struct sigaction access = { .sa_sigaction = on_access, .sa_flags = SA_SIGINFO | SA_NODEFER };
    struct sigaction one_step = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO };
    if (!caught) {
        fake_expect(sigaction(SIGSEGV, &access, &before_segv) == 0);
        fake_expect(sigaction(SIGTRAP, &one_step, NULL) == 0);
        caught = true;
    }
}

static void close_pages(struct victim *victim)
{
    catch_accesses();
    scene.base = (uint8_t *)victim->ep->segment;
    scene.alias = (uint8_t *)victim->pair->ends[0].ep->segment;
    scene.read_count = 0;
    scene.is_inline = false;
    protect(PROT_NONE);
}

static void open_pages(struct victim *victim)
{
    (void)victim;
    protect(PROT_READ | PROT_WRITE);
    scene.base = NULL;
}

#else

static void close_pages(struct victim *victim)
{
    (void)victim;
}

static void open_pages(struct victim *victim)
{
    (void)victim;
}

#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size < 512 ? size : 512 };
    scene.race_count = (size_t)take(&in, 1) % (RACES_MAX + 1);
    scene.race_next = 0;
    scene.gap = 0;
    for (size_t i = 0; i < scene.race_count; i++) {
        scene.races[i] = (struct race){ .gap = (uint8_t)take(&in, 1),
                                        .where = (uint8_t)take(&in, 1),
                                        .width = (uint8_t)take(&in, 1),
                                        .value = (uint8_t)take(&in, 1) };
    }
    struct victim *victim = victim_open(close_pages, open_pages);
    victim_run(victim, &in);
    scene.race_count = 0; /* the end is as quiet as the peer left it */
    victim_close(victim);
    return 0;
}
