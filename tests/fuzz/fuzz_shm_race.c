/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A hostile peer that writes to the shared segment while the victim reads it. While the victim's
 * code runs, its mapping of the segment's words, slots and published receives is inaccessible: each
 * access stops in SIGSEGV and then executes alone, in the processor's single step. After it the
 * script may change the bytes that were read, or bytes near them, through the peer's mapping of the
 * same pages. So the peer can interleave at every machine instruction that touches shared memory,
 * on one thread, the same in each run.
 *
 * In addition to the checks of other targets, no field of a slot or of a published receive may be
 * read twice in one call, and no field at all of the slots that the victim itself produces. So code
 * that checks one copy and uses another is found even if the script changes nothing. The bytes of a
 * message inside its slot are the exception: they are the application's, no decision here depends
 * on them, and they are copied in pieces that overlap (shm_copy_small()).
 *
 * Byte 0 is the number of races that follow, 4 bytes each; the rest is as for fuzz_shm_ring.c. Only
 * x86-64 has the single step; elsewhere the races are left out.
 */
#include "driver.h"

#include "tests/fuzz/shm_victim.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

enum {
    RACES_MAX = 16,
    READS_MAX = 4096,
    TRAP_FLAG = 0x100, /* a processor flag: trap after the next instruction */
    WROTE = 1 << 1,    /* a bit of the error code of a page fault */
    SLOTS_SIZE = offsetof(struct shm_direction, data),
};

/* A write of the peer after an access of the victim. */
struct race {
    uint8_t gap;   /* accesses since the previous race */
    uint8_t where; /* 0: to the bytes read; else a distance in words, before or after them */
    uint8_t width; /* 1, 2, 4, 8 bytes */
    uint8_t value;
};

struct read {
    const uint8_t *at;
    uintptr_t by; /* address of the instruction */
};

/* The running victim. Global, because the signal handlers use it. */
static struct {
    uint8_t *base;     /* the victim's mapping, NULL: none is guarded */
    uint8_t *alias;    /* the peer's mapping */
    bool closed;       /* the victim's pages cannot be accessed */
    const uint8_t *at; /* the address accessed now */
    struct race races[RACES_MAX];
    size_t race_count;
    size_t race_next;
    uint32_t gap;
    struct read reads[READS_MAX];
    size_t read_count;
    size_t slot;    /* offset of the slot whose kind the victim read last */
    uint8_t kind;   /* the kind read there */
    bool is_inline; /* by the header that the victim read, that slot's message is in its body */
} scene;

#if defined(__x86_64__)

static struct sigaction before_segv;

/* Protects the guarded pages: all but the rings' bytes, which the victim only copies. */
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

/* Tells whether the byte is in a slot or published receive, behind its first word, which may be
 * read at any time; and whether the victim is the reader of that place. */
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

/* Tells whether the byte is of a message inside its slot; such bytes may be copied in any steps. */
static bool is_body(size_t offset)
{
    return (offset - SHM_PAGE) % SHM_LINE >= offsetof(struct shm_slot, body);
}

/* Notes the field of a slot's header that the victim is about to read, as it decides what the body
 * is. No write comes between this read and the victim's. */
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

/* Tells whether the byte belongs to a message of the application. */
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
        /* libc's copies may read a piece twice, in successive instructions. */
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

/* Makes the peer write. */
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
        /* A real fault: the previous handler gets it when the instruction runs again. */
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
