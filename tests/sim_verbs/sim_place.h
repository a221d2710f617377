/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Bytes in flight into memory, and lists of pieces. */
#ifndef SIM_PLACE_H
#define SIM_PLACE_H

#include "sim_packet.h"
#include "sim_world.h"

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_device;
struct sim_qp;

/* Bytes in flight into memory. */
struct sim_placement {
    struct sim_event event;
    struct sim_placement *next;
    struct sim_qp *qp;
    uint64_t serial;
    uint8_t *target;
    size_t length;
    bool due;
    uint8_t bytes[];
};

/* Puts the bytes into target, now or as late as the rules allow. */
void sim_place(struct sim_qp *qp, void *target, const struct sim_bytes *bytes);
void sim_place_word(struct sim_qp *qp, void *target, uint64_t word);
void sim_place_all(struct sim_qp *qp); /* all placements of this queue pair become visible now */
void sim_place_until(struct sim_qp *qp, uint64_t serial);
void sim_place_device(struct sim_device *device); /* of all its queue pairs */
void sim_atomics_flush(struct sim_device *device);
uint64_t sim_atomic(struct sim_device *device, void *word, enum ibv_wr_opcode opcode,
                    uint64_t compare_add, uint64_t swap);

/* Cuts length bytes of a gather list from offset on. */
void sim_bytes_cut(const struct sim_bytes *from, uint64_t offset, uint64_t length,
                   struct sim_bytes *out);
void sim_bytes_add(struct sim_bytes *bytes, void *base, size_t length);
void sim_bytes_copy_out(const struct sim_bytes *bytes, uint8_t *out);
size_t sim_bytes_length(const struct sim_bytes *bytes);

#endif
