/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Static trace points (USDT) of the provider "rdmux", for perf(1), bpftrace(8) and SystemTap. Each
 * is a nop and a note in the file; arguments stay where they are. Without <sys/sdt.h>, or with
 * -DRDMUX_TRACE_POINTS=OFF, there are none. docs/OBSERVABILITY.md lists them. */
#ifndef RDMUX_API_BASE_TRACE_H
#define RDMUX_API_BASE_TRACE_H

#ifdef RDMUX_HAVE_SDT
#include <sys/sdt.h>
#define RDMUX_TRACE2(name, a, b) DTRACE_PROBE2(rdmux, name, a, b)
#define RDMUX_TRACE3(name, a, b, c) DTRACE_PROBE3(rdmux, name, a, b, c)
#define RDMUX_TRACE4(name, a, b, c, d) DTRACE_PROBE4(rdmux, name, a, b, c, d)
#else
#define RDMUX_TRACE2(name, a, b) ((void)0)
#define RDMUX_TRACE3(name, a, b, c) ((void)0)
#define RDMUX_TRACE4(name, a, b, c, d) ((void)0)
#endif

#endif
