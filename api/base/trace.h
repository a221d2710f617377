/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Static trace points (USDT) of the provider "rdmux", for perf(1), bpftrace(8) and SystemTap. Each
 * is a test of its semaphore, which a tracer raises while it is attached, a nop and a note in the
 * file; nobody loads the arguments otherwise. Without <sys/sdt.h>, or with
 * -DRDMUX_TRACE_POINTS=OFF, there are none. docs/OBSERVABILITY.md lists them.
 *
 * RDMUX_TRACE_POINT(name); stands at file scope, once in the library, before what uses the point.
 * The data path asks RDMUX_TRACED(name) and passes the point in a cold function. */
#ifndef RDMUX_API_BASE_TRACE_H
#define RDMUX_API_BASE_TRACE_H

#include "api/base/compiler.h"

#ifdef RDMUX_HAVE_SDT
#define _SDT_HAS_SEMAPHORES 1 /* the name that <sys/sdt.h> asks for */
#include <sys/sdt.h>
#define RDMUX_TRACE_POINT(name)                     \
    extern unsigned short rdmux_##name##_semaphore; \
    unsigned short rdmux_##name##_semaphore __attribute__((section(".probes")))
#define RDMUX_TRACED(name) RDMUX_UNLIKELY(rdmux_##name##_semaphore != 0)
#define RDMUX_TRACE_IF(name, probe) \
    do {                            \
        if (RDMUX_TRACED(name)) {   \
            probe;                  \
        }                           \
    } while (0)
#define RDMUX_TRACE2(name, a, b) RDMUX_TRACE_IF(name, DTRACE_PROBE2(rdmux, name, a, b))
#define RDMUX_TRACE3(name, a, b, c) RDMUX_TRACE_IF(name, DTRACE_PROBE3(rdmux, name, a, b, c))
#define RDMUX_TRACE4(name, a, b, c, d) RDMUX_TRACE_IF(name, DTRACE_PROBE4(rdmux, name, a, b, c, d))
#else
#define RDMUX_TRACE_POINT(name) struct rdmux_no_trace_point_##name
#define RDMUX_TRACED(name) false
#define RDMUX_TRACE2(name, a, b) ((void)(a), (void)(b))
#define RDMUX_TRACE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#define RDMUX_TRACE4(name, a, b, c, d) ((void)(a), (void)(b), (void)(c), (void)(d))
#endif

#endif
