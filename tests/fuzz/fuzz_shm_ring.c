/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A hostile peer writes anything into the segment, the socket and the descriptions, while an
 * endpoint polls, posts and imports. Only the offered buffers of our memory may change, and the
 * endpoint of a good peer on the same cq continues. Writes during a read of the endpoint are in
 * fuzz_shm_race.c. */
#include "driver.h"

#include "tests/fuzz/shm_victim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    decode(data, size);
    struct victim *victim = victim_open(NULL, NULL);
    victim_run(victim, &in);
    victim_close(victim);
    return 0;
}
