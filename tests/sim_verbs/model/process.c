/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "process.h"

#include "chance.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <time.h>

/* Replaces the system's function of that name, in all libraries of the process. */
#define INSTEAD __attribute__((visibility("default")))

static struct {
    struct sim_world *world; /* NULL: none */
    struct sim_device *const *devices;
    size_t device_count;
    bool has_loopback;
    void (*step)(void *user);
    void *user;
} process;

void process_enter(struct sim_world *world)
{
    process.world = world;
    process.step = NULL;
}

void process_leave(void)
{
    process.world = NULL;
    process.step = NULL;
}

void process_wait_with(void (*step)(void *user), void *user)
{
    process.step = step;
    process.user = user;
}

void process_use(struct sim_host *host, struct sim_device *const *devices, size_t count,
                 bool has_loopback)
{
    process.devices = devices;
    process.device_count = count;
    process.has_loopback = has_loopback;
    sim_use_host(host);
}

uint64_t process_clock_ns(void *world)
{
    return 1 + sim_now(world);
}

int process_random(void *chance, void *out, size_t size)
{
    uint8_t *bytes = out;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)draw(chance);
    }
    return 0;
}

/* Disables the kernel's timers, which would run by the machine's time. The iwarp provider uses one
 * to retransmit what is not answered, which no simulated device needs. */
INSTEAD int timerfd_settime(int ufd, int flags, const struct itimerspec *utmr,
                            struct itimerspec *otmr)
{
    (void)ufd, (void)flags, (void)utmr, (void)otmr;
    return 0;
}

INSTEAD int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    (void)clock_id;
    void (*step)(void *user) = process.step;
    if (step != NULL) {
        process.step = NULL; /* no recursion */
        step(process.user);
        process.step = step;
    }
    uint64_t now = process.world != NULL ? sim_now(process.world) : 0;
    tp->tv_sec = (time_t)(now / 1000000000U);
    tp->tv_nsec = (long)(now % 1000000000U);
    return 0;
}

struct interface {
    struct ifaddrs entry;
    struct sockaddr_in address;
};

INSTEAD int getifaddrs(struct ifaddrs **ifap)
{
    size_t count = process.device_count + (process.has_loopback ? 1 : 0);
    struct interface *made = calloc(count, sizeof(*made));
    if (made == NULL) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        made[i].address.sin_family = AF_INET;
        made[i].address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (i < process.device_count) {
            (void)sim_device_address(process.devices[i], (struct sockaddr *)&made[i].address,
                                     sizeof(made[i].address));
        }
        made[i].entry.ifa_name = "lo";
        made[i].entry.ifa_flags = IFF_UP | IFF_RUNNING;
        made[i].entry.ifa_addr = (struct sockaddr *)&made[i].address;
        made[i].entry.ifa_next = i + 1 < count ? &made[i + 1].entry : NULL;
    }
    *ifap = &made->entry;
    return 0;
}

INSTEAD void freeifaddrs(struct ifaddrs *ifa)
{
    free(ifa);
}
