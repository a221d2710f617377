/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "adapter.h"

#include <sim_verbs.h>
#include <stddef.h>

/* The first device. Its context stays open until the process ends. */
static struct sim_device *open_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list == NULL || list[0] == NULL ? NULL : ibv_open_device(list[0]);
    if (list != NULL) {
        ibv_free_device_list(list);
    }
    return context == NULL ? NULL : sim_device_of(context);
}

bool adapter_read(struct adapter_use *out)
{
    static struct sim_device *device;
    device = device == NULL ? open_device() : device;
    if (device == NULL) {
        return false;
    }
    const struct sim_use use = sim_device_use(device);
    *out = (struct adapter_use){
        .queue_pairs = use.queue_pairs,
        .send_entries = use.send_entries,
        .receive_entries = use.receive_entries,
        .completion_queues = use.completion_queues,
        .completion_entries = use.completion_entries,
        .regions = use.regions,
        .region_bytes = use.region_bytes,
        .requests = sim_counters(sim_world_of(device)).requests,
    };
    return true;
}
