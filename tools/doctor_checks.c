/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Checks a device: one finding for each cause, none for its consequences. */
#include "doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { QUOTED_MAX = 3 * DOCTOR_NAME_MAX };

/* ------------------------------------------------------------------------------------- findings */

void doctor_add(struct doctor_findings *findings, enum doctor_severity severity, const char *code,
                const char *remedy, const char *format, ...)
{
    if (findings->count == findings->room) {
        size_t more = findings->room > 0 ? findings->room * 2 : 4;
        struct doctor_finding *items = realloc(findings->items, more * sizeof(*items));
        if (items == NULL) {
            findings->lost = true;
            return;
        }
        findings->items = items;
        findings->room = more;
    }
    struct doctor_finding *finding = &findings->items[findings->count++];
    finding->severity = severity;
    finding->code = code;
    (void)snprintf(finding->remedy, sizeof(finding->remedy), "%s", remedy != NULL ? remedy : "");
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    (void)vsnprintf(finding->text, sizeof(finding->text), format, arguments);
    va_end(arguments);
}

void doctor_findings_free(struct doctor_findings *findings)
{
    free(findings->items);
    *findings = (struct doctor_findings){ .items = NULL };
}

/* ----------------------------------------------------------------------------------- the device */

static void check_verbs_node(const struct doctor_machine *machine, struct doctor_port *port)
{
    if (port->verbs_node[0] == '\0') {
        /* If the whole class is missing, a finding on the machine reports it. */
        if (doctor_is_folder(&machine->root, "sys/class/infiniband_verbs")) {
            doctor_add(&port->findings, DOCTOR_ERROR, "NO_DEVICE_NODE",
                       "modprobe -r ib_uverbs && modprobe ib_uverbs",
                       "no program can use this device: it has no entry in "
                       "/sys/class/infiniband_verbs");
        }
        return;
    }
    doctor_check_node(machine, port->verbs_node, &port->findings);
}

static bool is_listed(const struct doctor_root *root, const char *driver)
{
    bool listed = false;
    struct doctor_names names = doctor_list(root, "etc/libibverbs.d");
    for (size_t i = 0; i < names.count && !listed; i++) {
        char text[4096];
        (void)doctor_read(root, text, sizeof(text), "etc/libibverbs.d/%s", names.items[i]);
        char *rest = NULL;
        char *line = strtok_r(text, "\n", &rest);
        while (line != NULL && !listed) {
            char name[DOCTOR_NAME_MAX];
            listed = sscanf(line, " driver %63s", name) == 1 && strcmp(name, driver) == 0;
            line = strtok_r(NULL, "\n", &rest);
        }
    }
    doctor_names_free(&names);
    return listed;
}

/* Looks for lib<driver>-rdmav<number>.so in the library folders. Returns the matching number if
 * there is one, else another number found, else 0. */
static uint64_t find_user_driver(const struct doctor_machine *machine, const char *driver)
{
    uint64_t other = 0;
    char prefix[DOCTOR_NAME_MAX];
    int length = snprintf(prefix, sizeof(prefix), "lib%s-rdmav", driver);
    for (size_t i = 0; i < machine->folder_count; i++) {
        const char *folder = machine->folders[i];
        struct doctor_names names = doctor_list(&machine->root, "%s/libibverbs", folder);
        for (size_t j = 0; j < names.count; j++) {
            char *end = NULL;
            uint64_t abi = strncmp(names.items[j], prefix, (size_t)length) == 0
                               ? strtoull(names.items[j] + length, &end, 10)
                               : 0;
            if (abi > 0 && strcmp(end, ".so") == 0 &&
                doctor_exists(&machine->root, "%s/libibverbs/%s", folder, names.items[j])) {
                other = other != machine->provider_abi || other == 0 ? abi : other;
            }
        }
        doctor_names_free(&names);
        if (machine->provider_abi != 0 &&
            doctor_exists(&machine->root, "%s/%s%llu.so", folder, prefix,
                          (unsigned long long)machine->provider_abi)) {
            other = machine->provider_abi;
        }
    }
    return other;
}

static void check_user_driver(const struct doctor_machine *machine, struct doctor_port *port)
{
    static const char install[] = "apt install ibverbs-providers (Debian, Ubuntu); dnf install "
                                  "libibverbs (Fedora, RHEL)";
    if (!machine->libraries_known || machine->verbs_library[0] == '\0' || port->driver == NULL) {
        return;
    }
    const char *driver = port->driver->user;
    uint64_t found = find_user_driver(machine, driver);
    if (found == 0) {
        doctor_add(&port->findings, DOCTOR_ERROR, "DRIVER_MISSING", install,
                   "libibverbs has no driver for this device: lib%s-rdmav*.so is not installed",
                   driver);
    } else if (machine->provider_abi != 0 && found != machine->provider_abi) {
        doctor_add(&port->findings, DOCTOR_ERROR, "DRIVER_MISMATCH", install,
                   "lib%s-rdmav%llu.so does not fit: /%s loads drivers with -rdmav%llu only",
                   driver, (unsigned long long)found, machine->verbs_library,
                   (unsigned long long)machine->provider_abi);
    } else if (doctor_is_folder(&machine->root, "etc/libibverbs.d") &&
               !is_listed(&machine->root, driver)) {
        char remedy[DOCTOR_TEXT_MAX];
        (void)snprintf(remedy, sizeof(remedy), "echo driver %s >/etc/libibverbs.d/%s.driver",
                       driver, driver);
        doctor_add(&port->findings, DOCTOR_ERROR, "DRIVER_MISSING", remedy,
                   "libibverbs does not load its driver for this device: no file of "
                   "/etc/libibverbs.d says \"driver %s\"",
                   driver);
    }
}

/* ----------------------------------------------------------------------------------------- link */

static void add_unreadable(struct doctor_port *port)
{
    char quoted[QUOTED_MAX];
    char remedy[DOCTOR_TEXT_MAX];
    (void)snprintf(remedy, sizeof(remedy), "dmesg | grep -F -e %s -e %s",
                   doctor_quote(port->device, quoted, sizeof(quoted)),
                   port->pci[0] != '\0' ? port->pci : "infiniband");
    if (port->number == 0) {
        doctor_add(&port->findings, DOCTOR_ERROR, "PORT_UNREADABLE", remedy,
                   "the device shows no port; its driver has failed, or it is going away");
    } else if (!port->fabric_known) {
        doctor_add(&port->findings, DOCTOR_ERROR, "PORT_UNREADABLE", remedy,
                   "the driver does not report the kind of the port");
    } else if (port->state_error != 0) {
        doctor_add(&port->findings, DOCTOR_ERROR, "PORT_UNREADABLE", remedy,
                   "the driver does not report the port's state: %s", strerror(port->state_error));
    } else {
        doctor_add(&port->findings, DOCTOR_ERROR, "PORT_UNREADABLE", remedy,
                   "the port's state is \"%s\", which rdmux does not know", port->state_text);
    }
}

static void add_infiniband_down(struct doctor_port *port)
{
    char quoted[QUOTED_MAX];
    char remedy[DOCTOR_TEXT_MAX];
    unsigned long long number = port->number;
    (void)doctor_quote(port->device, quoted, sizeof(quoted));
    if (strcmp(port->physical_state, "Disabled") == 0) {
        (void)snprintf(remedy, sizeof(remedy), "ibportstate -C %s -P %llu -D 0 %llu enable", quoted,
                       number, number);
        doctor_add(&port->findings, DOCTOR_ERROR, "PORT_DOWN", remedy,
                   "the port is down: it is disabled");
        return;
    }
    (void)snprintf(remedy, sizeof(remedy),
                   "connect the cable and see that its other end is enabled, then: rdma link show "
                   "%s/%llu",
                   quoted, number);
    doctor_add(&port->findings, DOCTOR_ERROR, "PORT_DOWN", remedy,
               "the port is down: no link (physical state %s)",
               port->physical_state[0] != '\0' ? port->physical_state : "unknown");
}

/* Returns false if the port cannot be used. */
static bool check_infiniband_link(struct doctor_port *port)
{
    switch (port->state) {
    case DOCTOR_STATE_ACTIVE:
        return true;
    case DOCTOR_STATE_DOWN:
        add_infiniband_down(port);
        return false;
    case DOCTOR_STATE_INIT:
    case DOCTOR_STATE_ARMED:
        doctor_add(&port->findings, DOCTOR_ERROR, "NO_SUBNET_MANAGER",
                   "systemctl start opensm (on one host of the fabric, or the one in a switch)",
                   "the link is up, but the port stays in %s: %s", port->state_text,
                   port->subnet_manager_lid == 0
                       ? "no subnet manager runs on this fabric"
                       : "the subnet manager that configured it is gone or does not finish");
        return false;
    case DOCTOR_STATE_UNREADABLE:
        break;
    }
    add_unreadable(port);
    return false;
}

static void add_netdev_missing(const struct doctor_machine *machine, struct doctor_port *port)
{
    static const char in_container
        [] = "give the container the adapter's network interface: docker run --network=host, or an "
             "SR-IOV network with its RDMA device";
    char quoted[QUOTED_MAX];
    char remedy[DOCTOR_TEXT_MAX];
    if (port->netdev[0] != '\0') {
        (void)snprintf(remedy, sizeof(remedy), "ip link set %s netns %s (where the interface is)",
                       doctor_quote(port->netdev, quoted, sizeof(quoted)), "PID");
        doctor_add(&port->findings, DOCTOR_ERROR, "NETDEV_MISSING",
                   machine->in_container ? in_container : remedy,
                   "network interface %s, to which the port's addresses belong, is not in this "
                   "network namespace",
                   port->netdev);
    } else {
        doctor_add(&port->findings, DOCTOR_ERROR, "NETDEV_MISSING",
                   machine->in_container ? in_container : "rdma link show",
                   "no network interface of this network namespace belongs to the port");
    }
}

/* Returns false if the port cannot be used. */
static bool check_ethernet_link(const struct doctor_machine *machine, struct doctor_port *port)
{
    char quoted[QUOTED_MAX];
    char remedy[DOCTOR_TEXT_MAX];
    if (port->state == DOCTOR_STATE_UNREADABLE) {
        add_unreadable(port);
        return false;
    }
    /* siw has no link to its interface, so not finding one means nothing there. */
    if (!port->netdev_here && (port->netdev[0] != '\0' || port->fabric == DOCTOR_ROCE)) {
        add_netdev_missing(machine, port);
        return false;
    }
    if (port->state == DOCTOR_STATE_ACTIVE) {
        return true;
    }
    (void)doctor_quote(port->netdev, quoted, sizeof(quoted));
    if (port->netdev_here && !port->netdev_up) {
        (void)snprintf(remedy, sizeof(remedy), "ip link set %s up", quoted);
        doctor_add(&port->findings, DOCTOR_ERROR, "NETDEV_DOWN", remedy,
                   "network interface %s is down, and the port with it", port->netdev);
    } else if (port->netdev_here && port->carrier_known && !port->carrier) {
        (void)snprintf(remedy, sizeof(remedy),
                       "connect the cable and enable the switch's port, then: ethtool %s", quoted);
        doctor_add(&port->findings, DOCTOR_ERROR, "NO_CARRIER", remedy,
                   "network interface %s has no carrier: no cable, or the other end is off",
                   port->netdev);
    } else {
        (void)snprintf(remedy, sizeof(remedy), "ip link set %s down && ip link set %s up", quoted,
                       quoted);
        doctor_add(&port->findings, DOCTOR_ERROR, "PORT_DOWN",
                   port->netdev_here ? remedy : "rdma link show",
                   "the port is %s (physical state %s)", port->state_text,
                   port->physical_state[0] != '\0' ? port->physical_state : "unknown");
    }
    return false;
}

/* ----------------------------------------------------------------------------------------- GIDs */

static void add_roce_disabled(struct doctor_port *port)
{
    char remedy[DOCTOR_TEXT_MAX];
    if (port->pci[0] != '\0') {
        (void)snprintf(remedy, sizeof(remedy),
                       "devlink dev param set pci/%s name enable_roce value true cmode driverinit "
                       "&& devlink dev reload pci/%s",
                       port->pci, port->pci);
    } else {
        (void)snprintf(remedy, sizeof(remedy), "devlink dev param show");
    }
    doctor_add(&port->findings, DOCTOR_ERROR, "RDMA_DISABLED", remedy,
               "the port has no GID table: RoCE is switched off in the driver");
}

static void check_roce_gids(struct doctor_port *port)
{
    char quoted[QUOTED_MAX];
    char address[DOCTOR_TEXT_MAX];
    size_t v1 = 0;
    size_t v2 = 0;
    size_t v2_routable = 0;
    for (size_t i = 0; i < port->gid_count; i++) {
        v1 += port->gids[i].kind == DOCTOR_GID_V1 ? 1 : 0;
        v2 += port->gids[i].kind == DOCTOR_GID_V2 ? 1 : 0;
        v2_routable += port->gids[i].kind == DOCTOR_GID_V2 && !port->gids[i].link_local ? 1 : 0;
    }
    (void)snprintf(address, sizeof(address), "ip address add ADDRESS/PREFIX dev %s",
                   doctor_quote(port->netdev, quoted, sizeof(quoted)));
    if (port->gid_room == 0) {
        add_roce_disabled(port);
    } else if (port->gid_count == 0) {
        doctor_add(&port->findings, DOCTOR_ERROR, "NO_GID", address,
                   "the port has no GID: network interface %s has no address", port->netdev);
    } else if (v1 > 0 && v2 == 0) {
        doctor_add(
            &port->findings, DOCTOR_ERROR, "ROCE_V1_ONLY",
            "update the adapter's firmware and driver: RoCE v2 needs ConnectX-3 Pro or newer, "
            "or another make's adapter that has it",
            "the port has GIDs of RoCE v1 only, which no router forwards; rdmux takes RoCE v2");
    } else if (v2 > 0 && v2_routable == 0) {
        doctor_add(&port->findings, DOCTOR_WARNING, "LINK_LOCAL_GID_ONLY", address,
                   "the port's RoCE v2 GIDs are link-local: network interface %s has no other "
                   "address, so only hosts on the same link can be reached",
                   port->netdev);
    }
}

static void check_gids(struct doctor_port *port)
{
    char quoted[QUOTED_MAX];
    char remedy[DOCTOR_TEXT_MAX];
    if (port->fabric == DOCTOR_ROCE) {
        check_roce_gids(port);
    } else if (port->gid_count == 0) {
        (void)snprintf(remedy, sizeof(remedy), "dmesg | grep -F %s",
                       doctor_quote(port->device, quoted, sizeof(quoted)));
        doctor_add(&port->findings, DOCTOR_ERROR, "NO_GID", remedy,
                   "the port has no GID; its driver has not set it up");
    }
}

static void check_default_version(const struct doctor_root *root, struct doctor_port *port)
{
    char mode[DOCTOR_VALUE_MAX];
    char remedy[DOCTOR_TEXT_MAX];
    if (doctor_read(root, mode, sizeof(mode),
                    "sys/kernel/config/rdma_cm/%s/ports/%llu/default_roce_mode", port->device,
                    (unsigned long long)port->number) != 0 ||
        strcmp(mode, "IB/RoCE v1") != 0) {
        return;
    }
    char quoted[QUOTED_MAX];
    (void)snprintf(remedy, sizeof(remedy),
                   "echo 'RoCE v2' >/sys/kernel/config/rdma_cm/%s/ports/%llu/default_roce_mode",
                   doctor_quote(port->device, quoted, sizeof(quoted)),
                   (unsigned long long)port->number);
    doctor_add(&port->findings, DOCTOR_WARNING, "ROCE_V1_DEFAULT", remedy,
               "connections of rdma_cm take RoCE v1 on this port, which no router forwards");
}

/* -------------------------------------------------------------------------------- MTU, ECN, PFC */

static void check_mtu(struct doctor_port *port)
{
    enum { LEAST_FOR_4096 = 4096 + 96, SUGGESTED = 4200 };
    char quoted[QUOTED_MAX];
    char remedy[DOCTOR_TEXT_MAX];
    if (port->mtu == 0) {
        return;
    }
    unsigned mtu = doctor_roce_mtu(port->mtu);
    (void)snprintf(remedy, sizeof(remedy),
                   "ip link set %s mtu %d (and as much on the switches and the other hosts)",
                   doctor_quote(port->netdev, quoted, sizeof(quoted)), SUGGESTED);
    if (mtu == 0) {
        doctor_add(&port->findings, DOCTOR_ERROR, "SMALL_MTU", remedy,
                   "network interface %s has an MTU of %llu bytes, too little for RoCE",
                   port->netdev, (unsigned long long)port->mtu);
    } else if (mtu < 4096) {
        doctor_add(&port->findings, DOCTOR_WARNING, "SMALL_MTU", remedy,
                   "packets carry %u bytes, because network interface %s has an MTU of %llu; for "
                   "4096 it needs %d",
                   mtu, port->netdev, (unsigned long long)port->mtu, LEAST_FOR_4096);
    }
}

enum setting { SETTING_UNKNOWN, SETTING_OFF, SETTING_ON };

/* DCQCN settings, and the commands for one driver. */
struct ecn_state {
    enum setting notifies; /* as receiver of marked packets */
    enum setting reacts;   /* as sender of packets that were marked */
    char look[DOCTOR_TEXT_MAX];
    char remedy[DOCTOR_TEXT_MAX];
};

/* NVIDIA's own driver: the interface's ecn/roce_np/enable/0 to 7, one for each priority. */
static enum setting read_ecn_point(const struct doctor_root *root, const struct doctor_port *port,
                                   const char *point)
{
    enum setting setting = SETTING_UNKNOWN;
    for (unsigned priority = 0; priority < 8; priority++) {
        uint64_t value = 0;
        if (doctor_read_number(root, &value, "sys/class/net/%s/ecn/%s/enable/%u", port->netdev,
                               point, priority)) {
            setting = value != 0 || setting == SETTING_ON ? SETTING_ON : SETTING_OFF;
        }
    }
    return setting;
}

static enum setting read_switch(const struct doctor_root *root, const char *folder,
                                const char *device, const char *file)
{
    uint64_t value = 0;
    if (!doctor_read_number(root, &value, "sys/kernel/config/%s/%s/%s", folder, device, file)) {
        return SETTING_UNKNOWN;
    }
    return value != 0 ? SETTING_ON : SETTING_OFF;
}

static void read_mlx5_ecn(const struct doctor_root *root, const struct doctor_port *port,
                          struct ecn_state *out)
{
    char quoted[QUOTED_MAX];
    (void)doctor_quote(port->netdev, quoted, sizeof(quoted));
    out->notifies = read_ecn_point(root, port, "roce_np");
    out->reacts = read_ecn_point(root, port, "roce_rp");
    (void)snprintf(out->look, sizeof(out->look), "mlxconfig -d %s query | grep ROCE_CC_PRIO_MASK",
                   port->pci[0] != '\0' ? port->pci : "DEVICE");
    (void)snprintf(out->remedy, sizeof(out->remedy),
                   "echo 1 >/sys/class/net/%s/ecn/roce_np/enable/3; echo 1 "
                   ">/sys/class/net/%s/ecn/roce_rp/enable/3 (3: the priority of RoCE traffic)",
                   quoted, quoted);
}

/* Broadcom's and Intel's own drivers show the setting in configfs once the device's folder was
 * created there. */
static void read_bnxt_ecn(const struct doctor_root *root, const struct doctor_port *port,
                          struct ecn_state *out)
{
    char quoted[QUOTED_MAX];
    (void)doctor_quote(port->device, quoted, sizeof(quoted));
    out->notifies = read_switch(root, "bnxt_re", port->device, "ports/1/cc/ecn_enable");
    out->reacts = out->notifies;
    (void)snprintf(out->look, sizeof(out->look),
                   "mkdir /sys/kernel/config/bnxt_re/%s && cat "
                   "/sys/kernel/config/bnxt_re/%s/ports/1/cc/ecn_enable",
                   quoted, quoted);
    (void)snprintf(out->remedy, sizeof(out->remedy),
                   "cd /sys/kernel/config/bnxt_re/%s/ports/1/cc && echo 1 >ecn_marking && echo 1 "
                   ">ecn_enable && echo 1 >apply",
                   quoted);
}

static void read_irdma_ecn(const struct doctor_root *root, const struct doctor_port *port,
                           struct ecn_state *out)
{
    static const char *const ways[] = { "roce_dcqcn_enable", "roce_dctcp_enable",
                                        "roce_timely_enable" };
    char quoted[QUOTED_MAX];
    (void)doctor_quote(port->device, quoted, sizeof(quoted));
    for (size_t i = 0; i < TOOL_COUNT_OF(ways); i++) {
        enum setting way = read_switch(root, "irdma", port->device, ways[i]);
        out->reacts = way > out->reacts ? way : out->reacts;
    }
    out->notifies = out->reacts;
    (void)snprintf(out->look, sizeof(out->look),
                   "mkdir /sys/kernel/config/irdma/%s && cat "
                   "/sys/kernel/config/irdma/%s/roce_dcqcn_enable",
                   quoted, quoted);
    (void)snprintf(out->remedy, sizeof(out->remedy),
                   "echo 1 >/sys/kernel/config/irdma/%s/roce_dcqcn_enable", quoted);
}

static void read_other_ecn(const struct doctor_port *port, struct ecn_state *out)
{
    char quoted[QUOTED_MAX];
    (void)snprintf(out->look, sizeof(out->look), "ethtool -S %s | grep -i -e ecn -e cnp",
                   doctor_quote(port->netdev, quoted, sizeof(quoted)));
}

static void read_ecn(const struct doctor_root *root, const struct doctor_port *port,
                     struct ecn_state *out)
{
    *out = (struct ecn_state){ .notifies = SETTING_UNKNOWN };
    const char *driver = port->driver != NULL ? port->driver->user : "";
    if (strcmp(driver, "mlx5") == 0) {
        read_mlx5_ecn(root, port, out);
    } else if (strcmp(driver, "bnxt_re") == 0) {
        read_bnxt_ecn(root, port, out);
    } else if (strcmp(driver, "irdma") == 0) {
        read_irdma_ecn(root, port, out);
    } else {
        read_other_ecn(port, out);
    }
}

static void check_ecn(const struct doctor_root *root, struct doctor_port *port)
{
    struct ecn_state ecn;
    read_ecn(root, port, &ecn);
    if (ecn.notifies == SETTING_UNKNOWN && ecn.reacts == SETTING_UNKNOWN) {
        doctor_add(&port->findings, DOCTOR_INFO, "ECN_UNKNOWN", ecn.look,
                   "%s, so whether the port answers marks of congestion (ECN, DCQCN) is not known "
                   "here",
                   port->is_virtual_function
                       ? "this is a virtual function, whose settings are its host's"
                       : "its driver shows it in no file");
        return;
    }
    if (ecn.notifies == SETTING_OFF || ecn.reacts == SETTING_OFF) {
        doctor_add(&port->findings, DOCTOR_WARNING, "ECN_OFF", ecn.remedy,
                   "congestion control (DCQCN) is off: the port %s",
                   ecn.notifies != SETTING_OFF ? "does not slow down on reports of congestion"
                   : ecn.reacts != SETTING_OFF
                       ? "does not report congestion to senders"
                       : "neither tells senders of congestion nor slows down");
    }
}

/* PFC as a module parameter, mlx4 only: one bit for each priority. */
static enum setting read_mlx4_pfc(const struct doctor_root *root)
{
    uint64_t sends = 0;
    uint64_t obeys = 0;
    if (!doctor_read_number(root, &sends, "sys/module/mlx4_en/parameters/pfctx") ||
        !doctor_read_number(root, &obeys, "sys/module/mlx4_en/parameters/pfcrx")) {
        return SETTING_UNKNOWN;
    }
    return (sends & obeys) != 0 ? SETTING_ON : SETTING_OFF;
}

static void add_pfc_unknown(struct doctor_port *port, bool is_mlx5)
{
    char quoted[QUOTED_MAX];
    char remedy[DOCTOR_TEXT_MAX];
    (void)doctor_quote(port->netdev, quoted, sizeof(quoted));
    if (is_mlx5) {
        (void)snprintf(remedy, sizeof(remedy),
                       "dcb pfc show dev %s prio-pfc; dcb app show dev %s dscp-prio (or: mlnx_qos "
                       "-i %s)",
                       quoted, quoted, quoted);
    } else {
        (void)snprintf(remedy, sizeof(remedy),
                       "dcb pfc show dev %s prio-pfc; dcb app show dev %s dscp-prio", quoted,
                       quoted);
    }
    doctor_add(
        &port->findings, DOCTOR_INFO, "PFC_UNKNOWN", remedy,
        "no file has the state of priority flow control and of trust in DSCP; check that the "
        "priority of DSCP 26, which rdmux uses, is lossless");
}

static void check_pfc(const struct doctor_root *root, struct doctor_port *port)
{
    const char *driver = port->driver != NULL ? port->driver->user : "";
    char quoted[QUOTED_MAX];
    char remedy[DOCTOR_TEXT_MAX];
    if (strcmp(driver, "mlx4") == 0) {
        enum setting pfc = read_mlx4_pfc(root);
        if (pfc == SETTING_OFF) {
            doctor_add(&port->findings, DOCTOR_WARNING, "PFC_OFF",
                       "echo options mlx4_en pfctx=8 pfcrx=8 >/etc/modprobe.d/mlx4_en.conf, then "
                       "load mlx4_en anew",
                       "priority flow control is off: the network may drop packets of RoCE");
        }
        if (pfc != SETTING_UNKNOWN) {
            return;
        }
    }
    if (strcmp(driver, "bnxt_re") == 0 &&
        read_switch(root, "bnxt_re", port->device, "ports/1/cc/disable_prio_vlan_tx") ==
            SETTING_OFF) {
        (void)snprintf(remedy, sizeof(remedy),
                       "cd /sys/kernel/config/bnxt_re/%s/ports/1/cc && echo 1 "
                       ">disable_prio_vlan_tx && echo 1 >apply",
                       doctor_quote(port->device, quoted, sizeof(quoted)));
        doctor_add(
            &port->findings, DOCTOR_WARNING, "DSCP_TRUST_OFF", remedy,
            "the port takes priorities from VLAN tags, not from DSCP: rdmux's DSCP 26 has no "
            "effect");
    }
    add_pfc_unknown(port, strcmp(driver, "mlx5") == 0);
}

/* ------------------------------------------------------------------------------------ PCI, NUMA */

/* Returns the Gb/s of a PCI Express link: the lanes' rate less the encoding, 8/10 up to 5 GT/s,
 * 128/130 above. */
static double pci_rate(double gigatransfers, uint64_t lanes)
{
    double payload = gigatransfers > 5.5 ? 128.0 / 130.0 : 0.8;
    return gigatransfers * payload * (double)lanes;
}

/* Reads "16.0 GT/s PCIe"; returns 0 for "Unknown". */
static double read_pci_speed(const struct doctor_root *root, const struct doctor_port *port,
                             const char *file)
{
    char text[DOCTOR_VALUE_MAX];
    if (doctor_read(root, text, sizeof(text), "sys/class/infiniband/%s/device/%s", port->device,
                    file) != 0) {
        return 0;
    }
    double speed = strtod(text, NULL);
    return speed > 0 && speed < 1000 ? speed : 0;
}

static void check_pci(const struct doctor_root *root, struct doctor_port *port)
{
    enum { LANES_MAX = 32 };
    uint64_t lanes = 0;
    uint64_t lanes_max = 0;
    double speed = read_pci_speed(root, port, "current_link_speed");
    double speed_max = read_pci_speed(root, port, "max_link_speed");
    (void)doctor_read_number(root, &lanes, "sys/class/infiniband/%s/device/current_link_width",
                             port->device);
    (void)doctor_read_number(root, &lanes_max, "sys/class/infiniband/%s/device/max_link_width",
                             port->device);
    /* Virtual functions report 0 or 255 lanes. */
    if (speed == 0 || speed_max == 0 || lanes == 0 || lanes_max == 0 || lanes > LANES_MAX ||
        lanes_max > LANES_MAX || (lanes >= lanes_max && speed >= speed_max)) {
        return;
    }
    double rate = pci_rate(speed, lanes);
    bool hurts = port->rate_gbps <= 0 || rate < port->rate_gbps;
    char remedy[DOCTOR_TEXT_MAX];
    (void)snprintf(remedy, sizeof(remedy),
                   "put the adapter into a slot with all its lanes, then: lspci -vv -s %s | grep "
                   "LnkSta",
                   port->pci);
    doctor_add(&port->findings, hurts ? DOCTOR_WARNING : DOCTOR_INFO, "PCI_SLOW", remedy,
               "the adapter's PCI Express link runs at %g GT/s x%llu, it could at %g GT/s x%llu; "
               "%.0f Gb/s pass, the port has %g Gb/s",
               speed, (unsigned long long)lanes, speed_max, (unsigned long long)lanes_max, rate,
               port->rate_gbps);
}

enum {
    PCI_STATUS_AT = 6,
    PCI_STATUS_HAS_CAPABILITIES = 0x10,
    PCI_CAPABILITIES_AT = 0x34,
    PCI_CAPABILITY_EXPRESS = 0x10,
    PCI_EXPRESS_CONTROL_AT = 8,
    PCI_EXPRESS_RELAXED_ORDERING = 0x10,
    PCI_CONFIG_SIZE = 256,
    PCI_CONFIG_FOR_ALL = 64, /* bytes that the kernel shows to programs without CAP_SYS_ADMIN */
};

/* Reads from its configuration space whether the device may mark its memory writes as relaxed
 * (linux/pci_regs.h). */
static enum setting read_relaxed_ordering(const uint8_t *config, size_t size)
{
    if (size < PCI_CONFIG_SIZE || (config[PCI_STATUS_AT] & PCI_STATUS_HAS_CAPABILITIES) == 0) {
        return SETTING_UNKNOWN;
    }
    size_t at = config[PCI_CAPABILITIES_AT] & 0xfcU;
    /* The bound ends a list that is circular. */
    for (unsigned i = 0; i < PCI_CONFIG_SIZE / 4 && at >= PCI_CONFIG_FOR_ALL; i++) {
        if (config[at] == PCI_CAPABILITY_EXPRESS && at + PCI_EXPRESS_CONTROL_AT < size) {
            return (config[at + PCI_EXPRESS_CONTROL_AT] & PCI_EXPRESS_RELAXED_ORDERING) != 0
                       ? SETTING_ON
                       : SETTING_OFF;
        }
        at = config[at + 1] & 0xfcU;
    }
    return SETTING_UNKNOWN;
}

static void check_relaxed_ordering(const struct doctor_root *root, struct doctor_port *port)
{
    uint8_t config[PCI_CONFIG_SIZE];
    char remedy[DOCTOR_TEXT_MAX];
    size_t size = doctor_read_bytes(root, config, sizeof(config),
                                    "sys/class/infiniband/%s/device/config", port->device);
    enum setting ordering = read_relaxed_ordering(config, size);
    if (ordering == SETTING_OFF) {
        (void)snprintf(remedy, sizeof(remedy), "setpci -s %s CAP_EXP+8.w=0010:0010", port->pci);
        doctor_add(
            &port->findings, DOCTOR_WARNING, "RELAXED_ORDERING_OFF", remedy,
            "PCI relaxed ordering is off for the adapter, which costs bandwidth, most on AMD "
            "and recent Intel processors");
    } else if (ordering == SETTING_UNKNOWN) {
        (void)snprintf(remedy, sizeof(remedy), "sudo lspci -vv -s %s | grep RlxdOrd", port->pci);
        doctor_add(&port->findings, DOCTOR_INFO, "RELAXED_ORDERING_UNKNOWN", remedy,
                   "only root can read whether PCI relaxed ordering is on for the adapter");
    }
}

/* Reads the distance between two nodes; 0 if the system does not report it. */
static uint64_t read_distance(const struct doctor_root *root, uint64_t from, uint64_t to)
{
    char text[4096];
    (void)doctor_read(root, text, sizeof(text), "sys/devices/system/node/node%llu/distance",
                      (unsigned long long)from);
    const char *at = text;
    for (uint64_t i = 0; i < to && *at != '\0'; i++) {
        at += strspn(at, " ");
        at += strcspn(at, " ");
    }
    return strtoull(at, NULL, 10);
}

/* Returns a node on which this process may run; 0 if none is found. */
static uint64_t node_of_process(const struct doctor_machine *machine)
{
    struct doctor_names names = doctor_list(&machine->root, "sys/devices/system/node");
    uint64_t node = 0;
    for (size_t i = 0; i < names.count; i++) {
        char text[4096];
        struct doctor_cpus cpus;
        if (strncmp(names.items[i], "node", 4) == 0 &&
            doctor_read(&machine->root, text, sizeof(text), "sys/devices/system/node/%s/cpulist",
                        names.items[i]) == 0 &&
            doctor_cpus_parse(text, &cpus) > 0 && doctor_cpus_overlap(&cpus, &machine->cpus)) {
            node = strtoull(names.items[i] + 4, NULL, 10);
            break;
        }
    }
    doctor_names_free(&names);
    return node;
}

static void add_numa_remote(const struct doctor_machine *machine, struct doctor_port *port,
                            const char *remedy)
{
    uint64_t node = (uint64_t)port->numa_node;
    uint64_t own = node_of_process(machine);
    uint64_t distance = read_distance(&machine->root, own, node);
    char far_away[DOCTOR_NAME_MAX] = "";
    if (distance > 0) {
        (void)snprintf(far_away, sizeof(far_away), ", %llu away where 10 is near",
                       (unsigned long long)distance);
    }
    doctor_add(&port->findings, DOCTOR_WARNING, "NUMA_REMOTE", remedy,
               "the adapter is at NUMA node %llu%s, but this process may only run on other nodes, "
               "such as %llu",
               (unsigned long long)node, far_away, (unsigned long long)own);
}

static void check_numa(const struct doctor_machine *machine, struct doctor_port *port)
{
    char text[4096];
    struct doctor_cpus near_cpus;
    char remedy[DOCTOR_TEXT_MAX];
    long long node = port->numa_node;
    if (machine->node_count < 2) {
        return;
    }
    if (node < 0) {
        (void)snprintf(remedy, sizeof(remedy),
                       "update the BIOS, or measure from each node: numactl --cpunodebind=0 "
                       "--membind=0 rdmux perf HOST --op write --test bandwidth");
        doctor_add(&port->findings, DOCTOR_INFO, "NUMA_UNKNOWN", remedy,
                   "the machine has %zu NUMA nodes and does not report the adapter's",
                   machine->node_count);
        return;
    }
    if (!machine->cpus_known ||
        doctor_read(&machine->root, text, sizeof(text), "sys/devices/system/node/node%lld/cpulist",
                    node) != 0 ||
        doctor_cpus_parse(text, &near_cpus) == 0) {
        return;
    }
    (void)snprintf(remedy, sizeof(remedy), "numactl --cpunodebind=%lld --membind=%lld COMMAND",
                   node, node);
    if (!doctor_cpus_overlap(&machine->cpus, &near_cpus)) {
        add_numa_remote(machine, port, remedy);
    } else if (!doctor_cpus_contain(&near_cpus, &machine->cpus)) {
        doctor_add(&port->findings, DOCTOR_INFO, "NUMA_UNBOUND", remedy,
                   "the adapter is at NUMA node %lld, and this process may run on any of %zu nodes",
                   node, machine->node_count);
    }
}

/* ----------------------------------------------------------------------------------- all checks */

static void check_adapter(const struct doctor_machine *machine, struct doctor_port *port)
{
    if (!port->is_virtual_function) {
        check_pci(&machine->root, port);
    }
    check_relaxed_ordering(&machine->root, port);
    check_numa(machine, port);
}

void doctor_check_port(const struct doctor_machine *machine, struct doctor_port *port)
{
    const struct doctor_root *root = &machine->root;
    if (port->number == 0 || !port->fabric_known) {
        add_unreadable(port);
        return;
    }
    if (port->fabric == DOCTOR_OTHER) {
        doctor_add(&port->findings, DOCTOR_INFO, "OTHER_FABRIC", NULL,
                   "rdmux uses InfiniBand, RoCE and iWARP; this device is none of them");
        return;
    }
    if (port->first) {
        check_verbs_node(machine, port);
        check_user_driver(machine, port);
    }
    if (port->first && port->software) {
        doctor_add(&port->findings, DOCTOR_INFO, "SOFTWARE_DEVICE", NULL,
                   "the kernel emulates this device; it is for trying out, and rdmux prefers tcp");
    }
    bool usable = port->fabric == DOCTOR_IB ? check_infiniband_link(port)
                                            : check_ethernet_link(machine, port);
    if (usable) {
        check_gids(port);
    }
    if (port->fabric == DOCTOR_ROCE && port->netdev_here) {
        check_default_version(root, port);
        check_mtu(port);
    }
    if (port->fabric == DOCTOR_ROCE && port->netdev_here && !port->software) {
        check_ecn(root, port);
        check_pfc(root, port);
    }
    if (port->first && port->pci[0] != '\0') {
        check_adapter(machine, port);
    }
    doctor_check_counters(root, port);
}
