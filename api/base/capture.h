/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The frames of a fabric in a file for Wireshark (pcap-ng): those of control channels and of the tcp
 * provider. Each frame is a packet of the link type "upper PDU", which names the dissector rdmux and
 * the addresses of the socket. tools/wireshark/rdmux.lua is that dissector.
 *
 * A fabric without a capture pays one test of a pointer for each control frame. Its data path has
 * no test: the tcp provider chooses the functions of a data socket when it opens the socket.
 */
#ifndef RDMUX_API_BASE_CAPTURE_H
#define RDMUX_API_BASE_CAPTURE_H

#include "api/base/hooks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RDMUX_CAPTURE_SNAP = 32, /* bytes kept of a payload, unless the setting has another number */
    RDMUX_CAPTURE_SNAP_MAX = 65536,  /* the largest such number */
    RDMUX_CAPTURE_FRAME_MAX = 65664, /* bytes of a packet: a header and the longest payload kept */
};

/* Constant once the fabric is open. */
struct rdmux_capture_options {
    uint32_t snap;     /* bytes kept of the program's bytes in a frame */
    bool has_secrets;  /* secrets, tokens and keys are kept, not replaced by zeros */
    bool is_decrypted; /* frames of encrypted sockets are captured, in clear */
};

enum rdmux_capture_way { RDMUX_CAPTURE_IN, RDMUX_CAPTURE_OUT };

/* Opens the file of a setting "[WORD,...:]FILE". name: of the setting, for texts.
 * RDMUX_INVALID, RDMUX_IO, RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_capture_open(struct rdmux_fabric *fabric, const char *name,
                                     const char *setting);
/* Does nothing if the fabric has no capture. */
void rdmux_capture_close(struct rdmux_fabric *fabric);

/* NULL: the fabric has no capture. */
static inline const struct rdmux_capture_options *rdmux_capture_of(struct rdmux_fabric *fabric)
{
    return (const struct rdmux_capture_options *)(const void *)rdmux_hooks_of(fabric)->capture;
}

/* Writes a frame of `length` bytes that begins with `kept` bytes, at most RDMUX_CAPTURE_FRAME_MAX.
 * socket: of the frame. The fabric has a capture. A failure ends the capture and is logged. errno
 * stays. Threads: any. */
void rdmux_capture_write(struct rdmux_fabric *fabric, int socket, enum rdmux_capture_way way,
                         const void *bytes, size_t kept, uint64_t length);

#endif
