/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The regions of a fabric by their ids. */
#include "api/object/mr_table.h"

#include "api/base/list.h"
#include "api/core/mr.h"

static struct rdmux_mr **region_bucket(struct rdmux_fabric *fabric, uint64_t id)
{
    return &fabric->region_buckets[id % RDMUX_REGION_BUCKETS];
}

struct rdmux_mr *rdmux_mr_by_id(struct rdmux_fabric *fabric, uint64_t id)
{
    struct rdmux_mr *mr = *region_bucket(fabric, id);
    while (mr != NULL && mr->id != id) {
        mr = mr->bucket_next;
    }
    return mr;
}

void rdmux_mr_table_add(struct rdmux_fabric *fabric, struct rdmux_mr *mr)
{
    struct rdmux_mr **bucket = region_bucket(fabric, mr->id);
    mr->bucket_next = *bucket;
    *bucket = mr;
    rdmux_list_append(&fabric->regions, &mr->link);
    fabric->region_count++;
    fabric->region_bytes += mr->length;
}

void rdmux_mr_table_remove(struct rdmux_fabric *fabric, struct rdmux_mr *mr)
{
    struct rdmux_mr **at = region_bucket(fabric, mr->id);
    while (*at != mr) {
        at = &(*at)->bucket_next;
    }
    *at = mr->bucket_next;
    rdmux_list_remove(&mr->link);
    fabric->region_count--;
    fabric->region_bytes -= mr->length;
}
