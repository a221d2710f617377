/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Paths. libfabric lists a struct fi_info for each way of using a network: a path is a provider and
 * a domain with one address. Connections (FI_EP_MSG) are used where the provider has them, else
 * connectionless endpoints (FI_EP_RDM).
 */
#include "adapters/ofi/ofi_path.h"

#include "adapters/framed/framed.h"
#include "api/base/bytes.h"

#include <arpa/inet.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    LISTED_NS = 2 * 1000 * 1000 * 1000 - 1, /* how long a list serves */
    PATHS_MAX = 20,                         /* an offer has room for 32, of all providers */
    REACH_VERSION = 1,
    REACH_HERE = 1 << 0,     /* the path does not leave the host */
    REACH_NOT_SELF = 1 << 1, /* it leads to other processes only */
    PROVIDER_SIZE = 32,
    /* version, flags, 2 zeros, protocol (4), address format (4), provider, process (8: its namespace,
     * its id), what here() says */
    REACH_AT_PROTOCOL = 4,
    REACH_AT_FORMAT = 8,
    REACH_AT_PROVIDER = 12,
    REACH_AT_PROCESS = REACH_AT_PROVIDER + PROVIDER_SIZE,
    REACH_AT_HERE = REACH_AT_PROCESS + 8,
};

/*
 * What is known of a provider, by the first part of its name or by all of it. Those over a network
 * that rdmux reaches by a provider of its own are marked as software, so that they rank behind it
 * until they are measured faster. Omni-Path's verbs are emulated by its driver, so that psm2 and opx
 * are behind them by their figures alone, and before tcp. Figures are of a loopback.
 */
struct known {
    const char *name;
    bool has_own; /* rdmux has a provider for the same network */
    uint32_t latency_ns;
    uint64_t bandwidth;
};

static const struct known known[] = {
    { "tcp;ofi_rxm", true, 20000, UINT64_C(1500000000) },
    { "net;ofi_rxm", true, 21000, UINT64_C(1400000000) },
    { "shm", true, 3000, UINT64_C(4000000000) },
    { "tcp", true, 15000, UINT64_C(2000000000) },
    { "net", true, 16000, UINT64_C(1900000000) },
    { "verbs", true, 3000, UINT64_C(3000000000) },
    { "psm3", true, 3000, UINT64_C(3000000000) },
    { "psm2", false, 3000, UINT64_C(3000000000) },
    { "opx", false, 3000, UINT64_C(3000000000) },
    { "sockets", true, 40000, UINT64_C(1000000000) },
    { "udp", true, 80000, UINT64_C(300000000) },
};

static const struct known *known_of(const char *provider)
{
    static const struct known other = { "", false, 2500, UINT64_C(12500000000) };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const size_t length = strlen(known[i].name);
        if (strncmp(known[i].name, provider, length) == 0 &&
            (provider[length] == '\0' || provider[length] == ';')) {
            return &known[i];
        }
    }
    return &other;
}

/* Returns why a provider is not used; NULL: it is. */
static const char *flaw_of(const char *provider)
{
    if (strncmp(provider, "verbs;", strlen("verbs;")) == 0) {
        return "the provider verbs has connections of its own";
    }
    return strstr(provider, "ofi_rxd") != NULL
               ? "it has not been found to keep the rules of rdmux (docs/ADAPTERS.md)"
               : NULL;
}

/* rdmux is a provider of libfabric, too, whose paths would lead back here. */
static bool is_rdmux(const char *provider)
{
    return strncmp(provider, "rdmux", strlen("rdmux")) == 0;
}

/* ------------------------------------------------------------------------------------ selection */

/* What the adapter takes from libfabric: messages that keep their order. */
static struct fi_info *make_hints(const struct ofi_library *library)
{
    struct fi_info *hints = library->dupinfo(NULL);
    if (hints != NULL) {
        hints->caps = FI_MSG;
        hints->mode = FI_CONTEXT | FI_CONTEXT2;
        hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
                                      FI_MR_PROV_KEY;
        hints->domain_attr->threading = FI_THREAD_SAFE;
        hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
        hints->tx_attr->msg_order = FI_ORDER_SAS;
        hints->rx_attr->msg_order = FI_ORDER_SAS;
    }
    return hints;
}

static bool is_ip(const struct fi_info *info)
{
    return info->src_addr != NULL &&
           (info->addr_format == FI_SOCKADDR_IN || info->addr_format == FI_SOCKADDR_IN6);
}

/* A link-local address means nothing without an interface of the peer's. */
static bool is_link_local(const struct fi_info *info)
{
    const struct sockaddr_in6 *address = info->src_addr;
    return is_ip(info) && info->addr_format == FI_SOCKADDR_IN6 &&
           IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr);
}

static bool is_loopback(const struct fi_info *info)
{
    if (!is_ip(info)) {
        return strcmp(info->fabric_attr->prov_name, "shm") == 0;
    }
    if (info->addr_format == FI_SOCKADDR_IN6) {
        const struct sockaddr_in6 *address = info->src_addr;
        return IN6_IS_ADDR_LOOPBACK(&address->sin6_addr);
    }
    const struct sockaddr_in *address = info->src_addr;
    return ntohl(address->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

static bool is_candidate(const struct fi_info *info)
{
    return (info->ep_attr->type == FI_EP_MSG || info->ep_attr->type == FI_EP_RDM) &&
           info->ep_attr->max_msg_size >= FRAMED_MESSAGE_MIN && !is_link_local(info) &&
           !is_rdmux(info->fabric_attr->prov_name) &&
           (info->tx_attr->msg_order & FI_ORDER_SAS) != 0;
}

static bool is_same_path(const struct fi_info *a, const struct fi_info *b)
{
    return strcmp(a->fabric_attr->prov_name, b->fabric_attr->prov_name) == 0 &&
           strcmp(a->fabric_attr->name, b->fabric_attr->name) == 0 &&
           strcmp(a->domain_attr->name, b->domain_attr->name) == 0;
}

/* Returns whether an earlier entry stands for the same path, or a later one does better. */
static bool is_superseded(const struct fi_info *all, const struct fi_info *info)
{
    bool is_before = true;
    for (const struct fi_info *other = all; other != NULL; other = other->next) {
        if (other == info) {
            is_before = false;
        } else if (is_candidate(other) && is_same_path(other, info)) {
            bool same = other->ep_attr->type == info->ep_attr->type;
            if (same ? is_before : other->ep_attr->type == FI_EP_MSG) {
                return true;
            }
        }
    }
    return false;
}

/* -------------------------------------------------------------------------------------- a path */

static void name_path(const struct fi_info *info, struct rdmux_local_path *out)
{
    (void)snprintf(out->device, sizeof(out->device), "%.32s:%.28s", info->fabric_attr->prov_name,
                   info->domain_attr->name);
    if (is_ip(info)) {
        const struct sockaddr_in *v4 = info->src_addr;
        const struct sockaddr_in6 *v6 = info->src_addr;
        bool is_v6 = info->addr_format == FI_SOCKADDR_IN6;
        (void)inet_ntop(is_v6 ? AF_INET6 : AF_INET,
                        is_v6 ? (const void *)&v6->sin6_addr : (const void *)&v4->sin_addr,
                        out->address, sizeof(out->address));
    }
}

/* The provider shm of libfabric 1.17 uses the memory of an endpoint of its own process after that
 * endpoint was closed, and crashes. */
static bool leads_to_others_only(const struct fi_info *info)
{
    return strcmp(info->fabric_attr->prov_name, "shm") == 0;
}

static void describe_process(uint8_t out[8])
{
    struct stat space;
    if (stat("/proc/self/ns/pid", &space) != 0) {
        space.st_ino = 0;
    }
    rdmux_store_be32(out, (uint32_t)space.st_ino);
    rdmux_store_be32(out + 4, (uint32_t)getpid());
}

static void describe_reach(const struct fi_info *info, struct rdmux_local_path *out)
{
    struct rdmux_local_path here;
    memset(&here, 0, sizeof(here));
    rdmux_software_here(&here);
    out->reach[0] = REACH_VERSION;
    out->reach[1] = is_loopback(info) ? REACH_HERE : 0;
    out->reach[1] |= leads_to_others_only(info) ? REACH_NOT_SELF : 0;
    rdmux_store_be32(out->reach + REACH_AT_PROTOCOL, info->ep_attr->protocol);
    rdmux_store_be32(out->reach + REACH_AT_FORMAT, info->addr_format);
    (void)snprintf((char *)out->reach + REACH_AT_PROVIDER, PROVIDER_SIZE, "%s",
                   info->fabric_attr->prov_name);
    describe_process(out->reach + REACH_AT_PROCESS);
    memcpy(out->reach + REACH_AT_HERE, here.reach, here.reach_length);
    out->reach_length = REACH_AT_HERE + here.reach_length;
}

static uint64_t speed_of(const struct fi_info *info, const struct known *provider)
{
    bool has_speed = info->nic != NULL && info->nic->link_attr != NULL &&
                     info->nic->link_attr->speed > 0;
    return has_speed ? info->nic->link_attr->speed / 8 : provider->bandwidth;
}

/* A process, as the kernel tells it from those that may not use its RDMA devices. */
struct identity {
    pid_t process; /* 0: not known yet */
    uid_t users[3];
    gid_t groups[3];
    struct __user_cap_data_struct capabilities[_LINUX_CAPABILITY_U32S_3];
};

static void identity_take(struct identity *out)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    memset(out, 0, sizeof(*out));
    out->process = getpid();
    (void)getresuid(&out->users[0], &out->users[1], &out->users[2]);
    (void)getresgid(&out->groups[0], &out->groups[1], &out->groups[2]);
    (void)syscall(SYS_capget, &header, out->capabilities);
}

/* The provider verbs opens its devices when libfabric is initialised, once in a process, and
 * librdmacm keeps them open. The kernel takes no request by them (write() gives EACCES) from a
 * process that is forked later, or has other rights since. Returns what was done; NULL: nothing. */
static const char *change_since(const struct fi_info *info, const struct identity *opener)
{
    struct identity now;
    if (strcmp(info->fabric_attr->prov_name, "verbs") != 0) {
        return NULL;
    }
    identity_take(&now);
    if (now.process != opener->process) {
        return "its device was opened before this process was forked";
    }
    return memcmp(&now, opener, sizeof(now)) == 0 ? NULL
                                                  : "its device was opened before this process "
                                                    "changed its user, group or capabilities";
}

static void fill_path(const struct ofi_library *library, const struct fi_info *info,
                      const struct identity *opener, struct rdmux_local_path *out)
{
    const struct known *provider = known_of(info->fabric_attr->prov_name);
    const char *flaw = flaw_of(info->fabric_attr->prov_name);
    if (flaw == NULL) {
        flaw = change_since(info, opener);
    }
    uint32_t version = library->version();
    memset(out, 0, sizeof(*out));
    name_path(info, out);
    out->reason = flaw == NULL ? RDMUX_REASON_USABLE : RDMUX_REASON_CAPABILITY_MISSING;
    (void)snprintf(out->text, sizeof(out->text), "libfabric %u.%u, provider %s, %s%s%s",
                   FI_MAJOR(version), FI_MINOR(version), info->fabric_attr->prov_name,
                   info->ep_attr->type == FI_EP_MSG ? "FI_EP_MSG" : "FI_EP_RDM",
                   flaw != NULL ? ": " : "", flaw != NULL ? flaw : "");
    out->software = provider->has_own;
    out->bandwidth = speed_of(info, provider);
    out->latency_ns = provider->latency_ns;
    out->native = RDMUX_FRAMED_NATIVE;
    out->emulated = RDMUX_FRAMED_EMULATED;
    out->max_inline = FRAMED_INLINE_MAX;
    out->security = RDMUX_SECURITY_TOKEN;
    describe_reach(info, out);
}

static enum rdmux_status absent(struct rdmux_local_path *out, size_t max, size_t *count,
                                uint32_t reason, const char *text, const char *hint)
{
    *count = 1;
    if (max > 0) {
        memset(out, 0, sizeof(*out));
        out->reason = reason;
        (void)snprintf(out->text, sizeof(out->text), "%s", text);
        (void)snprintf(out->hint, sizeof(out->hint), "%s", hint);
    }
    return RDMUX_OK;
}

/* Puts a path behind those with less latency, and leaves the last one out if there is no room. */
static void insert_path(struct rdmux_local_path *paths, size_t max, size_t *count,
                        const struct rdmux_local_path *path)
{
    size_t at = *count;
    while (at > 0 && paths[at - 1].latency_ns > path->latency_ns) {
        at--;
    }
    if (at >= max) {
        return;
    }
    *count = *count < max ? *count + 1 : max;
    memmove(&paths[at + 1], &paths[at], (*count - at - 1) * sizeof(*paths));
    paths[at] = *path;
}

/* What libfabric listed last, for a while: every offer to a peer needs the list, and making it
 * takes from milliseconds to seconds. */
static struct {
    pthread_mutex_t lock; /* guards the rest; held from list() to unlist() */
    struct fi_info *all;
    uint64_t until_ns;
    struct identity by; /* the process that listed first, and so initialised libfabric */
    pid_t of; /* the process that made the list: its addresses may contain the process's id (shm) */
} listed = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uint64_t now_ns(void)
{
    struct timespec now = { 0 };
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Sets *all to the list, NULL if there is none. Ends with unlist(). */
static int list(const struct ofi_library *library, const struct fi_info **all)
{
    int result = 0;
    (void)pthread_mutex_lock(&listed.lock);
    if (listed.by.process == 0) {
        identity_take(&listed.by);
    }
    if (listed.all == NULL || listed.of != getpid() || now_ns() >= listed.until_ns) {
        struct fi_info *hints = make_hints(library);
        if (listed.all != NULL) {
            library->freeinfo(listed.all);
            listed.all = NULL;
        }
        result = hints == NULL ? -FI_ENOMEM : rdmux_ofi_getinfo(library, hints, &listed.all);
        if (hints != NULL) {
            library->freeinfo(hints);
        }
        listed.until_ns = now_ns() + LISTED_NS;
        listed.of = getpid();
    }
    *all = listed.all;
    return result;
}

static void unlist(void)
{
    (void)pthread_mutex_unlock(&listed.lock);
}

/* What to do where libfabric has no provider. */
static const char *provider_hint(char hint[RDMUX_TEXT_MAX])
{
    const char *wanted = getenv("FI_PROVIDER");
    (void)snprintf(hint, RDMUX_TEXT_MAX, "%s%.64s%s\"fi_info -l\" lists the names",
                   wanted != NULL ? "FI_PROVIDER is \"" : "", wanted != NULL ? wanted : "",
                   wanted != NULL ? "\": " : "");
    return hint;
}

enum rdmux_status rdmux_ofi_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                  size_t max, size_t *count)
{
    char text[RDMUX_TEXT_MAX];
    char hint[RDMUX_TEXT_MAX];
    const struct ofi_library *library = rdmux_ofi_library(text);
    const struct fi_info *all;
    (void)fabric;
    if (library == NULL) {
        return absent(out, max, count, RDMUX_REASON_NO_LIBRARY, text,
                      "install libfabric (Debian: apt-get install libfabric1)");
    }
    int result = list(library, &all);
    if (all == NULL) {
        unlist();
        (void)snprintf(text, sizeof(text), "fi_getinfo: %s", library->strerror(-result));
        return absent(out, max, count, RDMUX_REASON_NO_DEVICE, text, provider_hint(hint));
    }
    *count = 0;
    max = max < PATHS_MAX ? max : PATHS_MAX;
    for (const struct fi_info *info = all; info != NULL; info = info->next) {
        if (is_candidate(info) && !is_superseded(all, info)) {
            struct rdmux_local_path path;
            fill_path(library, info, &listed.by, &path);
            insert_path(out, max, count, &path);
        }
    }
    unlist();
    if (*count == 0) {
        return absent(out, max, count, RDMUX_REASON_NO_DEVICE,
                      "libfabric has no provider whose messages keep their order",
                      provider_hint(hint));
    }
    return RDMUX_OK;
}

struct fi_info *rdmux_ofi_find(const struct ofi_library *library,
                               const struct rdmux_local_path *path)
{
    const struct fi_info *all;
    struct fi_info *found = NULL;
    int result = list(library, &all);
    for (const struct fi_info *info = all; info != NULL && found == NULL; info = info->next) {
        struct rdmux_local_path here = { .device = "", .address = "" };
        if (is_candidate(info) && !is_superseded(all, info)) {
            name_path(info, &here);
            found = strcmp(here.device, path->device) == 0 &&
                            strcmp(here.address, path->address) == 0
                        ? library->dupinfo(info)
                        : NULL;
        }
    }
    unlist();
    if (found == NULL) {
        rdmux_provider_error("ofi: %s is gone: %s; is its network up?", path->device,
                             result != 0 ? library->strerror(-result)
                                         : "fi_getinfo lists it no more");
    }
    return found;
}

enum rdmux_reason rdmux_ofi_reach(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                  size_t theirs_length, char *text)
{
    if (ours_length < REACH_AT_HERE || theirs_length != ours_length || ours[0] != theirs[0]) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "the peer's adapter is of another version");
        return RDMUX_REASON_NOT_REACHABLE;
    }
    if (memcmp(ours + REACH_AT_PROVIDER, theirs + REACH_AT_PROVIDER, PROVIDER_SIZE) != 0) {
        (void)snprintf(text, RDMUX_TEXT_MAX,
                       "the two paths are of different providers of libfabric, %.31s and %.31s "
                       "(FI_PROVIDER limits them)",
                       (const char *)ours + REACH_AT_PROVIDER,
                       (const char *)theirs + REACH_AT_PROVIDER);
        return RDMUX_REASON_NOT_REACHABLE;
    }
    if (memcmp(ours + REACH_AT_PROTOCOL, theirs + REACH_AT_PROTOCOL, 8) != 0) {
        (void)snprintf(text, RDMUX_TEXT_MAX,
                       "the addresses, or libfabric's protocols, are of different families");
        return RDMUX_REASON_NOT_REACHABLE;
    }
    if (((ours[1] ^ theirs[1]) & REACH_HERE) != 0) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "only one of the two addresses is the loopback's");
        return RDMUX_REASON_NOT_REACHABLE;
    }
    if ((ours[1] & REACH_NOT_SELF) != 0 &&
        memcmp(ours + REACH_AT_PROCESS, theirs + REACH_AT_PROCESS, 8) == 0) {
        (void)snprintf(
            text, RDMUX_TEXT_MAX,
            "both ends are in one process, in which libfabric's %.31s crashes when one of "
            "them ends",
            (const char *)ours + REACH_AT_PROVIDER);
        return RDMUX_REASON_NOT_REACHABLE;
    }
    return (ours[1] & REACH_HERE) == 0
               ? RDMUX_REASON_NONE
               : rdmux_software_reach(ours + REACH_AT_HERE, ours_length - REACH_AT_HERE,
                                      theirs + REACH_AT_HERE, theirs_length - REACH_AT_HERE, text);
}
