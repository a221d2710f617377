/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Expectations: records the first failure of a process; checks bytes against patterns. */
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct report *report;
static uint64_t deadline;

void report_begin(struct report *shared, uint64_t deadline_ns)
{
    report = shared;
    deadline = deadline_ns;
}

bool time_is_up(void)
{
    return now_ns() > deadline;
}

void stand_at(const char *file, int line, const char *what)
{
    /* Threads of a case may overwrite each other's place; the place read is one of them. */
    __atomic_store_n(&report->file, file, __ATOMIC_RELAXED);
    __atomic_store_n(&report->line, line, __ATOMIC_RELAXED);
    __atomic_store_n(&report->what, what, __ATOMIC_RELAXED);
}

void leave_out(const char *why)
{
    report->left_out = 1;
    (void)snprintf(report->text, sizeof(report->text), "%s", why);
}

uint64_t memory_available(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && kib == 0 && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %llu kB", &kib) != 1) {
            kib = 0;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return (uint64_t)kib << 10;
}

void stand_on_row(uint64_t row)
{
    report->row = row + 1;
}

/* Makes "batch" of "tests/conformance/batch.c": the suite's name in --list, instead of a file that
 * an installed command does not have. */
int write_place(const char *file, int line, char *out, size_t size)
{
    const char *slash = strrchr(file, '/');
    const char *name = slash == NULL ? file : slash + 1;
    return snprintf(out, size, "step %d of %.*s", line, (int)strcspn(name, "."), name);
}

/* Records only the first failure of a process or of a victim it forked. */
static _Noreturn void fail_with(const char *file, int line, const char *text)
{
    if (__atomic_exchange_n(&report->failed, 1, __ATOMIC_ACQ_REL) == 0) {
        char place[64];
        (void)write_place(file, line, place, sizeof(place));
        report->failed_ns = now_ns();
        (void)snprintf(report->text, sizeof(report->text), "%s (%s)", text, place);
    }
    _exit(1);
}

_Noreturn void fail_at(const char *file, int line, const char *format, ...)
{
    char text[REPORT_TEXT_MAX - 128];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fail_with(file, line, text);
}

_Noreturn void fail_as_consequence(const char *file, int line, const char *what)
{
    report->consequence = 1;
    fail_at(file, line, "the other side ended during %s", what);
}

void expect_status_at(const char *file, int line, const char *call, enum rdmux_status actual,
                      enum rdmux_status expected)
{
    if (actual == expected) {
        return;
    }
    const char *text = actual == RDMUX_OK ? "" : rdmux_last_error();
    fail_at(file, line, "%s\ngave %s, expected %s%s%s", call, rdmux_status_name(actual),
            rdmux_status_name(expected), *text == '\0' ? "" : "; last error: ", text);
}

void expect_equal_at(const char *file, int line, const char *what, uint64_t actual,
                     uint64_t expected)
{
    stand_at(file, line, what);
    if (actual != expected) {
        fail_at(file, line,
                "%s is %" PRIu64 " (0x%" PRIx64 "), expected %" PRIu64 " (0x%" PRIx64 ")", what,
                actual, actual, expected, expected);
    }
}

uint64_t mix64(uint64_t value)
{
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

uint64_t random_below(uint64_t *state, uint64_t limit)
{
    *state += 1;
    return limit == 0 ? 0 : mix64(*state) % limit;
}

static uint64_t pattern_word(uint64_t seed, uint64_t index)
{
    return mix64(mix64(seed) + index);
}

void pattern_fill(void *bytes, size_t length, uint64_t seed, uint64_t first)
{
    uint8_t *out = bytes;
    size_t done = 0;
    while (done < length) {
        uint64_t place = first + done;
        uint64_t word = pattern_word(seed, place / 8);
        size_t skip = (size_t)(place % 8);
        size_t take = 8 - skip < length - done ? 8 - skip : length - done;
        memcpy(out + done, (const uint8_t *)&word + skip, take);
        done += take;
    }
}

void expect_pattern_at(const char *file, int line, const char *what, const void *bytes,
                       size_t length, uint64_t seed, uint64_t first)
{
    stand_at(file, line, what);
    const uint8_t *in = bytes;
    size_t done = 0;
    while (done < length) {
        uint64_t place = first + done;
        uint64_t word = pattern_word(seed, place / 8);
        size_t skip = (size_t)(place % 8);
        size_t take = 8 - skip < length - done ? 8 - skip : length - done;
        const uint8_t *wanted = (const uint8_t *)&word + skip;
        if (memcmp(in + done, wanted, take) != 0) {
            size_t at = 0;
            while (in[done + at] == wanted[at]) {
                at++;
            }
            fail_at(file, line, "%s: byte %zu of %zu is 0x%02x, expected 0x%02x", what, done + at,
                    length, in[done + at], wanted[at]);
        }
        done += take;
    }
}

void expect_filled_at(const char *file, int line, const char *what, const void *bytes,
                      size_t length, uint8_t value)
{
    stand_at(file, line, what);
    const uint8_t *in = bytes;
    for (size_t i = 0; i < length; i++) {
        if (in[i] != value) {
            fail_at(file, line, "%s: byte %zu of %zu is 0x%02x, expected 0x%02x", what, i, length,
                    in[i], value);
        }
    }
}

uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t ms_since(uint64_t start_ns)
{
    return (now_ns() - start_ns) / 1000000;
}

void sleep_ms(unsigned ms)
{
    struct timespec left = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
    }
}
