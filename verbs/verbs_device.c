/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Devices and ports: which exist, the fabric of each, and why one cannot be used. */
#include "verbs/verbs_device.h"

#include "verbs/verbs_connection.h"
#include "verbs/verbs_link.h"
#include "verbs/verbs_self_test.h"
#include "verbs/verbs_transport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    /* Half a round trip of 8 bytes, asleep, in a guest of tests/soft_rdma: soft iWARP 41 us, soft
     * RoCE 46 us, tcp beside them 30 us. Where tcp takes 14 us asleep
     * (docs/performance/results.json, tcp-latency-sleeping), that corresponds to 19 and 21 us.
     * Ranking needs a value far above that of shm. */
    LATENCY_SOFTWARE_NS = 30000,
    VENDOR_RXE = 0xffffff, /* drivers/infiniband/sw/rxe/rxe_param.h */
    VENDOR_SIW = 0x626d74, /* drivers/infiniband/sw/siw/siw.h */
    CLASS_PATH_MAX = 128,
};

static const char CLASS_DIR[] = "/sys/class/infiniband";

/* ---------------------------------------------------------------------------------------- paths */

void rdmux_verbs_path_refuse(struct rdmux_local_path *path, enum rdmux_reason reason,
                             const char *hint, const char *format, ...)
{
    va_list arguments;
    path->reason = (uint32_t)reason;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    (void)vsnprintf(path->text, sizeof(path->text), format, arguments);
    va_end(arguments);
    (void)snprintf(path->hint, sizeof(path->hint), "%s", hint != NULL ? hint : "");
}

void rdmux_verbs_path_set_reach(struct rdmux_local_path *path, const struct verbs_whereabouts *where)
{
    _Static_assert((int)VERBS_WHEREABOUTS_MAX <= (int)RDMUX_REACH_MAX, "they fit into the offer");
    path->reach_length = (uint32_t)rdmux_verbs_whereabouts_encode(where, path->reach);
}

uint8_t rdmux_verbs_path_port(const struct rdmux_local_path *path)
{
    struct verbs_whereabouts where;
    enum rdmux_status status = rdmux_verbs_whereabouts_decode(path->reach, path->reach_length,
                                                              &where);
    return status == RDMUX_OK ? where.port : 1;
}

/* Reads a small file of sysfs or /proc without its newline; "" if it cannot be read. */
static void read_text(const char *path, char *out, size_t size)
{
    out[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    ssize_t got = read(fd, out, size - 1);
    (void)close(fd);
    out[got > 0 ? got : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

/* -------------------------------------------------------------------------------------- fabrics */

uint8_t rdmux_verbs_fabric_of(enum ibv_transport_type transport, uint8_t link_layer)
{
    if (transport == IBV_TRANSPORT_IWARP) {
        return VERBS_FABRIC_IWARP;
    }
    if (transport != IBV_TRANSPORT_IB) {
        return 0;
    }
    return link_layer == IBV_LINK_LAYER_ETHERNET ? VERBS_FABRIC_ROCE : VERBS_FABRIC_IB;
}

/* Finds the fabric of a device that cannot be opened. */
static uint8_t fabric_by_sysfs(const struct ibv_device *device)
{
    char path[CLASS_PATH_MAX];
    char text[32];
    (void)snprintf(path, sizeof(path), "%s/%s/ports/1/link_layer", CLASS_DIR, device->name);
    read_text(path, text, sizeof(text));
    return rdmux_verbs_fabric_of(device->transport_type, strcmp(text, "Ethernet") == 0
                                                             ? IBV_LINK_LAYER_ETHERNET
                                                             : IBV_LINK_LAYER_INFINIBAND);
}

bool rdmux_verbs_is_rxe(const struct ibv_device_attr *attr)
{
    return attr->vendor_id == VENDOR_RXE;
}

static bool is_software(const struct verbs_port *port)
{
    char path[CLASS_PATH_MAX];
    char text[32];
    if (rdmux_verbs_is_rxe(&port->device_attr) || port->device_attr.vendor_id == VENDOR_SIW) {
        return true;
    }
    (void)snprintf(path, sizeof(path), "%s/%s/node_desc", CLASS_DIR, port->device);
    read_text(path, text, sizeof(text));
    return strcmp(text, "rxe") == 0;
}

/* ---------------------------------------------------------------------------------------- probe */

struct probing {
    const struct verbs_transport *transport;
    struct rdmux_fabric *fabric;
    struct rdmux_local_path *out;
    size_t max;
    size_t count;
    size_t others; /* devices and ports of other fabrics */
};

/* Returns the next path to fill; beyond max a spare one, which is discarded. */
static struct rdmux_local_path *next_path(struct probing *probing, struct rdmux_local_path *spare)
{
    struct rdmux_local_path *path = probing->count < probing->max ? &probing->out[probing->count]
                                                                  : spare;
    probing->count++;
    memset(path, 0, sizeof(*path));
    return path;
}

static void describe_capabilities(const struct verbs_port *port, struct rdmux_local_path *out)
{
    const uint64_t atomics = RDMUX_CAP_FETCH_ADD | RDMUX_CAP_COMPARE_SWAP;
    out->native = RDMUX_CAP_SEND | RDMUX_CAP_SEND_IMM | RDMUX_CAP_WRITE | RDMUX_CAP_WRITE_IMM |
                  RDMUX_CAP_READ | RDMUX_CAP_PLACED | RDMUX_CAP_FENCE | RDMUX_CAP_TARGET_PASSIVE;
    if (port->device_attr.max_srq > 0) {
        out->native |= RDMUX_CAP_SRQ;
    }
    if (port->device_attr.atomic_cap == IBV_ATOMIC_GLOB) {
        out->native |= atomics;
    } else {
        out->emulated |= atomics; /* the device's atomics do not hold for its host's CPU */
    }
    if (port->device_attr.atomic_cap != IBV_ATOMIC_NONE) {
        out->native |= RDMUX_CAP_ATOMIC_DEVICE;
    }
}

static uint32_t speed_of(const struct ibv_port_attr *attr)
{
#ifdef RDMUX_VERBS_HAVE_ACTIVE_SPEED_EX
    if (attr->active_speed_ex != 0) {
        return attr->active_speed_ex;
    }
#endif
    return attr->active_speed;
}

/* Returns the most pieces of a program's list; 0: none besides the transport's header. */
static uint32_t most_sge(const struct verbs_transport *transport,
                         const struct ibv_device_attr *device)
{
    const int header_pieces = transport->header_size != 0 ? 1 : 0;
    int most = device->max_sge;
    if (device->max_srq > 0 && device->max_srq_sge < most) {
        most = device->max_srq_sge;
    }
    most = (most < 1 ? 1 : most) - header_pieces;
    return most < RDMUX_SGE_MAX ? (uint32_t)most : (uint32_t)RDMUX_SGE_MAX;
}

/* -------------------------------------------------------------------------------- self-test */

/* The operation of each verbs_self_test_fault bit. */
static const char *const operations[VERBS_SELF_TEST_FAULTS] = {
    "inline sends", "writes with immediate data", "reads", "requests of no bytes", "atomics",
};

static void log_self_test(const struct verbs_port *port, const struct verbs_self_test *self_test)
{
    const double took_ms = (double)self_test->took_ns / 1e6;
    if (!self_test->is_complete) {
        rdmux_provider_log(
            port->fabric, RDMUX_LOG_INFO,
            "%s port %u: self-test not completed: %s (%.1f ms); its reported capabilities count",
            port->device, port->number, self_test->text, took_ms);
        return;
    }
    for (size_t i = 0; i < VERBS_SELF_TEST_FAULTS; i++) {
        if ((self_test->faults >> i & 1) != 0) {
            rdmux_provider_log(port->fabric, RDMUX_LOG_WARN, "%s port %u was tried: %s: %s",
                               port->device, port->number, operations[i], self_test->why[i]);
        }
    }
    rdmux_provider_log(port->fabric, self_test->skipped != 0 ? RDMUX_LOG_INFO : RDMUX_LOG_DEBUG,
                       "%s port %u was tried in %.1f ms%s%s", port->device, port->number, took_ms,
                       self_test->text[0] != '\0' ? ", not in all: " : "", self_test->text);
}

/* Gets the device's self-test result, from a test on this port or an earlier one of this
 * process. */
static bool try_port(const struct verbs_transport *transport, const struct verbs_port *port,
                     struct verbs_self_test *out)
{
    struct verbs_route self;
    if (rdmux_verbs_self_test_recall(port->device, port->device_attr.node_guid, out)) {
        return true;
    }
    if (transport->way_to_self == NULL || !transport->way_to_self(port, &self)) {
        return false;
    }
    const struct verbs_self_test_way way = { .context = port->context,
                                             .device = &port->device_attr,
                                             .address = self.address,
                                             .pkey_index = self.pkey_index,
                                             .mtu = port->attr.active_mtu };
    rdmux_verbs_self_test_run(&way, out);
    log_self_test(port, out);
    if (out->is_connected) {
        rdmux_verbs_self_test_keep(port->device, port->device_attr.node_guid, out);
    }
    return true;
}

static void add_text(struct rdmux_local_path *path, const char *what, const char *why)
{
    size_t used = strlen(path->text);
    (void)snprintf(path->text + used, sizeof(path->text) - used, "; does without its %s: %s", what,
                   why);
}

/* Applies the test result: faulty operations are replaced by the library where it can, else the
 * path cannot be used. */
static void describe_self_test(const struct verbs_self_test *self_test,
                               const struct verbs_port *port, struct rdmux_local_path *out)
{
    const uint64_t atomics = RDMUX_CAP_FETCH_ADD | RDMUX_CAP_COMPARE_SWAP;
    const uint32_t needed = VERBS_SELF_TEST_IMM | VERBS_SELF_TEST_READ;
    for (size_t i = 0; i < VERBS_SELF_TEST_FAULTS; i++) {
        if ((self_test->faults >> i & 1) == 0) {
            continue;
        }
        if ((needed >> i & 1) != 0) {
            rdmux_verbs_path_refuse(out, RDMUX_REASON_CAPABILITY_MISSING,
                                    "update the adapter's firmware and driver",
                                    "%s port %u has no %s that work: %s", port->device,
                                    port->number, operations[i], self_test->why[i]);
            return;
        }
        add_text(out, operations[i], self_test->why[i]);
    }
    if ((self_test->faults & VERBS_SELF_TEST_ATOMICS) != 0) {
        out->native &= ~(atomics | RDMUX_CAP_ATOMIC_DEVICE);
        out->emulated |= atomics;
    }
}

static void describe_port(const struct verbs_transport *transport, const struct verbs_port *port,
                          struct rdmux_local_path *out)
{
    const struct ibv_port_attr *attr = &port->attr;
    const uint32_t speed = speed_of(attr);
    out->software = is_software(port) ? 1 : 0;
    out->bandwidth = rdmux_verbs_link_bandwidth(speed, attr->active_width);
    out->latency_ns = out->software != 0 ? (uint32_t)LATENCY_SOFTWARE_NS : transport->latency_ns;
    out->mtu = rdmux_verbs_mtu_bytes(attr->active_mtu);
    out->max_message = attr->max_msg_sz;
    out->max_sge = most_sge(transport, &port->device_attr);
    out->security = RDMUX_SECURITY_TOKEN;
    out->reason = RDMUX_REASON_USABLE;
    describe_capabilities(port, out);
    (void)snprintf(out->address, sizeof(out->address), "port %u", port->number);
    (void)snprintf(out->text, sizeof(out->text), "%s %uX %s, firmware %s", transport->fabric_name,
                   rdmux_verbs_link_lanes(attr->active_width), rdmux_verbs_link_speed_name(speed),
                   port->device_attr.fw_ver[0] != '\0' ? port->device_attr.fw_ver : "unknown");
    if (attr->state == IBV_PORT_ACTIVE || attr->state == IBV_PORT_ACTIVE_DEFER) {
        struct verbs_self_test self_test;
        transport->probe_port(port, out);
        if (out->reason == RDMUX_REASON_USABLE && try_port(transport, port, &self_test)) {
            describe_self_test(&self_test, port, out);
        }
        return;
    }
    rdmux_verbs_path_refuse(out, RDMUX_REASON_PORT_DOWN,
                            transport->fabric == VERBS_FABRIC_IB
                                ? "check the cable, and that a subnet manager runs on the fabric"
                                : "bring the network interface up (ip link set DEV up), and check "
                                  "the cable",
                            "%s port %u is %s", port->device, port->number,
                            ibv_port_state_str(attr->state));
}

static void probe_ports(struct probing *probing, struct verbs_port *port,
                        enum ibv_transport_type transport)
{
    for (unsigned number = 1; number <= port->device_attr.phys_port_cnt; number++) {
        port->number = (uint8_t)number;
        if (ibv_query_port(port->context, port->number, &port->attr) != 0 ||
            rdmux_verbs_fabric_of(transport, port->attr.link_layer) != probing->transport->fabric) {
            probing->others++;
            continue;
        }
        struct rdmux_local_path spare;
        struct rdmux_local_path *path = next_path(probing, &spare);
        (void)snprintf(path->device, sizeof(path->device), "%s", port->device);
        path->port = port->number;
        describe_port(probing->transport, port, path);
    }
}

static void refuse_device(struct probing *probing, const struct ibv_device *device, int error)
{
    struct rdmux_local_path spare;
    if (fabric_by_sysfs(device) != probing->transport->fabric) {
        probing->others++;
        return;
    }
    struct rdmux_local_path *path = next_path(probing, &spare);
    (void)snprintf(path->device, sizeof(path->device), "%s", device->name);
    bool forbidden = error == EACCES || error == EPERM;
    rdmux_verbs_path_refuse(
        path, forbidden ? RDMUX_REASON_NO_PERMISSION : RDMUX_REASON_OPEN_FAILED,
        forbidden ? "give this user access to /dev/infiniband/uverbs* (udev rules of rdma-core; "
                    "containers: pass the devices in)"
                  : NULL,
        "%s cannot be opened: %s", device->name, strerror(error));
}

static void probe_device(struct probing *probing, struct ibv_device *device)
{
    struct verbs_port port = { .fabric = probing->fabric, .device = device->name };
    errno = 0;
    port.context = ibv_open_device(device);
    if (port.context == NULL) {
        refuse_device(probing, device, errno != 0 ? errno : EIO);
        return;
    }
    int error = ibv_query_device(port.context, &port.device_attr);
    if (error == 0) {
        probe_ports(probing, &port, device->transport_type);
    } else {
        refuse_device(probing, device, error);
    }
    (void)ibv_close_device(port.context);
}

/* Says why there is no device. error: errno of ibv_get_device_list(3); ENOSYS: the kernel has no
 * RDMA at all. */
static void say_none(struct probing *probing, int error)
{
    const char *name = probing->transport->fabric_name;
    struct rdmux_local_path spare;
    struct rdmux_local_path *path = next_path(probing, &spare);
    if (error == ENOSYS) {
        rdmux_verbs_path_refuse(path, RDMUX_REASON_NO_DEVICE,
                                "where there is an adapter, load its driver (modprobe ib_uverbs, "
                                "and mlx5_ib, irdma, bnxt_re …)",
                                "no %s device: the kernel has no RDMA driver loaded", name);
    } else if (error != 0) {
        rdmux_verbs_path_refuse(path, RDMUX_REASON_NO_DEVICE, NULL,
                                "no %s device: they cannot be listed: %s", name, strerror(error));
    } else if (probing->others > 0) {
        rdmux_verbs_path_refuse(path, RDMUX_REASON_NO_DEVICE, NULL,
                                "no %s port on this machine; its RDMA ports are of another kind",
                                name);
    } else {
        bool has_kernel_device = access("/sys/class/infiniband_verbs/uverbs0", F_OK) == 0;
        rdmux_verbs_path_refuse(path, RDMUX_REASON_NO_DEVICE,
                                has_kernel_device ? "install the device's user space driver "
                                                    "(Debian: ibverbs-providers), of the same "
                                                    "rdma-core as libibverbs"
                                                  : NULL,
                                "no %s device: %s", name,
                                has_kernel_device ? "libibverbs has no driver for the kernel's"
                                                  : "there is no RDMA device");
    }
}

/* ----------------------------------------------------------------------------- no RDMA in the kernel */

enum { ABSENCE_MS = 100 };

/* Until this time of the coarse monotonic clock the kernel counts as one without RDMA. */
static _Atomic int64_t absent_until_ms;

static int64_t coarse_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * ibv_get_device_list(3), which takes six system calls to find that the kernel has no RDMA. Each set-up
 * asks three times, once for each provider, on both sides: so that answer holds for a tenth of a second.
 */
static struct ibv_device **list_devices(int *count, int *error)
{
    *count = 0;
    if (coarse_ms() < atomic_load_explicit(&absent_until_ms, memory_order_relaxed)) {
        *error = ENOSYS;
        return NULL;
    }
    errno = 0;
    struct ibv_device **devices = ibv_get_device_list(count);
    *error = devices != NULL ? 0 : errno != 0 ? errno : EIO;
    if (*error == ENOSYS) {
        atomic_store_explicit(&absent_until_ms, coarse_ms() + ABSENCE_MS, memory_order_relaxed);
    }
    return devices;
}

enum rdmux_status rdmux_verbs_probe(const struct verbs_transport *transport,
                                    struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                    size_t max, size_t *count)
{
    struct probing probing = { .transport = transport, .fabric = fabric, .out = out, .max = max };
    int device_count;
    int error;
    struct ibv_device **devices = list_devices(&device_count, &error);
    for (int i = 0; i < device_count && devices != NULL; i++) {
        probe_device(&probing, devices[i]);
    }
    if (devices != NULL) {
        ibv_free_device_list(devices);
    }
    if (probing.count == 0) {
        say_none(&probing, error);
    }
    *count = probing.count;
    return RDMUX_OK;
}

enum rdmux_status rdmux_verbs_device_open(const char *device, struct ibv_context **out)
{
    int count = 0;
    struct ibv_device **devices = ibv_get_device_list(&count);
    struct ibv_context *context = NULL;
    int error = devices == NULL ? errno : ENODEV;
    for (int i = 0; i < count && devices != NULL; i++) {
        if (strcmp(devices[i]->name, device) == 0) {
            errno = 0;
            context = ibv_open_device(devices[i]);
            error = errno != 0 ? errno : EIO;
            break;
        }
    }
    if (devices != NULL) {
        ibv_free_device_list(devices);
    }
    if (context == NULL) {
        rdmux_provider_error("%s cannot be opened: %s%s", device, strerror(error),
                             error == EACCES || error == EPERM
                                 ? "; give this user access to /dev/infiniband/uverbs*"
                                 : "");
        return error == ENOMEM || error == EMFILE || error == ENFILE ? RDMUX_NO_MEMORY : RDMUX_IO;
    }
    *out = context;
    return RDMUX_OK;
}
