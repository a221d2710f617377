/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* "key=value,key=value": how worlds and devices are described, in calls and in SIM_VERBS. */
#include "sim_options.h"

#include "sim_device.h"
#include "sim_macros.h"
#include "sim_queue.h"
#include "sim_verbs.h"
#include "sim_world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char last_error[256];

const char *sim_error(void)
{
    return last_error;
}

void sim_set_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    (void)vsnprintf(last_error, sizeof(last_error), format, arguments);
    va_end(arguments);
}

/* ------------------------------------------------------------------------------ kinds of values */

struct choice {
    const char *name;
    uint64_t value;
};

enum kind { NUMBER, SIZE, TIME, CHOICE, TEXT };

struct option {
    const char *key;
    enum kind kind;
    size_t offset;
    uint64_t max;
    const struct choice *choices; /* of CHOICE; for other kinds, words that stand for numbers */
    size_t text_size;
};

static const struct choice yes_no[] = {
    { "yes", 1 }, { "no", 0 }, { "1", 1 }, { "0", 0 }, { NULL, 0 }
};
static const struct choice clocks[] = { { "virtual", 0 }, { "real", 1 }, { NULL, 0 } };
static const struct choice links[] = {
    { "ib", SIM_IB }, { "roce", SIM_ROCE }, { "iwarp", SIM_IWARP }, { NULL, 0 }
};
static const struct choice likes[] = {
    { "rxe", SIM_LIKE_RXE }, { "hca", SIM_LIKE_HCA }, { "siw", SIM_LIKE_SIW }, { NULL, 0 }
};
static const struct choice mtus[] = { { "256", IBV_MTU_256 },   { "512", IBV_MTU_512 },
                                      { "1024", IBV_MTU_1024 }, { "2048", IBV_MTU_2048 },
                                      { "4096", IBV_MTU_4096 }, { NULL, 0 } };
static const struct choice atomics[] = {
    { "none", IBV_ATOMIC_NONE }, { "hca", IBV_ATOMIC_HCA }, { "glob", IBV_ATOMIC_GLOB }, { NULL, 0 }
};
static const struct choice immediates[] = {
    { "yes", 1 }, { "no", 0 }, { "wrong", SIM_IMMEDIATE_WRONG }, { NULL, 0 }
};
static const struct choice swaps[] = {
    { "yes", 1 }, { "no", 0 }, { "operands", SIM_SWAPPED_OPERANDS }, { NULL, 0 }
};
static const struct choice forced[] = { { "forced", SIM_FOREVER }, { NULL, 0 } };

#define WORLD(key_, kind_, field, max_, choices_)                                 \
    {                                                                             \
        key_, kind_, offsetof(struct sim_world_options, field), max_, choices_, 0 \
    }
#define DEVICE(key_, kind_, field, max_, choices_)                                 \
    {                                                                              \
        key_, kind_, offsetof(struct sim_device_options, field), max_, choices_, 0 \
    }
#define TEXT_OF(key_, type, field)                                                \
    {                                                                             \
        key_, TEXT, offsetof(type, field), 0, NULL, sizeof(((type *)NULL)->field) \
    }

#define MANY ((uint64_t)1 << 31)
#define CENTURY ((uint64_t)3155760000 * 1000000000)

static const struct option world_table[] = {
    WORLD("time", CHOICE, real_time, 1, clocks),
    WORLD("threads", CHOICE, threads, 1, yes_no),
    WORLD("trace", CHOICE, trace, 1, yes_no),
    WORLD("seed", NUMBER, seed, SIM_FOREVER, NULL),
    WORLD("latency", TIME, latency, CENTURY, NULL),
    WORLD("jitter", TIME, jitter, CENTURY, NULL),
    WORLD("bandwidth", SIZE, bandwidth, MANY, NULL),
    WORLD("packet", SIZE, packet, MANY, NULL),
    WORLD("window", NUMBER, window, SIM_WINDOW_MAX, NULL),
    WORLD("step", TIME, step, CENTURY, NULL),
    WORLD("doorbell", TIME, doorbell, CENTURY, NULL),
    WORLD("completion", TIME, completion, CENTURY, NULL),
    WORLD("receipt", TIME, receipt, CENTURY, NULL),
    WORLD("batch", NUMBER, batch, 1024, NULL),
    WORLD("visible", TIME, visible, CENTURY, forced),
    WORLD("scatter", CHOICE, scatter, 1, yes_no),
    WORLD("late_read", NUMBER, late_read, 100, NULL),
    WORLD("late_read_time", TIME, late_read_time, CENTURY, NULL),
    WORLD("late_read_behind", NUMBER, late_read_behind, 1000, NULL),
    WORLD("late_key", CHOICE, late_key, 1, yes_no),
    WORLD("drop", NUMBER, drop, 1000, NULL),
    WORLD("shuffle", CHOICE, shuffle, 1, yes_no),
    WORLD("atomic_gap", TIME, atomic_gap, CENTURY, NULL),
    TEXT_OF("net", struct sim_world_options, net),
    TEXT_OF("fail", struct sim_world_options, fail),
    TEXT_OF("at", struct sim_world_options, at),
};

static const struct option device_table[] = {
    DEVICE("link", CHOICE, link, 0, links),
    DEVICE("like", CHOICE, like, 0, likes),
    DEVICE("mtu", CHOICE, mtu, 0, mtus),
    DEVICE("max_qp", NUMBER, limits.max_qp, 1 << SIM_SLOT_BITS, NULL),
    DEVICE("max_qp_wr", NUMBER, limits.max_qp_wr, 1 << 20, NULL),
    DEVICE("max_sge", NUMBER, limits.max_sge, SIM_SGES_MAX, NULL),
    DEVICE("max_sge_rd", NUMBER, limits.max_sge_rd, SIM_SGES_MAX, NULL),
    DEVICE("max_cq", NUMBER, limits.max_cq, 1 << 20, NULL),
    DEVICE("max_cqe", NUMBER, limits.max_cqe, 1 << 24, NULL),
    DEVICE("max_mr", NUMBER, limits.max_mr, 1 << 23, NULL),
    DEVICE("max_mr_size", SIZE, limits.max_mr_size, SIM_FOREVER, NULL),
    DEVICE("max_pd", NUMBER, limits.max_pd, 1 << 20, NULL),
    DEVICE("max_srq", NUMBER, limits.max_srq, 1 << 20, NULL),
    DEVICE("max_srq_wr", NUMBER, limits.max_srq_wr, 1 << 20, NULL),
    DEVICE("max_srq_sge", NUMBER, limits.max_srq_sge, SIM_SGES_MAX, NULL),
    DEVICE("max_rd_atomic", NUMBER, limits.max_rd_atomic, SIM_WINDOW_MAX, NULL),
    DEVICE("max_init_rd_atomic", NUMBER, limits.max_init_rd_atomic, SIM_WINDOW_MAX, NULL),
    DEVICE("max_inline", SIZE, limits.max_inline, 4096, NULL),
    DEVICE("max_msg", SIZE, limits.max_msg, UINT32_MAX, NULL),
    DEVICE("vectors", NUMBER, vectors, 64, NULL),
    DEVICE("pkeys", NUMBER, pkeys, SIM_PKEYS, NULL),
    DEVICE("atomics", CHOICE, atomics, 0, atomics),
    DEVICE("immediate", CHOICE, immediate, 0, immediates),
    DEVICE("wr_api", CHOICE, wr_api, 0, yes_no),
    DEVICE("cq_ex", CHOICE, cq_ex, 0, yes_no),
    DEVICE("data_in_order", CHOICE, data_in_order, 0, yes_no),
    DEVICE("round_up", CHOICE, round_up, 0, yes_no),
    DEVICE("stale", CHOICE, stale, 0, yes_no),
    DEVICE("reuse", CHOICE, reuse, 0, yes_no),
    DEVICE("unordered_reads", CHOICE, unordered_reads, 0, yes_no),
    DEVICE("solicited", CHOICE, solicited, 0, yes_no),
    DEVICE("active_first", CHOICE, active_first, 0, yes_no),
    DEVICE("gid_ifindex", CHOICE, gid_ifindex, 0, yes_no),
    DEVICE("fork_needed", CHOICE, fork_needed, 0, yes_no),
    DEVICE("loopback", CHOICE, loopback, 0, yes_no),
    DEVICE("swapped", CHOICE, swapped, 0, swaps),
    DEVICE("inline_right", CHOICE, inline_right, 0, yes_no),
    DEVICE("nothing_needs_key", CHOICE, nothing_needs_key, 0, yes_no),
    DEVICE("dmabuf", CHOICE, dmabuf, 0, yes_no),
    DEVICE("mute_refusals", CHOICE, mute_refusals, 0, yes_no),
    DEVICE("swallow", TIME, swallow, CENTURY, NULL),
    TEXT_OF("name", struct sim_device_options, name),
    TEXT_OF("addr", struct sim_device_options, addr),
    TEXT_OF("netdev", struct sim_device_options, netdev),
};

/* Several options in one word. */
static const struct preset {
    const char *word;
    const char *options;
} presets[] = {
    /* Every liberty that the specifications allow, in amounts that tests notice. */
    { "freedoms=all", "latency=2us,jitter=3us,packet=1k,doorbell=1us,completion=3us,batch=4,"
                      "visible=20us,scatter=yes,"
                      "late_read=50,late_read_time=20us,shuffle=yes,atomic_gap=20us" },
    /* Nothing becomes visible before a rule demands it. */
    { "freedoms=lazy",
      "latency=2us,jitter=3us,packet=1k,doorbell=1us,completion=3us,batch=4,visible=forced,"
      "scatter=yes,late_read=100,late_read_time=50us,shuffle=yes,atomic_gap=1ms" },
    { "freedoms=none",
      "latency=0,jitter=0,packet=0,bandwidth=0,doorbell=0,completion=0,receipt=0,batch=1,"
      "visible=0,scatter=no,"
      "late_read=0,late_key=no,drop=0,shuffle=no,atomic_gap=0" },
    { "limits=smallest",
      "mtu=256,max_qp_wr=16,max_sge=1,max_sge_rd=1,max_cqe=64,max_srq=0,max_srq_wr=0,max_srq_sge=0,"
      "max_rd_atomic=1,max_init_rd_atomic=1,max_inline=0,max_msg=8m,vectors=1,pkeys=1,atomics=none,"
      "wr_api=no,cq_ex=no" },
};

/* -------------------------------------------------------------------------------------- reading */

struct span {
    const char *at;
    size_t size;
};

static bool span_is(struct span span, const char *text)
{
    return strlen(text) == span.size && memcmp(span.at, text, span.size) == 0;
}

static bool unit_factor(struct span unit, enum kind kind, uint64_t *factor)
{
    static const struct {
        enum kind kind;
        const char *unit;
        uint64_t factor;
    } units[] = {
        { TIME, "", 1 },         { TIME, "ns", 1 },         { TIME, "us", 1000 },
        { TIME, "ms", 1000000 }, { TIME, "s", 1000000000 }, { SIZE, "", 1 },
        { SIZE, "k", 1 << 10 },  { SIZE, "m", 1 << 20 },    { SIZE, "g", 1 << 30 },
        { NUMBER, "", 1 },
    };
    for (size_t i = 0; i < SIM_COUNT_OF(units); i++) {
        if (units[i].kind == kind && span_is(unit, units[i].unit)) {
            *factor = units[i].factor;
            return true;
        }
    }
    return false;
}

static bool number_read(struct span value, enum kind kind, uint64_t max, uint64_t *out)
{
    uint64_t number = 0;
    size_t at = 0;
    while (at < value.size && value.at[at] >= '0' && value.at[at] <= '9') {
        if (__builtin_mul_overflow(number, (uint64_t)10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(value.at[at] - '0'), &number)) {
            return false;
        }
        at++;
    }
    uint64_t factor;
    struct span unit = { value.at + at, value.size - at };
    if (at == 0 || !unit_factor(unit, kind, &factor) ||
        __builtin_mul_overflow(number, factor, &number) || number > max) {
        return false;
    }
    *out = number;
    return true;
}

bool sim_time_read(const char *text, size_t size, uint64_t *out)
{
    struct span span = { text, size };
    return number_read(span, TIME, CENTURY, out);
}

static bool value_read(const struct option *option, struct span value, void *options)
{
    char *field = (char *)options + option->offset;
    if (option->kind == TEXT) {
        if (value.size >= option->text_size) {
            return false;
        }
        memcpy(field, value.at, value.size);
        field[value.size] = '\0';
        return true;
    }
    uint64_t number = 0;
    for (const struct choice *choice = option->choices; choice != NULL && choice->name != NULL;
         choice++) {
        if (span_is(value, choice->name)) {
            memcpy(field, &choice->value, sizeof(choice->value));
            return true;
        }
    }
    if (option->kind == CHOICE || !number_read(value, option->kind, option->max, &number)) {
        return false;
    }
    memcpy(field, &number, sizeof(number));
    return true;
}

/* 1: done; 0: no such key here; -1: a wrong value. */
static int table_read(const struct option *table, size_t count, struct span key, struct span value,
                      void *options)
{
    for (size_t i = 0; options != NULL && i < count; i++) {
        if (span_is(key, table[i].key)) {
            return value_read(&table[i], value, options) ? 1 : -1;
        }
    }
    return 0;
}

static const char *preset_find(struct span word)
{
    for (size_t i = 0; i < SIM_COUNT_OF(presets); i++) {
        if (span_is(word, presets[i].word)) {
            return presets[i].options;
        }
    }
    return NULL;
}

static bool word_read(struct span word, struct sim_world_options *world,
                      struct sim_device_options *device)
{
    const char *equals = memchr(word.at, '=', word.size);
    if (equals == NULL) {
        sim_set_error("option '%.*s': no '='; write key=value", (int)word.size, word.at);
        return false;
    }
    struct span key = { word.at, (size_t)(equals - word.at) };
    struct span value = { equals + 1, word.size - key.size - 1 };
    int found = table_read(world_table, SIM_COUNT_OF(world_table), key, value, world);
    if (found == 0) {
        found = table_read(device_table, SIM_COUNT_OF(device_table), key, value, device);
    }
    if (found <= 0) {
        sim_set_error("option '%.*s': %s; see README.md of the simulator", (int)word.size, word.at,
                      found == 0 ? "unknown here" : "not a value for it");
    }
    return found > 0;
}

bool sim_options_read(const char *text, size_t size, struct sim_world_options *world,
                      struct sim_device_options *device)
{
    while (size > 0) {
        const char *comma = memchr(text, ',', size);
        size_t length = comma != NULL ? (size_t)(comma - text) : size;
        struct span word = { text, length };
        const char *preset = preset_find(word);
        /* A preset names no other preset, so this recurses one level. */
        bool read = preset != NULL ? sim_options_read(preset, strlen(preset), world, device)
                                   : length == 0 || word_read(word, world, device);
        if (!read) {
            return false;
        }
        size_t taken = comma != NULL ? length + 1 : length;
        text += taken;
        size -= taken;
    }
    return true;
}

/* ------------------------------------------------------------------------------------- defaults */

/* Tests that run in parallel have a machine each. */
static const char *default_net(void)
{
    const char *name = getenv("SIM_VERBS_NET");
    return name == NULL || *name == '\0' ? "default" : name;
}

void sim_world_defaults(struct sim_world_options *options)
{
    *options = (struct sim_world_options){
        .threads = 1,
        .trace = 1,
        .seed = 1,
        .window = 16,
        .step = 1000,
        .batch = 1,
        .late_read_time = 20000,
    };
    (void)snprintf(options->net, sizeof(options->net), "%s", default_net());
}

/* Numbers of rxe, the soft RoCE device of Linux (its rxe_param.h), where no other reason stands
 * here. */
void sim_device_defaults(struct sim_device_options *options)
{
    *options = (struct sim_device_options){
        .link = SIM_ROCE,
        .mtu = 0,
        .limits.max_qp = 4096,
        .limits.max_qp_wr = 16384,
        .limits.max_sge = 0,
        .limits.max_sge_rd = 0,
        .limits.max_cq = 4096,
        .limits.max_cqe = 1 << 20,
        .limits.max_mr = 1 << 20,
        .limits.max_mr_size = (uint64_t)1 << 40,
        .limits.max_pd = 4096,
        .limits.max_srq = 1024,
        .limits.max_srq_wr = 16384,
        .limits.max_srq_sge = 0,
        .limits.max_rd_atomic = 16,
        .limits.max_init_rd_atomic = 16,
        .limits.max_inline = SIM_FOREVER,
        .limits.max_msg = 0,
        .vectors = 2,
        .pkeys = 1,
        .atomics = SIM_FOREVER,
        .immediate = SIM_FOREVER,
        .wr_api = SIM_FOREVER,
        .cq_ex = SIM_FOREVER,
        .stale = SIM_FOREVER,
        .unordered_reads = SIM_FOREVER,
        .solicited = SIM_FOREVER,
        .active_first = 1,
        .gid_ifindex = 1,
        .loopback = 1,
        .inline_right = 1,
    };
}

static void fill(uint64_t *field, uint64_t unset, uint64_t value)
{
    if (*field == unset) {
        *field = value;
    }
}

void sim_device_complete(struct sim_device_options *options)
{
    bool iwarp = options->link == SIM_IWARP;
    fill(&options->like, SIM_LIKE_DEFAULT, iwarp ? SIM_LIKE_SIW : SIM_LIKE_RXE);
    bool hca = options->like == SIM_LIKE_HCA;
    /* Like the soft devices: what 1500-byte frames allow. InfiniBand links carry 4096. */
    fill(&options->mtu, 0, options->link == SIM_ROCE && !hca ? IBV_MTU_1024 : IBV_MTU_4096);
    fill(&options->limits.max_sge, 0, iwarp ? 6 : SIM_SGES_MAX);
    fill(&options->limits.max_sge_rd, 0, iwarp ? 1 : SIM_SGES_MAX);
    fill(&options->limits.max_srq_sge, 0, options->limits.max_sge);
    fill(&options->limits.max_inline, SIM_FOREVER, iwarp ? 64 : hca ? 220 : 512);
    fill(&options->limits.max_msg, 0, iwarp ? UINT32_MAX : hca ? 1 << 30 : 8 << 20);
    fill(&options->atomics, SIM_FOREVER, iwarp ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA);
    fill(&options->immediate, SIM_FOREVER, iwarp ? 0 : 1);
    fill(&options->wr_api, SIM_FOREVER, hca && !iwarp ? 1 : 0);
    fill(&options->cq_ex, SIM_FOREVER, iwarp ? 0 : 1);
    fill(&options->stale, SIM_FOREVER, hca ? 0 : 1);
    fill(&options->unordered_reads, SIM_FOREVER, iwarp ? 1 : 0);
    fill(&options->solicited, SIM_FOREVER, iwarp ? 0 : 1);
}
