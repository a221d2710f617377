/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Checks the machine around the devices: adapters without a device, modules, libraries,
 * permissions, limits. */
#include "doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- adapters */

/* PCI adapters that can do RDMA: the ids in the drivers' tables in the kernel
 * (drivers/net/ethernet, drivers/infiniband/hw). */
static const struct adapter {
    uint16_t vendor;
    uint16_t first; /* device ids, inclusive */
    uint16_t last;
    const char *module; /* module that makes the RDMA device */
} adapters[] = {
    { 0x15b3, 0x5a44, 0x5a44, "ib_mthca" },
    { 0x15b3, 0x5e8c, 0x5e8c, "ib_mthca" },
    { 0x15b3, 0x6274, 0x6282, "ib_mthca" },
    { 0x15b3, 0x1002, 0x1010, "mlx4_ib" }, /* ConnectX-3 */
    { 0x15b3, 0x6340, 0x676e, "mlx4_ib" }, /* ConnectX, ConnectX-2 */
    { 0x15b3, 0x1011, 0x1027, "mlx5_ib" }, /* Connect-IB, ConnectX-4 and newer */
    { 0x15b3, 0xa2d2, 0xa2df, "mlx5_ib" }, /* BlueField */
    { 0x8086, 0x1591, 0x1593, "irdma" },   /* E810 */
    { 0x8086, 0x1599, 0x159b, "irdma" },
    { 0x8086, 0x12d1, 0x12de, "irdma" }, /* E830 */
    { 0x8086, 0x579c, 0x579f, "irdma" }, /* E825-C */
    { 0x8086, 0x188a, 0x189a, "irdma" }, /* E823-C, E822 */
    { 0x8086, 0x124c, 0x124f, "irdma" }, /* E823-L */
    { 0x8086, 0x151d, 0x151d, "irdma" },
    { 0x8086, 0x37ce, 0x37d3, "irdma" }, /* X722 */
    { 0x8086, 0x0dda, 0x0dda, "irdma" },
    { 0x8086, 0x24f0, 0x24f1, "hfi1" },
    { 0x14e4, 0x16d6, 0x16d9, "bnxt_re" }, /* NetXtreme-E */
    { 0x14e4, 0x16e2, 0x16e3, "bnxt_re" },
    { 0x14e4, 0x16eb, 0x16f1, "bnxt_re" },
    { 0x14e4, 0x1614, 0x1614, "bnxt_re" },
    { 0x14e4, 0x1750, 0x1752, "bnxt_re" },
    { 0x14e4, 0x1760, 0x1763, "bnxt_re" },
    { 0x14e4, 0x1800, 0x181b, "bnxt_re" },
    { 0x1425, 0x4400, 0x44ff, "iw_cxgb4" }, /* T4 */
    { 0x1425, 0x5400, 0x54ff, "iw_cxgb4" }, /* T5 */
    { 0x1425, 0x6400, 0x64ff, "iw_cxgb4" }, /* T6 */
    { 0x1077, 0x1634, 0x1666, "qedr" },     /* FastLinQ 45000 */
    { 0x1077, 0x8070, 0x8090, "qedr" },     /* FastLinQ 41000 */
    { 0x1077, 0x7220, 0x7322, "ib_qib" },
    { 0x10df, 0x0720, 0x0728, "ocrdma" },
    { 0x19e5, 0xa222, 0xa228, "hns_roce_hw_v2" },
    { 0x1d0f, 0xefa0, 0xefa3, "efa" },
    { 0x1ded, 0x107f, 0x107f, "erdma" },
    { 0x1414, 0x00b9, 0x00ba, "mana_ib" },
    { 0x15ad, 0x0820, 0x0820, "vmw_pvrdma" },
    { 0x1dd8, 0x1002, 0x1003, "ionic_rdma" },
};

static const struct adapter *find_adapter(uint64_t vendor, uint64_t device)
{
    for (size_t i = 0; i < TOOL_COUNT_OF(adapters); i++) {
        if (adapters[i].vendor == vendor && device >= adapters[i].first &&
            device <= adapters[i].last) {
            return &adapters[i];
        }
    }
    return NULL;
}

static bool has_device(const struct doctor_root *root, const char *address)
{
    struct doctor_names names = doctor_list(root, "sys/bus/pci/devices/%s/infiniband", address);
    bool has = names.count > 0;
    doctor_names_free(&names);
    return has;
}

static void add_disabled(const struct doctor_machine *machine, const char *address,
                         const struct adapter *adapter, enum doctor_severity severity,
                         struct doctor_findings *findings)
{
    char remedy[DOCTOR_TEXT_MAX];
    char netns_mode[DOCTOR_VALUE_MAX];
    (void)doctor_read(&machine->root, netns_mode, sizeof(netns_mode),
                      "sys/module/ib_core/parameters/netns_mode");
    if (netns_mode[0] == 'N') {
        doctor_add(findings, severity, "OTHER_NAMESPACE",
                   "rdma dev set DEVICE netns PID (in the namespace that has it)",
                   "the RDMA device of adapter %s may be in another network namespace: the kernel "
                   "shows each device in one only",
                   address);
        return;
    }
    bool by_devlink = strcmp(adapter->module, "mlx5_ib") == 0;
    if (by_devlink) {
        (void)snprintf(remedy, sizeof(remedy),
                       "devlink dev param set pci/%s name enable_roce value true cmode driverinit "
                       "&& devlink dev reload pci/%s",
                       address, address);
    } else if (strcmp(adapter->module, "irdma") == 0) {
        (void)snprintf(remedy, sizeof(remedy),
                       "devlink dev param set pci/%s name enable_roce value true cmode runtime",
                       address);
    } else {
        const char *module = adapter->module;
        (void)snprintf(remedy, sizeof(remedy), "dmesg | grep -e %s -e %s", module, address);
    }
    doctor_add(
        findings, severity, "RDMA_DISABLED", remedy,
        "adapter %s can do RDMA, and module %s is loaded, but there is no RDMA device: it is "
        "switched off in the adapter's settings, or the driver failed",
        address, adapter->module);
}

/* Adds a finding for each adapter that could have a device and has none. Returns the number of
 * adapters. */
static size_t check_adapters(const struct doctor_machine *machine, bool any_device,
                             struct doctor_findings *findings)
{
    const struct doctor_root *root = &machine->root;
    /* If one device exists, the other adapters may be meant for other uses. */
    enum doctor_severity severity = any_device ? DOCTOR_WARNING : DOCTOR_ERROR;
    size_t count = 0;
    struct doctor_names names = doctor_list(root, "sys/bus/pci/devices");
    for (size_t i = 0; i < names.count && count < DOCTOR_DEVICE_MAX; i++) {
        const char *address = names.items[i];
        uint64_t vendor = 0;
        uint64_t device = 0;
        const struct adapter *adapter = NULL;
        if (doctor_read_number(root, &vendor, "sys/bus/pci/devices/%s/vendor", address) &&
            doctor_read_number(root, &device, "sys/bus/pci/devices/%s/device", address)) {
            adapter = find_adapter(vendor, device);
        }
        if (adapter == NULL) {
            continue;
        }
        count++;
        if (has_device(root, address)) {
            continue;
        }
        if (doctor_is_folder(root, "sys/module/%s", adapter->module)) {
            add_disabled(machine, address, adapter, severity, findings);
            continue;
        }
        char remedy[DOCTOR_TEXT_MAX];
        (void)snprintf(remedy, sizeof(remedy), "modprobe %s", adapter->module);
        doctor_add(findings, severity, "MODULE_MISSING", remedy,
                   "adapter %s can do RDMA, but kernel module %s is not loaded", address,
                   adapter->module);
    }
    doctor_names_free(&names);
    return count;
}

static void check_devices(const struct doctor_machine *machine, bool any_device,
                          struct doctor_findings *findings)
{
    size_t adapter_count = check_adapters(machine, any_device, findings);
    if (any_device) {
        return;
    }
    if (adapter_count > 0) {
        doctor_add(findings, DOCTOR_ERROR, "NO_DEVICE", "lspci -nnk | grep -A 3 -e 0200 -e 0207",
                   "there is no RDMA device, though %zu adapter%s could have one; shm and tcp work "
                   "without",
                   adapter_count, adapter_count == 1 ? "" : "s");
    } else {
        doctor_add(findings, DOCTOR_ERROR, "NO_DEVICE",
                   "rdma link add rxe0 type rxe netdev INTERFACE (makes a software device to try "
                   "out RDMA with)",
                   "there is no RDMA device and no known RDMA hardware; shm and tcp work without");
    }
}

/* --------------------------------------------------------------------------- modules, libraries */

/* Every kernel has /sys/module and /sys/class/misc. Only a copied tree may lack them; their absence
 * then means nothing. */
static void check_modules(const struct doctor_root *root, struct doctor_findings *findings)
{
    if (doctor_is_folder(root, "sys/module") &&
        !doctor_is_folder(root, "sys/class/infiniband_verbs")) {
        doctor_add(findings, DOCTOR_ERROR, "MODULE_MISSING", "modprobe ib_uverbs",
                   "kernel module ib_uverbs is not loaded: no program can use an RDMA device");
    }
    if (doctor_is_folder(root, "sys/class/misc") &&
        !doctor_is_folder(root, "sys/class/misc/rdma_cm")) {
        doctor_add(findings, DOCTOR_ERROR, "MODULE_MISSING", "modprobe rdma_ucm",
                   "kernel module rdma_ucm is not loaded: no program can make connections by "
                   "rdma_cm");
    }
}

static void check_libraries(const struct doctor_machine *machine, struct doctor_findings *findings)
{
    if (!machine->libraries_known) {
        return;
    }
    if (machine->verbs_library[0] == '\0') {
        doctor_add(findings, DOCTOR_ERROR, "NO_LIBRARY",
                   "apt install libibverbs1 ibverbs-providers (Debian, Ubuntu); dnf install "
                   "libibverbs (Fedora, RHEL)",
                   "libibverbs.so.1 is not installed where the dynamic linker looks");
    }
    if (!machine->connection_library) {
        doctor_add(findings, DOCTOR_ERROR, "NO_LIBRARY",
                   "apt install librdmacm1 (Debian, Ubuntu); dnf install librdmacm (Fedora, RHEL)",
                   "librdmacm.so.1 is not installed where the dynamic linker looks");
    }
}

/* --------------------------------------------------------------------------------- device nodes */

static const char into_container[] = "start the container with --device=/dev/infiniband (docker, "
                                     "podman) or with an RDMA device "
                                     "plug-in (Kubernetes)";

void doctor_check_node(const struct doctor_machine *machine, const char *name,
                       struct doctor_findings *findings)
{
    if (!doctor_is_folder(&machine->root, "dev/infiniband")) {
        return;
    }
    char remedy[DOCTOR_TEXT_MAX];
    char quoted[3 * DOCTOR_NAME_MAX];
    int error = doctor_try_open(&machine->root, "dev/infiniband/%s", name);
    (void)doctor_quote(name, quoted, sizeof(quoted));
    switch (error) {
    case 0:
        return;
    case ENOENT:
        doctor_add(findings, DOCTOR_ERROR, "NO_DEVICE_NODE",
                   machine->in_container ? into_container
                                         : "udevadm trigger --subsystem-match=infiniband_verbs "
                                           "--subsystem-match=misc",
                   "/dev/infiniband/%s is missing", name);
        return;
    case EACCES:
        (void)snprintf(remedy, sizeof(remedy), "chmod 0666 /dev/infiniband/%s", quoted);
        doctor_add(findings, DOCTOR_ERROR, "NO_PERMISSION", remedy,
                   "this user may not open /dev/infiniband/%s for reading and writing", name);
        return;
    case EPERM:
        doctor_add(findings, DOCTOR_ERROR, "NO_PERMISSION", into_container,
                   "the device cgroup forbids this process to open /dev/infiniband/%s", name);
        return;
    default:
        (void)snprintf(remedy, sizeof(remedy), "dmesg | grep -i -e infiniband -e rdma");
        doctor_add(findings, DOCTOR_ERROR, "OPEN_FAILED", remedy,
                   "/dev/infiniband/%s cannot be opened: %s", name, strerror(error));
        return;
    }
}

static void check_nodes(const struct doctor_machine *machine, struct doctor_findings *findings)
{
    if (!machine->device_folder) {
        return;
    }
    if (!doctor_is_folder(&machine->root, "dev/infiniband")) {
        doctor_add(findings, DOCTOR_ERROR, "NO_DEV_INFINIBAND",
                   machine->in_container ? into_container
                                         : "udevadm trigger --subsystem-match=infiniband_verbs "
                                           "--subsystem-match=misc",
                   "%s",
                   machine->in_container
                       ? "this container has no /dev/infiniband: the RDMA devices can be "
                         "seen, but not used"
                       : "there is no /dev/infiniband: the RDMA devices can be seen, but not "
                         "used");
        return;
    }
    if (doctor_is_folder(&machine->root, "sys/class/misc/rdma_cm")) {
        doctor_check_node(machine, "rdma_cm", findings);
    }
}

/* --------------------------------------------------------------------------------------- limits */

enum {
    MEMLOCK_LEAST = 1 << 20,  /* bytes: queues and small buffers of one endpoint */
    MEMLOCK_WANTED = 1 << 30, /* bytes: these and regions */
};

static void check_memlock(const struct doctor_machine *machine, struct doctor_findings *findings)
{
    char bytes[TOOL_NUMBER_MAX];
    char remedy[DOCTOR_TEXT_MAX];
    int64_t soft = machine->memlock_soft;
    if (machine->pins_freely || soft < 0 || soft >= MEMLOCK_WANTED) {
        return;
    }
    if (machine->memlock_hard == DOCTOR_UNLIMITED) {
        (void)snprintf(remedy, sizeof(remedy), "ulimit -l unlimited");
    } else if (machine->in_container) {
        (void)snprintf(remedy, sizeof(remedy),
                       "start the container with --ulimit memlock=-1 (docker, podman)");
    } else {
        (void)snprintf(remedy, sizeof(remedy),
                       "echo '* - memlock unlimited' >/etc/security/limits.d/rdma.conf and log in "
                       "anew; for a service: systemctl edit SERVICE, [Service] "
                       "LimitMEMLOCK=infinity");
    }
    tool_format_bytes((double)soft, bytes);
    doctor_add(findings, soft < MEMLOCK_LEAST ? DOCTOR_ERROR : DOCTOR_WARNING, "MEMLOCK_TOO_LOW",
               remedy,
               "this process may pin %s of memory (RLIMIT_MEMLOCK): an endpoint needs about 1 MiB, "
               "and every registered region counts in full; allow 1 GiB at the least, or no limit",
               bytes);
}

/* --------------------------------------------------------------------- settings for shm and tcp */

static void check_shm(const struct doctor_machine *machine, struct doctor_findings *findings)
{
    uint64_t scope = 0;
    if (machine->traces_freely ||
        !doctor_read_number(&machine->root, &scope, "proc/sys/kernel/yama/ptrace_scope") ||
        scope == 0) {
        return;
    }
    doctor_add(findings, DOCTOR_INFO, "PTRACE_SCOPE", "sysctl -w kernel.yama.ptrace_scope=0",
               "shm: Yama forbids process_vm_readv among a user's processes, so memory that is not "
               "from rdmux_mr_alloc() is copied twice");
}

/* The last of the three numbers of tcp_rmem and tcp_wmem limits a socket's bytes in flight. */
static void check_window(const struct doctor_root *root, const char *name, const char *wanted,
                         struct doctor_findings *findings)
{
    enum { WANTED = 4 << 20 };
    char text[DOCTOR_VALUE_MAX];
    char remedy[DOCTOR_TEXT_MAX];
    unsigned long long most = 0;
    if (doctor_read(root, text, sizeof(text), "proc/sys/net/ipv4/%s", name) != 0 ||
        sscanf(text, "%*u %*u %20llu", &most) != 1 || most >= WANTED) {
        return;
    }
    (void)snprintf(remedy, sizeof(remedy), "sysctl -w net.ipv4.%s='%s'", name, wanted);
    doctor_add(findings, DOCTOR_INFO, "TCP_WINDOW_SMALL", remedy,
               "tcp: %s lets a socket have %llu bytes on the way; fast or long paths need more",
               name, most);
}

static void check_retransmissions(const struct doctor_root *root, struct doctor_findings *findings)
{
    enum { LEAST = 1000, SEGMENTS_PER_EVENT = 100 };
    char text[8192];
    unsigned long long sent = 0;
    unsigned long long again = 0;
    (void)doctor_read(root, text, sizeof(text), "proc/net/snmp");
    /* Two lines begin with "Tcp:", the names and the values; 10 values precede OutSegs and
     * RetransSegs. */
    const char *line = strstr(text, "\nTcp: ");
    line = line != NULL ? strstr(line + 1, "\nTcp: ") : NULL;
    if (line == NULL ||
        sscanf(line, " Tcp: %*d %*d %*d %*d %*d %*d %*d %*d %*d %*d %20llu %20llu", &sent,
               &again) != 2 ||
        again < LEAST || sent / SEGMENTS_PER_EVENT > again) {
        return;
    }
    doctor_add(findings, DOCTOR_INFO, "TCP_RETRANSMISSIONS", "nstat -az TcpRetransSegs TcpOutSegs",
               "tcp: %llu of %llu segments were sent again since this machine was started; iWARP "
               "in software counts here, too",
               again, sent);
}

static void check_tcp(const struct doctor_machine *machine, struct doctor_findings *findings)
{
    const struct doctor_root *root = &machine->root;
    enum { FILES_WANTED = 4096 };
    char text[DOCTOR_VALUE_MAX];
    uint64_t ecn = 0;
    check_window(root, "tcp_rmem", "4096 131072 16777216", findings);
    check_window(root, "tcp_wmem", "4096 65536 16777216", findings);
    if (doctor_read_number(root, &ecn, "proc/sys/net/ipv4/tcp_ecn") && ecn != 1) {
        doctor_add(findings, DOCTOR_INFO, "TCP_ECN_OFF", "sysctl -w net.ipv4.tcp_ecn=1",
                   "tcp: this host does not ask for ECN on the connections it opens");
    }
    if (doctor_read(root, text, sizeof(text), "proc/sys/net/ipv4/tcp_allowed_congestion_control") ==
            0 &&
        strstr(text, "dctcp") == NULL) {
        char remedy[DOCTOR_TEXT_MAX];
        (void)snprintf(remedy, sizeof(remedy),
                       "modprobe tcp_dctcp && sysctl -w "
                       "net.ipv4.tcp_allowed_congestion_control='%.200s dctcp'",
                       text);
        doctor_add(findings, DOCTOR_INFO, "NO_DCTCP", remedy,
                   "tcp: programs may not use dctcp, which suits networks whose switches mark "
                   "congestion (ECN)");
    }
    if (machine->files_soft >= 0 && machine->files_soft < FILES_WANTED) {
        doctor_add(findings, DOCTOR_INFO, "FEW_DESCRIPTORS", "ulimit -n 65536",
                   "a process may have %lld descriptors; each endpoint takes one or more",
                   (long long)machine->files_soft);
    }
    check_retransmissions(root, findings);
}

/* ----------------------------------------------------------------------------------- all checks */

void doctor_check_machine(const struct doctor_machine *machine,
                          const struct doctor_devices *devices, struct doctor_findings *findings)
{
    const struct doctor_root *root = &machine->root;
    bool any_device = devices->count > 0;
    if (!doctor_is_folder(root, "sys/class")) {
        doctor_add(findings, DOCTOR_ERROR, "NO_SYSFS", "mount -t sysfs sysfs /sys",
                   "sysfs is not mounted, so no device can be seen");
    } else {
        check_devices(machine, any_device, findings);
    }
    if (devices->left_out) {
        doctor_add(findings, DOCTOR_WARNING, "TOO_MANY_DEVICES", "ls /sys/class/infiniband",
                   "only the first %d devices, and ports of a device, were examined",
                   DOCTOR_DEVICE_MAX);
    }
    if (any_device) {
        check_modules(root, findings);
        check_libraries(machine, findings);
        check_nodes(machine, findings);
        check_memlock(machine, findings);
    }
    check_shm(machine, findings);
    check_tcp(machine, findings);
}
