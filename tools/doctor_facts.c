/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Reads the facts about the devices and the machine. File formats are the kernel's:
 * drivers/infiniband/core/sysfs.c for devices, drivers/pci/pci-sysfs.c for adapters, proc(5) for
 * the process.
 */
#include "doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_CA = 1, NODE_RNIC = 4 }; /* enum rdma_node_type */

/* -------------------------------------------------------------------------------------- drivers */

static const struct doctor_driver drivers[] = {
    { "mlx5_core", "mlx5_ib", "mlx5" },
    { "mlx4_core", "mlx4_ib", "mlx4" },
    { "ib_mthca", "ib_mthca", "mthca" },
    { "bnxt_en", "bnxt_re", "bnxt_re" },
    { "ice", "irdma", "irdma" },
    { "i40e", "irdma", "irdma" },
    { "idpf", "irdma", "irdma" },
    { "cxgb4", "iw_cxgb4", "cxgb4" },
    { "qede", "qedr", "qedr" },
    { "be2net", "ocrdma", "ocrdma" },
    { "hns3", "hns_roce_hw_v2", "hns" },
    { "efa", "efa", "efa" },
    { "erdma", "erdma", "erdma" },
    { "mana", "mana_ib", "mana" },
    { "hfi1", "hfi1", "hfi1verbs" },
    { "ib_qib", "ib_qib", "ipathverbs" },
    { "vmw_pvrdma", "vmw_pvrdma", "vmw_pvrdma" },
    { "ionic", "ionic_rdma", "ionic" },
    { "rxe", "rdma_rxe", "rxe" },
    { "siw", "siw", "siw" },
};

const struct doctor_driver *doctor_driver_find(const char *kernel)
{
    for (size_t i = 0; i < TOOL_COUNT_OF(drivers); i++) {
        if (strcmp(drivers[i].kernel, kernel) == 0) {
            return &drivers[i];
        }
    }
    return NULL;
}

const char *doctor_fabric_name(enum doctor_fabric fabric)
{
    switch (fabric) {
    case DOCTOR_IB:
        return "ib";
    case DOCTOR_ROCE:
        return "roce";
    case DOCTOR_IWARP:
        return "iwarp";
    case DOCTOR_OTHER:
        break;
    }
    return "other";
}

unsigned doctor_roce_mtu(uint64_t link_mtu)
{
    /* Headers: GRH, UDP, BTH, XRC, atomic, ICRC, as iboe_get_mtu() in the kernel's
     * include/rdma/ib_addr.h. */
    enum { HEADERS = 40 + 8 + 12 + 4 + 28 + 4, SMALLEST = 256, LARGEST = 4096 };
    unsigned mtu = LARGEST;
    while (mtu >= SMALLEST && mtu + HEADERS > link_mtu) {
        mtu /= 2;
    }
    return mtu >= SMALLEST ? mtu : 0;
}

/* ----------------------------------------------------------------------------------------- GIDs */

/* The kernel writes all eight groups of four digits. */
static bool is_gid(const char *text)
{
    size_t colons = 0;
    for (const char *at = text; *at != '\0'; at++) {
        colons += *at == ':' ? 1 : 0;
    }
    return colons == 7 && strlen(text) == 39 &&
           text[strspn(text, "0123456789abcdefABCDEF:")] == '\0';
}

static bool is_zero_gid(const char *text)
{
    return text[strspn(text, "0:")] == '\0';
}

static bool read_gid(const struct doctor_root *root, const struct doctor_port *port, unsigned index,
                     struct doctor_gid *out)
{
    char text[DOCTOR_VALUE_MAX];
    const char *device = port->device;
    unsigned long long number = port->number;
    if (doctor_read(root, text, sizeof(text), "sys/class/infiniband/%s/ports/%llu/gids/%u", device,
                    number, index) != 0 ||
        !is_gid(text) || is_zero_gid(text)) {
        return false;
    }
    *out = (struct doctor_gid){ .index = index, .link_local = strncmp(text, "fe80:", 5) == 0 };
    (void)snprintf(out->gid, sizeof(out->gid), "%.*s", (int)sizeof(out->gid) - 1, text);
    /* Reading either file fails with EINVAL if the entry does not belong to an Ethernet port. */
    (void)doctor_read(root, text, sizeof(text),
                      "sys/class/infiniband/%s/ports/%llu/gid_attrs/types/%u", device, number,
                      index);
    if (strcmp(text, "RoCE v2") == 0) {
        out->kind = DOCTOR_GID_V2;
    } else if (strcmp(text, "IB/RoCE v1") == 0) {
        out->kind = DOCTOR_GID_V1;
    }
    (void)doctor_read_name(root, out->netdev,
                           "sys/class/infiniband/%s/ports/%llu/gid_attrs/ndevs/%u", device, number,
                           index);
    return true;
}

/* Returns the name as an index, -1 if it is not a number. */
static long index_of(const char *name)
{
    char *end = NULL;
    errno = 0;
    long index = name[0] >= '0' && name[0] <= '9' ? strtol(name, &end, 10) : -1;
    return index >= 0 && errno == 0 && *end == '\0' && index <= INT32_MAX ? index : -1;
}

/* Returns false if memory is short. */
static bool read_gids(const struct doctor_root *root, struct doctor_port *port)
{
    struct doctor_names names = doctor_list(root, "sys/class/infiniband/%s/ports/%llu/gids",
                                            port->device, (unsigned long long)port->number);
    port->gid_room = names.count;
    size_t count = names.count < DOCTOR_GID_MAX ? names.count : DOCTOR_GID_MAX;
    port->gids = count > 0 ? calloc(count, sizeof(*port->gids)) : NULL;
    for (size_t i = 0; i < count && port->gids != NULL; i++) {
        long index = index_of(names.items[i]);
        if (index >= 0 && read_gid(root, port, (unsigned)index, &port->gids[port->gid_count])) {
            port->gid_count++;
        }
    }
    doctor_names_free(&names);
    return count == 0 || port->gids != NULL;
}

/* --------------------------------------------------------------------------------------- netdev */

/* Finds the port's netdev among those of its adapter: dev_port counts from 0. */
static void find_netdev_of_adapter(const struct doctor_root *root, struct doctor_port *port)
{
    struct doctor_names names = doctor_list(root, "sys/class/infiniband/%s/device/net",
                                            port->device);
    for (size_t i = 0; i < names.count; i++) {
        uint64_t dev_port = 0;
        bool told = doctor_read_number(root, &dev_port,
                                       "sys/class/infiniband/%s/device/net/%s/dev_port",
                                       port->device, names.items[i]);
        bool fits = told ? dev_port + 1 == port->number : names.count == 1;
        if (fits && strlen(names.items[i]) < sizeof(port->netdev)) {
            memcpy(port->netdev, names.items[i], strlen(names.items[i]) + 1);
            break;
        }
    }
    doctor_names_free(&names);
}

/* An iWARP port's GID begins with its netdev's hardware address; siw has no other link to its
 * netdev. */
static void find_netdev_by_address(const struct doctor_root *root, struct doctor_port *port)
{
    if (port->gid_count == 0) {
        return;
    }
    const char *gid = port->gids[0].gid; /* "0242:ac11:0002:..." */
    char address[18];
    (void)snprintf(address, sizeof(address), "%.2s:%.2s:%.2s:%.2s:%.2s:%.2s", gid, gid + 2, gid + 5,
                   gid + 7, gid + 10, gid + 12);
    struct doctor_names names = doctor_list(root, "sys/class/net");
    for (size_t i = 0; i < names.count && port->netdev[0] == '\0'; i++) {
        char text[DOCTOR_VALUE_MAX];
        const char *name = names.items[i];
        if (doctor_read(root, text, sizeof(text), "sys/class/net/%s/address", name) == 0 &&
            strcmp(text, address) == 0 && strlen(name) < sizeof(port->netdev)) {
            memcpy(port->netdev, name, strlen(name) + 1);
        }
    }
    doctor_names_free(&names);
}

/* Uses the first netdev of a GID in this network namespace, else the first of all. */
static void find_netdev_of_gids(const struct doctor_root *root, struct doctor_port *port)
{
    for (size_t i = 0; i < port->gid_count; i++) {
        const char *netdev = port->gids[i].netdev;
        bool here = netdev[0] != '\0' && doctor_is_folder(root, "sys/class/net/%s", netdev);
        if (here || port->netdev[0] == '\0') {
            memcpy(port->netdev, netdev, sizeof(port->netdev));
        }
        if (here) {
            return;
        }
    }
}

static void find_netdev(const struct doctor_root *root, struct doctor_port *port)
{
    find_netdev_of_gids(root, port);
    if (port->netdev[0] == '\0') {
        (void)doctor_read_name(root, port->netdev, "sys/class/infiniband/%s/parent", port->device);
    }
    if (port->netdev[0] == '\0') {
        find_netdev_of_adapter(root, port);
    }
    if (port->netdev[0] == '\0' && port->fabric == DOCTOR_IWARP) {
        find_netdev_by_address(root, port);
    }
}

static void read_netdev(const struct doctor_root *root, struct doctor_port *port)
{
    enum { IFF_UP_BIT = 1 }; /* IFF_UP of netdevice(7) */
    find_netdev(root, port);
    if (port->netdev[0] == '\0') {
        return;
    }
    uint64_t flags = 0;
    uint64_t carrier = 0;
    port->netdev_here = doctor_is_folder(root, "sys/class/net/%s", port->netdev);
    port->netdev_up = doctor_read_number(root, &flags, "sys/class/net/%s/flags", port->netdev) &&
                      (flags & IFF_UP_BIT) != 0;
    port->carrier_known = doctor_read_number(root, &carrier, "sys/class/net/%s/carrier",
                                             port->netdev);
    port->carrier = carrier != 0;
    (void)doctor_read_number(root, &port->mtu, "sys/class/net/%s/mtu", port->netdev);
}

/* ---------------------------------------------------------------------------------------- ports */

/* Copies the text behind the number in "4: ACTIVE". */
static void after_number(const char *text, char out[DOCTOR_NAME_MAX])
{
    const char *colon = strchr(text, ':');
    const char *from = colon != NULL ? colon + 1 : text;
    (void)snprintf(out, DOCTOR_NAME_MAX, "%.*s", DOCTOR_NAME_MAX - 1, from + strspn(from, " "));
}

static void read_state(const struct doctor_root *root, struct doctor_port *port)
{
    char text[DOCTOR_VALUE_MAX];
    const char *device = port->device;
    unsigned long long number = port->number;
    port->state_error = doctor_read(root, text, sizeof(text),
                                    "sys/class/infiniband/%s/ports/%llu/state", device, number);
    after_number(text, port->state_text);
    switch (text[0]) {
    case '1':
        port->state = DOCTOR_STATE_DOWN;
        break;
    case '2':
        port->state = DOCTOR_STATE_INIT;
        break;
    case '3':
        port->state = DOCTOR_STATE_ARMED;
        break;
    case '4':
    case '5': /* ACTIVE_DEFER: the link has just failed and may come back */
        port->state = DOCTOR_STATE_ACTIVE;
        break;
    default:
        port->state = DOCTOR_STATE_UNREADABLE;
        break;
    }
    if (doctor_read(root, text, sizeof(text), "sys/class/infiniband/%s/ports/%llu/phys_state",
                    device, number) == 0) {
        after_number(text, port->physical_state);
    }
    if (doctor_read(root, text, sizeof(text), "sys/class/infiniband/%s/ports/%llu/rate", device,
                    number) == 0) {
        double rate = strtod(text, NULL);
        port->rate_gbps = rate > 0 && rate < 1e6 ? rate : 0;
    }
    (void)doctor_read_number(root, &port->subnet_manager_lid,
                             "sys/class/infiniband/%s/ports/%llu/sm_lid", device, number);
}

static enum doctor_fabric fabric_of(uint64_t node_type, const char *layer)
{
    if (node_type == NODE_RNIC) {
        return DOCTOR_IWARP;
    }
    if (node_type != NODE_CA) {
        return DOCTOR_OTHER;
    }
    return strcmp(layer, "InfiniBand") == 0 ? DOCTOR_IB
           : strcmp(layer, "Ethernet") == 0 ? DOCTOR_ROCE
                                            : DOCTOR_OTHER;
}

static void read_fabric(const struct doctor_root *root, struct doctor_port *port)
{
    uint64_t node_type = NODE_CA;
    char layer[DOCTOR_VALUE_MAX];
    (void)doctor_read_number(root, &node_type, "sys/class/infiniband/%s/node_type", port->device);
    int error = doctor_read(root, layer, sizeof(layer),
                            "sys/class/infiniband/%s/ports/%llu/link_layer", port->device,
                            (unsigned long long)port->number);
    port->fabric_known = error == 0 || node_type == NODE_RNIC;
    port->fabric = fabric_of(node_type, layer);
}

/* Finds the driver. A software device may show its netdev's adapter as its own. */
static void read_driver(const struct doctor_root *root, struct doctor_port *port)
{
    uint64_t node_type = 0;
    char description[DOCTOR_VALUE_MAX];
    (void)doctor_read_number(root, &node_type, "sys/class/infiniband/%s/node_type", port->device);
    (void)doctor_read(root, description, sizeof(description), "sys/class/infiniband/%s/node_desc",
                      port->device);
    const char *software = NULL;
    if (doctor_exists(root, "sys/class/infiniband/%s/parent", port->device)) {
        software = "rxe"; /* only this driver has the attribute */
    } else if (strncmp(description, "Software iWARP", 14) == 0 ||
               (node_type == NODE_RNIC &&
                !doctor_exists(root, "sys/class/infiniband/%s/device", port->device))) {
        software = "siw";
    }
    port->software = software != NULL;
    if (software != NULL) {
        (void)snprintf(port->kernel_driver, sizeof(port->kernel_driver), "%s", software);
    } else {
        (void)doctor_read_link(root, port->kernel_driver, "sys/class/infiniband/%s/device/driver",
                               port->device);
    }
    port->driver = doctor_driver_find(port->kernel_driver);
}

static bool is_pci_address(const char *name)
{
    unsigned domain = 0;
    unsigned bus = 0;
    unsigned device = 0;
    unsigned function = 0;
    int length = 0;
    return sscanf(name, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &length) == 4 &&
           (size_t)length == strlen(name);
}

static void read_adapter(const struct doctor_root *root, struct doctor_port *port)
{
    port->numa_node = DOCTOR_UNKNOWN;
    if (port->software ||
        !doctor_read_link(root, port->pci, "sys/class/infiniband/%s/device", port->device) ||
        !is_pci_address(port->pci)) {
        port->pci[0] = '\0';
        return;
    }
    uint64_t node = 0;
    if (doctor_read_number(root, &node, "sys/class/infiniband/%s/device/numa_node", port->device) &&
        node < INT32_MAX) {
        port->numa_node = (int64_t)node;
    }
    port->is_virtual_function = doctor_exists(root, "sys/class/infiniband/%s/device/physfn",
                                              port->device);
}

/* Finds the character device by which programs use the device. */
static void read_verbs_node(const struct doctor_root *root, struct doctor_port *port)
{
    struct doctor_names names = doctor_list(root, "sys/class/infiniband_verbs");
    for (size_t i = 0; i < names.count && port->verbs_node[0] == '\0'; i++) {
        char device[DOCTOR_NAME_MAX];
        if (strlen(names.items[i]) < sizeof(port->verbs_node) &&
            doctor_read_name(root, device, "sys/class/infiniband_verbs/%s/ibdev", names.items[i]) &&
            strcmp(device, port->device) == 0) {
            memcpy(port->verbs_node, names.items[i], strlen(names.items[i]) + 1);
        }
    }
    doctor_names_free(&names);
}

/* -------------------------------------------------------------------------------------- devices */

static struct doctor_port *add_port(struct doctor_devices *devices, const char *device)
{
    if (devices->count == devices->room) {
        size_t more = devices->room > 0 ? devices->room * 2 : 8;
        struct doctor_port *ports = realloc(devices->ports, more * sizeof(*ports));
        if (ports == NULL) {
            devices->lost = true;
            return NULL;
        }
        devices->ports = ports;
        devices->room = more;
    }
    struct doctor_port *port = &devices->ports[devices->count++];
    *port = (struct doctor_port){ .state = DOCTOR_STATE_UNREADABLE };
    memcpy(port->device, device, strlen(device) + 1);
    return port;
}

static void read_port(const struct doctor_root *root, struct doctor_devices *devices,
                      const char *device, uint64_t number, bool first)
{
    struct doctor_port *port = add_port(devices, device);
    if (port == NULL) {
        return;
    }
    port->number = number;
    port->first = first;
    read_driver(root, port);
    read_fabric(root, port);
    read_adapter(root, port);
    read_verbs_node(root, port);
    if (number == 0) {
        return;
    }
    read_state(root, port);
    if (!read_gids(root, port)) {
        devices->lost = true;
    }
    read_netdev(root, port);
}

static void read_device(const struct doctor_root *root, struct doctor_devices *devices,
                        const char *device)
{
    bool first = true;
    struct doctor_names names = doctor_list(root, "sys/class/infiniband/%s/ports", device);
    devices->left_out = devices->left_out || names.count > DOCTOR_DEVICE_MAX;
    for (size_t i = 0; i < names.count && i < DOCTOR_DEVICE_MAX; i++) {
        long number = index_of(names.items[i]);
        if (number > 0) {
            read_port(root, devices, device, (uint64_t)number, first);
            first = false;
        }
    }
    doctor_names_free(&names);
    if (first) {
        read_port(root, devices, device, 0, true);
    }
}

void doctor_devices_read(const struct doctor_root *root, struct doctor_devices *out)
{
    *out = (struct doctor_devices){ .ports = NULL };
    struct doctor_names names = doctor_list(root, "sys/class/infiniband");
    out->left_out = names.count > DOCTOR_DEVICE_MAX;
    for (size_t i = 0; i < names.count && i < DOCTOR_DEVICE_MAX; i++) {
        if (strlen(names.items[i]) < DOCTOR_NAME_MAX &&
            doctor_is_folder(root, "sys/class/infiniband/%s", names.items[i])) {
            read_device(root, out, names.items[i]);
        }
    }
    doctor_names_free(&names);
}

void doctor_devices_free(struct doctor_devices *devices)
{
    for (size_t i = 0; i < devices->count; i++) {
        free(devices->ports[i].gids);
        doctor_findings_free(&devices->ports[i].findings);
    }
    free(devices->ports);
    *devices = (struct doctor_devices){ .ports = NULL };
}

/* ---------------------------------------------------------------------------------- the process */

/* Returns the text behind the label at the beginning of a line, NULL if no line has it. */
static const char *find_line(const char *text, const char *label)
{
    size_t length = strlen(label);
    const char *line = text;
    while (line != NULL && strncmp(line, label, length) != 0) {
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return line != NULL ? line + length : NULL;
}

/* Reads a limit; *end is the end of its text. text may be NULL. */
static int64_t read_limit(const char *text, const char **end)
{
    *end = NULL;
    if (text == NULL) {
        return DOCTOR_UNKNOWN;
    }
    text += strspn(text, " ");
    if (strncmp(text, "unlimited", 9) == 0) {
        *end = text + 9;
        return DOCTOR_UNLIMITED;
    }
    if (*text < '0' || *text > '9') {
        return DOCTOR_UNKNOWN;
    }
    char *after = NULL;
    errno = 0;
    long long value = strtoll(text, &after, 10);
    *end = after;
    return errno == 0 ? value : DOCTOR_UNLIMITED;
}

static void read_limits(const struct doctor_root *root, struct doctor_machine *machine)
{
    char text[4096];
    int error = root->live ? ENOENT : doctor_read(root, text, sizeof(text), "limits");
    if (error != 0) {
        (void)doctor_read(root, text, sizeof(text), "proc/self/limits");
    }
    const char *end = NULL;
    machine->memlock_soft = read_limit(find_line(text, "Max locked memory"), &end);
    machine->memlock_hard = read_limit(end, &end);
    machine->files_soft = read_limit(find_line(text, "Max open files"), &end);
}

static void read_process(const struct doctor_root *root, struct doctor_machine *machine)
{
    enum { CAP_IPC_LOCK_BIT = 14, CAP_SYS_PTRACE_BIT = 19 }; /* capabilities(7) */
    char text[16384];
    char map[DOCTOR_VALUE_MAX];
    unsigned long long inside = 1;
    unsigned long long outside = 1;
    unsigned long long length = 0;
    (void)doctor_read(root, text, sizeof(text), "proc/self/status");
    const char *capabilities = find_line(text, "CapEff:");
    uint64_t bits = capabilities != NULL ? strtoull(capabilities, NULL, 16) : 0;
    /* The kernel checks the capability in the initial user namespace; root of a container may lack
     * it. */
    bool first_namespace = doctor_read(root, map, sizeof(map), "proc/self/uid_map") == 0 &&
                           sscanf(map, "%llu %llu %llu", &inside, &outside, &length) == 3 &&
                           inside == 0 && outside == 0 && length >= UINT32_MAX;
    machine->pins_freely = first_namespace && (bits >> CAP_IPC_LOCK_BIT & 1) != 0;
    machine->traces_freely = (bits >> CAP_SYS_PTRACE_BIT & 1) != 0;
    const char *cpus = find_line(text, "Cpus_allowed_list:");
    machine->cpus_known = cpus != NULL &&
                          doctor_cpus_parse(cpus + strspn(cpus, " \t"), &machine->cpus) > 0;
}

/* ------------------------------------------------------------------------------------ libraries */

static void add_folder(struct doctor_machine *machine, const char *path, size_t length)
{
    while (length > 0 && path[0] == '/') {
        path++;
        length--;
    }
    if (length == 0 || length >= DOCTOR_VALUE_MAX || machine->folder_count == DOCTOR_FOLDER_MAX) {
        return;
    }
    char *folder = machine->folders[machine->folder_count++];
    memcpy(folder, path, length);
    folder[length] = '\0';
}

/* Adds the folders listed in a file of ld.so.conf(5), each alone on its line. */
static void add_folders_of(struct doctor_machine *machine, const char *text)
{
    while (*text != '\0') {
        text += strspn(text, " \t\r\n");
        if (*text == '/') {
            add_folder(machine, text, strcspn(text, " \t\r\n#"));
        }
        text += strcspn(text, "\n");
    }
}

static void find_folders(struct doctor_machine *machine)
{
    static const char *const usual[] = { "lib64", "usr/lib64", "lib", "usr/lib", "usr/local/lib" };
    const struct doctor_root *root = &machine->root;
    char text[4096];
    const char *list = root->live ? getenv("LD_LIBRARY_PATH") : NULL;
    while (list != NULL && *list != '\0') {
        size_t length = strcspn(list, ":");
        if (list[0] == '/') {
            add_folder(machine, list, length);
        }
        list += length + (list[length] == ':' ? 1 : 0);
    }
    if (doctor_read(root, text, sizeof(text), "etc/ld.so.conf") == 0) {
        add_folders_of(machine, text);
    }
    struct doctor_names names = doctor_list(root, "etc/ld.so.conf.d");
    for (size_t i = 0; i < names.count; i++) {
        if (doctor_read(root, text, sizeof(text), "etc/ld.so.conf.d/%s", names.items[i]) == 0) {
            add_folders_of(machine, text);
        }
    }
    doctor_names_free(&names);
    for (size_t i = 0; i < TOOL_COUNT_OF(usual); i++) {
        add_folder(machine, usual[i], strlen(usual[i]));
    }
}

/* libibverbs loads only drivers of its own private ABI, whose number is part of a symbol version of
 * the library. */
static uint64_t read_provider_abi(const struct doctor_root *root, const char *library)
{
    enum { LIBRARY_MAX = 4 << 20 };
    static const char label[] = "IBVERBS_PRIVATE_";
    char *bytes = malloc(LIBRARY_MAX);
    if (bytes == NULL) {
        return 0;
    }
    size_t length = doctor_read_bytes(root, bytes, LIBRARY_MAX - 1, "%s", library);
    bytes[length] = '\0';
    const char *at = memmem(bytes, length, label, sizeof(label) - 1);
    uint64_t abi = at != NULL ? strtoull(at + sizeof(label) - 1, NULL, 10) : 0;
    free(bytes);
    return abi;
}

static void find_libraries(struct doctor_machine *machine)
{
    const struct doctor_root *root = &machine->root;
    machine->libraries_known = root->live || doctor_is_folder(root, "usr") ||
                               doctor_is_folder(root, "lib") || doctor_is_folder(root, "lib64");
    find_folders(machine);
    for (size_t i = 0; i < machine->folder_count; i++) {
        const char *folder = machine->folders[i];
        bool found = machine->verbs_library[0] != '\0';
        if (!found && doctor_exists(root, "%s/libibverbs.so.1", folder)) {
            (void)snprintf(machine->verbs_library, sizeof(machine->verbs_library),
                           "%s/libibverbs.so.1", folder);
        }
        machine->connection_library = machine->connection_library ||
                                      doctor_exists(root, "%s/librdmacm.so.1", folder);
    }
    if (machine->verbs_library[0] != '\0') {
        machine->provider_abi = read_provider_abi(root, machine->verbs_library);
    }
}

/* ---------------------------------------------------------------------------------- the machine */

static size_t count_nodes(const struct doctor_root *root)
{
    char text[DOCTOR_VALUE_MAX];
    struct doctor_cpus nodes; /* a list of nodes has the same format */
    return doctor_read(root, text, sizeof(text), "sys/devices/system/node/online") == 0
               ? doctor_cpus_parse(text, &nodes)
               : 0;
}

void doctor_machine_read(const struct doctor_root *root, struct doctor_machine *out)
{
    *out = (struct doctor_machine){ .root = *root };
    out->in_container = doctor_exists(root, ".dockerenv") ||
                        doctor_exists(root, "run/.containerenv") ||
                        doctor_exists(root, "run/systemd/container");
    out->device_folder = doctor_is_folder(root, "dev");
    out->node_count = count_nodes(root);
    read_limits(root, out);
    read_process(root, out);
    find_libraries(out);
}
