/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The provider table of shm, its domain, and process-wide checks. */
#include "shm_provider.h"

#include "shm_internal.h"
#include "shm_meeting.h"
#include "shm_reach.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static_assert(offsetof(struct shm_domain, base) == 0, "shm_domain_of() relies on it");

/* Values by which the path is ranked. From docs/performance/results.json, rdmux: half a round trip
 * of 8 bytes between two cores 0.36 to 0.41 us (shm-latency-8; 0.10 us where both sides share a
 * core), 1 MiB out of ordinary memory into ordinary memory 31 to 32 GB/s (shm-send-1m). */
#define BANDWIDTH UINT64_C(31000000000)
#define SHM_LATENCY_NS UINT32_C(350)

static const char no_copy_hint[] = "regions from rdmux_mr_alloc() need no permission; for others "
                                   "allow process_vm_readv among the "
                                   "user's processes: sysctl kernel.yama.ptrace_scope=0";

static void describe_path(const struct shm_reach *reach, struct rdmux_local_path *out)
{
    bool can_copy = (reach->hints & SHM_HINT_CAN_COPY) != 0;
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->device, sizeof(out->device), "memory");
    (void)snprintf(out->address, sizeof(out->address), "pid %u", reach->pid);
    out->reason = RDMUX_REASON_USABLE;
    out->bandwidth = BANDWIDTH;
    out->latency_ns = SHM_LATENCY_NS;
    out->native = RDMUX_CAP_SEND | RDMUX_CAP_SEND_IMM | RDMUX_CAP_WRITE | RDMUX_CAP_WRITE_IMM |
                  RDMUX_CAP_READ | RDMUX_CAP_FETCH_ADD | RDMUX_CAP_COMPARE_SWAP | RDMUX_CAP_PLACED |
                  RDMUX_CAP_SRQ | RDMUX_CAP_FENCE;
    if (can_copy) {
        out->native |= RDMUX_CAP_TARGET_PASSIVE;
    } else {
        out->emulated = RDMUX_CAP_TARGET_PASSIVE; /* native for regions from rdmux_mr_alloc() */
        (void)snprintf(out->text, sizeof(out->text),
                       "process_vm_readv is probably forbidden: the target's CPU copies");
        (void)snprintf(out->hint, sizeof(out->hint), "%s", no_copy_hint);
    }
    out->security = RDMUX_SECURITY_SAME_USER;
    out->reach_length = SHM_REACH_SIZE;
    rdmux_shm_reach_encode(reach, out->reach);
}

/* A missing prerequisite of shared memory, and its remedy. */
struct lack {
    const char *text; /* NULL: nothing is missing */
    const char *hint;
};

/* Checks for memory files and a meeting point, which are all that shm needs from the kernel.
 * Remembers success: a container may forbid them, but does not begin to while a process runs.
 * Failure is checked again, as a lack of descriptors is temporary. */
static struct lack what_is_lacking(void)
{
    static atomic_bool could;
    if (atomic_load_explicit(&could, memory_order_relaxed)) {
        return (struct lack){ NULL, NULL };
    }
    if (!rdmux_shm_meeting_is_possible()) {
        return (struct lack){
            "this process cannot meet its peers: it may write to none of /run/user/UID, "
            "/dev/shm, /tmp, or others may take its files away there",
            "chmod 1777 /dev/shm"
        };
    }
    int fd = memfd_create("rdmux probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return (struct lack){ "this process cannot share memory: it gets no memory files",
                              "allow memfd_create(2)" };
    }
    (void)close(fd);
    atomic_store_explicit(&could, true, memory_order_relaxed);
    return (struct lack){ NULL, NULL };
}

/* Fills *out if nothing is missing. */
static struct lack look_around(struct shm_reach *out)
{
    if (rdmux_shm_reach_of_this_process(out) != RDMUX_OK) {
        return (struct lack){ "this process cannot share memory: there is no /proc",
                              "mount -t proc proc /proc" };
    }
    return what_is_lacking();
}

static enum rdmux_status shm_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                   size_t max, size_t *count)
{
    (void)fabric;
    struct shm_reach reach;
    *count = 1;
    if (max == 0) {
        return RDMUX_OK;
    }
    const struct lack lack = look_around(&reach);
    if (lack.text == NULL) {
        describe_path(&reach, out);
        return RDMUX_OK;
    }
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->device, sizeof(out->device), "memory");
    out->reason = RDMUX_REASON_NO_DEVICE;
    (void)snprintf(out->text, sizeof(out->text), "%s", lack.text);
    (void)snprintf(out->hint, sizeof(out->hint), "%s", lack.hint);
    return RDMUX_OK;
}

static enum rdmux_status domain_open(struct rdmux_provider_domain *base,
                                     const struct rdmux_local_path *path)
{
    struct shm_domain *domain = shm_domain_of(base);
    (void)path;
    enum rdmux_status status = rdmux_shm_regions_create(&domain->regions, &domain->regions_fd);
    if (status != RDMUX_OK) {
        return status;
    }
    rdmux_list_init(&domain->eps);
    (void)pthread_mutex_init(&domain->mutex, NULL);
    (void)pthread_mutex_init(&domain->invalidating, NULL);
    domain->has_membarrier = rdmux_shm_membarrier_register();
    rdmux_shm_meeting_clean();
    return RDMUX_OK;
}

static void domain_close(struct rdmux_provider_domain *base)
{
    struct shm_domain *domain = shm_domain_of(base);
    (void)pthread_mutex_destroy(&domain->invalidating);
    (void)pthread_mutex_destroy(&domain->mutex);
    rdmux_shm_regions_unmap(domain->regions);
    (void)close(domain->regions_fd);
}

static enum rdmux_status shm_inspect(struct rdmux_fabric *fabric,
                                     void (*report)(void *user,
                                                    const struct rdmux_provider_finding *finding),
                                     void *user)
{
    (void)fabric;
    struct shm_reach reach;
    const struct lack lack = look_around(&reach);
    if (lack.text != NULL) {
        const struct rdmux_provider_finding finding = {
            .severity = RDMUX_LOG_ERROR,
            .object = "shm",
            .text = lack.text,
            .remedy = lack.hint,
        };
        report(user, &finding);
        return RDMUX_OK;
    }
    if ((reach.hints & SHM_HINT_CAN_COPY) == 0) {
        const struct rdmux_provider_finding finding = {
            .severity = RDMUX_LOG_WARN,
            .object = "shm",
            .text = "Yama keeps processes from copying between each other: memory that is not from "
                    "rdmux_mr_alloc() is copied twice",
            .remedy = "sysctl kernel.yama.ptrace_scope=0",
        };
        report(user, &finding);
    }
    if (!rdmux_shm_membarrier_register()) {
        const struct rdmux_provider_finding finding = {
            .severity = RDMUX_LOG_INFO,
            .object = "shm",
            .text = "membarrier(2) is not there: each message costs a memory fence",
        };
        report(user, &finding);
    }
    return RDMUX_OK;
}

const struct rdmux_provider_ops rdmux_shm_provider = {
    .abi = RDMUX_PROVIDER_ABI,
    .size = sizeof(struct rdmux_provider_ops),
    .name = "shm",
    .flags = RDMUX_PROVIDER_QUICK,
    .domain_size = sizeof(struct shm_domain),
    .cq_size = sizeof(struct shm_cq),
    .ep_size = sizeof(struct shm_ep),
    .srq_size = sizeof(struct rdmux_provider_srq),
    .mr_size = sizeof(struct shm_mr),
    .remote_size = sizeof(struct shm_remote),
    .probe = shm_probe,
    .reach = rdmux_shm_reach,
    .domain_open = domain_open,
    .domain_close = domain_close,
    .async_event = rdmux_unsupported_async_event,
    .domain_fd = rdmux_unsupported_domain_fd,
    .inspect = shm_inspect,
    .mr_register = rdmux_shm_mr_register,
    .mr_deregister = rdmux_shm_mr_deregister,
    .mr_describe = rdmux_shm_mr_describe,
    .mr_invalidate = rdmux_shm_mr_invalidate,
    .cq_open = rdmux_shm_cq_open,
    .cq_close = rdmux_shm_cq_close,
    .poll = rdmux_shm_poll,
    .arm = rdmux_shm_arm,
    .fd = rdmux_shm_cq_fd,
    .ep_open = rdmux_shm_ep_open,
    .ep_describe = rdmux_shm_ep_describe,
    .ep_connect = rdmux_shm_ep_connect,
    .ep_join = rdmux_unsupported_ep_join,
    .ep_control = rdmux_unsupported_ep_control,
    .ep_ping = rdmux_shm_ep_ping,
    .ep_quiesce = rdmux_shm_ep_quiesce,
    .ep_close = rdmux_shm_ep_close,
    .post = rdmux_shm_post,
    .doorbell = rdmux_shm_doorbell,
    .post_recv = rdmux_shm_post_recv,
    .srq_open = rdmux_software_srq_open,
    .srq_close = rdmux_software_srq_close,
    .srq_post_recv = rdmux_software_srq_post_recv,
    .remote_open = rdmux_shm_remote_open,
    .remote_close = rdmux_shm_remote_close,
    .ep_leave = rdmux_shm_ep_leave,
    .ep_enter = rdmux_shm_ep_enter,
};
