/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A hostile peer: writes whatever it likes into the segment, the socket and the descriptions, while
 * an endpoint polls, posts and imports. Nothing of ours but the buffers offered may be touched, and the
 * endpoint of a good peer on the same cq goes on. What the peer writes while the endpoint looks is
 * fuzz_shm_race.c's. */
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
