/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Shared by the parts of `rdmux doctor`: findings, facts about the devices and the machine.
 *
 *   doctor.c           the command and its report
 *   doctor_sysfs.c     reading files
 *   doctor_facts.c     facts about the devices and the machine, read once
 *   doctor_checks.c    checks of a device
 *   doctor_counters.c  checks of a device's counters
 *   doctor_machine.c   checks of the machine around the devices
 */
#ifndef RDMUX_TOOL_DOCTOR_H
#define RDMUX_TOOL_DOCTOR_H

#include "doctor_sysfs.h"
#include "tool.h"

enum {
    DOCTOR_TEXT_MAX = 768,   /* bytes of a finding's text or remedy */
    DOCTOR_FOLDER_MAX = 256, /* folders searched for libraries */
    DOCTOR_GID_MAX = 4096,   /* entries of a GID table that are read */
    DOCTOR_DEVICE_MAX = 512, /* devices, and ports of one device, that are read */
};

/* ------------------------------------------------------------------------------------- findings */

enum doctor_severity {
    DOCTOR_INFO,    /* good to know */
    DOCTOR_WARNING, /* works, but slower or less reliably than it could */
    DOCTOR_ERROR,   /* prevents use */
};

struct doctor_finding {
    enum doctor_severity severity;
    const char *code; /* upper-case words; stable */
    char text[DOCTOR_TEXT_MAX];
    char remedy[DOCTOR_TEXT_MAX]; /* a command, or empty */
};

struct doctor_findings {
    struct doctor_finding *items;
    size_t count;
    size_t room;
    bool lost; /* memory was short for a finding */
};

/* Adds a finding. The text is a format; the remedy is not, and may be NULL. */
void doctor_add(struct doctor_findings *findings, enum doctor_severity severity, const char *code,
                const char *remedy, const char *format, ...) TOOL_PRINTF(5, 6);
void doctor_findings_free(struct doctor_findings *findings);

/* ---------------------------------------------------------------------------------- the machine */

enum { DOCTOR_UNLIMITED = -1, DOCTOR_UNKNOWN = -2 };

struct doctor_machine {
    struct doctor_root root;
    bool in_container;
    bool pins_freely;   /* CAP_IPC_LOCK in the initial user namespace: no limit on pinned memory */
    bool traces_freely; /* CAP_SYS_PTRACE */
    int64_t memlock_soft; /* bytes, DOCTOR_UNLIMITED or DOCTOR_UNKNOWN */
    int64_t memlock_hard;
    int64_t files_soft;      /* descriptors */
    struct doctor_cpus cpus; /* CPUs on which this process may run; none: unknown */
    bool cpus_known;
    size_t node_count;    /* NUMA nodes */
    bool libraries_known; /* false: a copied tree has no folder for libraries */
    char folders[DOCTOR_FOLDER_MAX][DOCTOR_VALUE_MAX]; /* libraries, without the leading slash */
    size_t folder_count;
    char verbs_library[2 * DOCTOR_VALUE_MAX]; /* path of libibverbs.so.1, empty if there is none */
    uint64_t provider_abi;                    /* ABI of the drivers that it loads; 0: unknown */
    bool connection_library;                  /* librdmacm.so.1 exists */
    bool device_folder;                       /* there is a /dev to check */
};

void doctor_machine_read(const struct doctor_root *root, struct doctor_machine *out);

/* ---------------------------------------------------------------------------------- the devices */

enum doctor_fabric {
    DOCTOR_OTHER, /* no fabric that rdmux supports */
    DOCTOR_IB,
    DOCTOR_ROCE,
    DOCTOR_IWARP,
};

/* Returns "ib", "roce" or "iwarp", the provider's name, or "other". */
const char *doctor_fabric_name(enum doctor_fabric fabric);

enum doctor_gid_kind {
    DOCTOR_GID_UNKNOWN,
    DOCTOR_GID_V1, /* InfiniBand or RoCE v1 */
    DOCTOR_GID_V2, /* RoCE v2 */
};

struct doctor_gid {
    unsigned index;
    enum doctor_gid_kind kind;
    bool link_local;
    char gid[DOCTOR_NAME_MAX];
    char netdev[DOCTOR_NAME_MAX]; /* may be empty */
};

enum doctor_state {
    DOCTOR_STATE_UNREADABLE,
    DOCTOR_STATE_DOWN,
    DOCTOR_STATE_INIT, /* the link is up, no subnet manager has configured it */
    DOCTOR_STATE_ARMED,
    DOCTOR_STATE_ACTIVE,
};

/* A kernel driver and its components. */
struct doctor_driver {
    const char *kernel; /* name of the PCI driver */
    const char *module; /* the module that makes the RDMA device */
    const char *user;   /* driver for libibverbs, without lib and -rdmav; NULL: none is known */
};

/* Returns the components of the driver of that name, NULL if it is unknown. */
const struct doctor_driver *doctor_driver_find(const char *kernel);

/* One port of a device. */
struct doctor_port {
    char device[DOCTOR_NAME_MAX];
    uint64_t number; /* 0: the device shows no port */
    bool first;      /* the device's first port; carries the findings on the device as a whole */
    enum doctor_fabric fabric;
    bool fabric_known;                  /* false: the files that give it cannot be read */
    bool software;                      /* rxe or siw */
    const struct doctor_driver *driver; /* NULL: unknown */
    char kernel_driver[DOCTOR_NAME_MAX];
    char verbs_node[DOCTOR_NAME_MAX]; /* "uverbs0"; empty: ib_uverbs has no node for it */

    enum doctor_state state;
    int state_error; /* errno of reading the state */
    char state_text[DOCTOR_NAME_MAX];
    char physical_state[DOCTOR_NAME_MAX];
    double rate_gbps; /* 0: unknown */
    uint64_t subnet_manager_lid;

    char netdev[DOCTOR_NAME_MAX]; /* empty: none is known */
    bool netdev_here;             /* netdev is in this network namespace */
    bool netdev_up;
    bool carrier_known;
    bool carrier;
    uint64_t mtu; /* of the netdev, 0: unknown */

    struct doctor_gid *gids; /* GIDs other than zero */
    size_t gid_count;
    size_t gid_room; /* entries of the table */

    char pci[DOCTOR_NAME_MAX]; /* address; empty if it is not a PCI device */
    bool is_virtual_function;
    int64_t numa_node; /* DOCTOR_UNKNOWN if the system does not report it */

    struct doctor_findings findings;
};

struct doctor_devices {
    struct doctor_port *ports;
    size_t count;
    size_t room;
    bool left_out; /* there are more than DOCTOR_DEVICE_MAX */
    bool lost;     /* memory was short for a device */
};

void doctor_devices_read(const struct doctor_root *root, struct doctor_devices *out);
void doctor_devices_free(struct doctor_devices *devices);

/* Returns the largest RDMA MTU for an Ethernet link's MTU; 0 if the link's is too small for
 * RoCE. */
unsigned doctor_roce_mtu(uint64_t link_mtu);

/* --------------------------------------------------------------------------------------- checks */

/* Adds the problems of a port, and of its device if the port is the device's first. */
void doctor_check_port(const struct doctor_machine *machine, struct doctor_port *port);
void doctor_check_counters(const struct doctor_root *root, struct doctor_port *port);

/* Adds the reason why this process cannot open /dev/infiniband/NAME. Adds nothing if the folder is
 * missing, which is a finding on the machine. */
void doctor_check_node(const struct doctor_machine *machine, const char *name,
                       struct doctor_findings *findings);

/* Adds the problems of the machine. */
void doctor_check_machine(const struct doctor_machine *machine,
                          const struct doctor_devices *devices, struct doctor_findings *findings);

/* -------------------------------------------------------------------------------------- command */

/* argv[0] is the sub-command's name. Returns an exit code. */
int tool_doctor_main(int argc, char **argv);

#endif
