/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "perf_machine.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SET_MAX = RDMUX_TEXT_MAX / 2 }; /* bytes of a set as text; a longer one is cut */

/* Reads a number and moves *at behind it. */
static bool read_cpu(const char **at, unsigned *out)
{
    if (**at < '0' || **at > '9') {
        return false;
    }
    char *end = NULL;
    errno = 0;
    unsigned long value = strtoul(*at, &end, 10);
    if (errno != 0 || value >= PERF_CPUS_MAX) {
        return false;
    }
    *out = (unsigned)value;
    *at = end;
    return true;
}

/* Formats a set as "0-1,4". */
static void format_set(const cpu_set_t *set, char out[SET_MAX])
{
    size_t length = 0;
    out[0] = '\0';
    for (unsigned cpu = 0; cpu < PERF_CPUS_MAX; cpu++) {
        if (!CPU_ISSET(cpu, set)) {
            continue;
        }
        unsigned last = cpu;
        while (last + 1 < PERF_CPUS_MAX && CPU_ISSET(last + 1, set)) {
            last++;
        }
        char range[32];
        snprintf(range, sizeof(range), last > cpu ? "%s%u-%u" : "%s%u", length > 0 ? "," : "", cpu,
                 last);
        if (length + strlen(range) + 1 > SET_MAX) {
            break;
        }
        memcpy(out + length, range, strlen(range) + 1);
        length += strlen(range);
        cpu = last;
    }
}

size_t perf_cpus_read(const char *text, unsigned out[PERF_CPUS_MAX], char why[RDMUX_TEXT_MAX])
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        snprintf(why, RDMUX_TEXT_MAX, "the processors of this process are not known: %s",
                 strerror(errno));
        return 0;
    }
    size_t count = 0;
    const char *at = text;
    for (;;) {
        unsigned first = 0;
        bool good = read_cpu(&at, &first);
        unsigned last = first;
        if (good && *at == '-') {
            at++;
            good = read_cpu(&at, &last) && last >= first;
        }
        if (!good || (*at != '\0' && *at != ',')) {
            snprintf(why, RDMUX_TEXT_MAX, "\"%.60s\" is no list of processors such as 2 or 0,2-3",
                     text);
            return 0;
        }
        for (unsigned cpu = first; cpu <= last; cpu++) {
            if (!CPU_ISSET(cpu, &allowed)) {
                char set[SET_MAX];
                format_set(&allowed, set);
                snprintf(why, RDMUX_TEXT_MAX,
                         "this process may not run on processor %u, only on %s", cpu, set);
                return 0;
            }
            if (count < PERF_CPUS_MAX) {
                out[count++] = cpu;
            }
        }
        if (*at == '\0') {
            return count;
        }
        at++;
    }
}

int perf_cpu_pin(unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

struct perf_processor_time perf_processor_time(void)
{
    struct perf_processor_time time = { .known = false };
    FILE *file = fopen("/proc/stat", "re");
    if (file == NULL) {
        return time;
    }
    /* proc(5): user nice system idle iowait irq softirq steal; guests are part of user. */
    unsigned long long fields[8] = { 0 };
    if (fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &fields[0], &fields[1],
               &fields[2], &fields[3], &fields[4], &fields[5], &fields[6], &fields[7]) == 8) {
        time.known = true;
        time.stolen = fields[7];
        for (size_t i = 0; i < TOOL_COUNT_OF(fields); i++) {
            time.all += fields[i];
        }
    }
    fclose(file);
    return time;
}

double perf_stolen_share(const struct perf_processor_time *from,
                         const struct perf_processor_time *to)
{
    if (!from->known || !to->known || to->all <= from->all || to->stolen < from->stolen) {
        return -1.0;
    }
    return (double)(to->stolen - from->stolen) / (double)(to->all - from->all);
}
