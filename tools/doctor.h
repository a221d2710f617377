/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What the parts of `rdmux doctor` share: findings, the facts about devices and about the machine.
 *
 *   doctor.c           the command and its report
 *   doctor_sysfs.c     reading files
 *   doctor_facts.c     what a device and the machine are, read once
 *   doctor_checks.c    what is wrong with a device
 *   doctor_counters.c  what a device's counters tell
 *   doctor_machine.c   what is wrong with the machine around the devices
 */
#ifndef RDMUX_TOOL_DOCTOR_H
#define RDMUX_TOOL_DOCTOR_H

#include "doctor_sysfs.h"
#include "tool.h"

enum {
    DOCTOR_TEXT_MAX = 768,   /* bytes of a finding's text or remedy */
    DOCTOR_FOLDER_MAX = 256, /* folders in which libraries are looked for */
    DOCTOR_GID_MAX = 4096,   /* entries of a GID table that are looked at */
    DOCTOR_DEVICE_MAX = 512, /* devices, and ports of one device, that are looked at */
};

/* ------------------------------------------------------------------------------------- findings */

enum doctor_severity {
    DOCTOR_INFO,    /* good to know */
    DOCTOR_WARNING, /* works, but slower or less surely than it could */
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
    bool lost; /* there was no memory for one */
};

/* Adds a finding; the text is a format, the remedy is not, and may be NULL. */
void doctor_add(struct doctor_findings *findings, enum doctor_severity severity, const char *code,
                const char *remedy, const char *format, ...) TOOL_PRINTF(5, 6);
void doctor_findings_free(struct doctor_findings *findings);

/* ---------------------------------------------------------------------------------- the machine */

enum { DOCTOR_UNLIMITED = -1, DOCTOR_UNKNOWN = -2 };

struct doctor_machine {
    struct doctor_root root;
    bool in_container;
    bool pins_freely;     /* CAP_IPC_LOCK in the first user namespace: no limit on pinned memory */
    bool traces_freely;   /* CAP_SYS_PTRACE */
    int64_t memlock_soft; /* bytes, DOCTOR_UNLIMITED or DOCTOR_UNKNOWN */
    int64_t memlock_hard;
    int64_t files_soft;      /* descriptors */
    struct doctor_cpus cpus; /* on which this process may run; none: unknown */
    bool cpus_known;
    size_t node_count;    /* NUMA nodes */
    bool libraries_known; /* false where a copied tree has no folder for them */
    char folders[DOCTOR_FOLDER_MAX][DOCTOR_VALUE_MAX]; /* of libraries, without the leading slash */
    size_t folder_count;
    char verbs_library[2 * DOCTOR_VALUE_MAX]; /* path of libibverbs.so.1, empty if there is none */
    uint64_t provider_abi;                    /* that it loads drivers of; 0: unknown */
    bool connection_library;                  /* librdmacm.so.1 is there */
    bool device_folder;                       /* there is a /dev to judge */
};

void doctor_machine_read(const struct doctor_root *root, struct doctor_machine *out);

/* ---------------------------------------------------------------------------------- the devices */

enum doctor_fabric {
    DOCTOR_OTHER, /* none that rdmux knows */
    DOCTOR_IB,
    DOCTOR_ROCE,
    DOCTOR_IWARP,
};

/* "ib", "roce", "iwarp" as the providers are called, or "other". */
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

/* A kernel driver and what belongs to it. */
struct doctor_driver {
    const char *kernel; /* name of the PCI driver */
    const char *module; /* the module that makes the RDMA device */
    const char *user;   /* driver for libibverbs, without lib and -rdmav; NULL: none is known */
};

/* What the driver of that name needs, NULL if it is not known. */
const struct doctor_driver *doctor_driver_find(const char *kernel);

/* One port of a device. */
struct doctor_port {
    char device[DOCTOR_NAME_MAX];
    uint64_t number; /* 0: the device shows no port */
    bool first;      /* of its device, and so carries what concerns the device as a whole */
    enum doctor_fabric fabric;
    bool fabric_known;                  /* false where the files that tell it cannot be read */
    bool software;                      /* rxe or siw */
    const struct doctor_driver *driver; /* NULL: unknown */
    char kernel_driver[DOCTOR_NAME_MAX];
    char verbs_node[DOCTOR_NAME_MAX]; /* "uverbs0", empty: ib_uverbs has none */

    enum doctor_state state;
    int state_error; /* errno of reading the state */
    char state_text[DOCTOR_NAME_MAX];
    char physical_state[DOCTOR_NAME_MAX];
    double rate_gbps; /* 0: unknown */
    uint64_t subnet_manager_lid;

    char netdev[DOCTOR_NAME_MAX]; /* empty: none is known */
    bool netdev_here;             /* it is in this network namespace */
    bool netdev_up;
    bool carrier_known;
    bool carrier;
    uint64_t mtu; /* of the netdev, 0: unknown */

    struct doctor_gid *gids; /* those that are not zero */
    size_t gid_count;
    size_t gid_room; /* entries of the table */

    char pci[DOCTOR_NAME_MAX]; /* address, empty if it is no PCI device */
    bool is_virtual_function;
    int64_t numa_node; /* DOCTOR_UNKNOWN if the system does not tell */

    struct doctor_findings findings;
};

struct doctor_devices {
    struct doctor_port *ports;
    size_t count;
    size_t room;
    bool left_out; /* there are more than DOCTOR_DEVICE_MAX */
    bool lost;     /* there was no memory for one */
};

void doctor_devices_read(const struct doctor_root *root, struct doctor_devices *out);
void doctor_devices_free(struct doctor_devices *devices);

/* Largest RDMA MTU for an Ethernet link's; 0 if the link is too small for RoCE. */
unsigned doctor_roce_mtu(uint64_t link_mtu);

/* --------------------------------------------------------------------------------------- checks */

/* Adds what is wrong with a port, and with its device if the port is its first. */
void doctor_check_port(const struct doctor_machine *machine, struct doctor_port *port);
void doctor_check_counters(const struct doctor_root *root, struct doctor_port *port);

/* Adds why this process cannot open /dev/infiniband/NAME; nothing where the folder is missing,
 * which concerns the machine. */
void doctor_check_node(const struct doctor_machine *machine, const char *name,
                       struct doctor_findings *findings);

/* Adds what is wrong with the machine. */
void doctor_check_machine(const struct doctor_machine *machine,
                          const struct doctor_devices *devices, struct doctor_findings *findings);

/* -------------------------------------------------------------------------------------- command */

/* argv[0] is the sub-command's name. Returns an exit code. */
int tool_doctor_main(int argc, char **argv);

#endif
