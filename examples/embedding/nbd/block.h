/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The protocol between block_server.c and nbd_plugin.c, over a link. The server begins with the
 * size of its device, 8 bytes. Each request is answered in turn. All numbers are big-endian.
 *
 *   request   op 4, length 4, offset 8; then length bytes if it is a write
 *   answer    error 4 (a number of errno, 0: none); then length bytes if it is a read without error
 */
#ifndef BLOCK_H
#define BLOCK_H

#include <stdint.h>

enum { BLOCK_REQUEST = 16, BLOCK_ANSWER = 4, BLOCK_LENGTH_MAX = 64 << 20 };
enum block_op { BLOCK_READ = 1, BLOCK_WRITE = 2, BLOCK_FLUSH = 3 };

#endif
