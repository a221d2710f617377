/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory regions: creation and tokens. revoke.c has the importers and the revocation.
 *
 * A region is registered with every open domain of the fabric; a domain opened later registers all
 * living regions first (rdmux_mr_register_all). fabric->regions changes only under both setup_lock
 * and lock, so either lock keeps it stable.
 *
 * Token, 64 bytes, big-endian except the bytes without order. Offset, size, field:
 *    0   4  magic "RDXT"
 *    4   4  version, 1
 *    8   8  region id, never reused by its fabric
 *   16   8  length of the region in bytes
 *   24   4  rights, RDMUX_ACCESS_REMOTE_* and ATOMIC_DEVICE
 *   28   4  zero
 *   32   8  first bytes of the process id of the owner's fabric
 *   40  16  random
 *   56   8  zero
 * The owner compares all bytes with two tokens. One is the token it exported for all peers, which
 * it keeps. The other is the token for the peer that presents it, whose random bytes are derived
 * from a secret of the region and the peer's identity. A reader trusts magic and version only.
 */
#include "api/object/mr.h"

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/object/ep.h"
#include "api/object/importers.h"
#include "api/object/mapping.h"
#include "api/object/mr_table.h"
#include "api/object/revoke.h"
#include "api/object/target.h"
#include "api/progress/cq_owner.h"
#include "negotiation/path_secret.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_SIZE_MAX (UINT64_C(1) << 40)

enum {
    NUMA_NODES_MAX = 1024,

    TOKEN_AT_MAGIC = 0,
    TOKEN_AT_VERSION = 4,
    TOKEN_AT_REGION = 8,
    TOKEN_AT_LENGTH = 16,
    TOKEN_AT_ACCESS = 24,
    TOKEN_AT_PROCESS = 32,
    TOKEN_AT_RANDOM = 40,
    TOKEN_PROCESS_SIZE = 8,
    TOKEN_RANDOM_SIZE = 16,
    TOKEN_VERSION = 1,

    ACCESS_REMOTE = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                    RDMUX_ACCESS_REMOTE_ATOMIC,
    ACCESS_WRITES = RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK,
    ACCESS_KNOWN = RDMUX_ACCESS_LOCAL_WRITE | ACCESS_REMOTE | RDMUX_ACCESS_READ_SINK |
                   RDMUX_ACCESS_NO_MAP | RDMUX_ACCESS_ATOMIC_DEVICE,
};
_Static_assert(TOKEN_AT_RANDOM + TOKEN_RANDOM_SIZE <= RDMUX_TOKEN_SIZE, "a token has room");
_Static_assert((int)TOKEN_RANDOM_SIZE == (int)RDMUX_SECRET_SIZE,
               "as rdmux_grant_bits() makes them");

static const uint8_t token_magic[4] = { 'R', 'D', 'X', 'T' };

static void store_be(uint8_t *out, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        out[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
    }
}

static uint64_t load_be(const uint8_t *in, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value = value << 8 | in[i];
    }
    return value;
}

/* Compares in constant time. */
static bool same_bytes(const uint8_t *a, const uint8_t *b, size_t size)
{
    volatile uint8_t difference = 0;
    for (size_t i = 0; i < size; i++) {
        difference = (uint8_t)(difference | (a[i] ^ b[i]));
    }
    return difference == 0;
}

/* ---------------------------------------------------------------------------- memory of our own */

/* Maps `size` bytes that no peer may map. flags: of mmap, for huge pages. */
static void *map_private(size_t size, int flags)
{
    void *addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1,
                      0);
    return addr == MAP_FAILED ? NULL : addr;
}

/* As ftruncate(). The limit on file sizes applies to memory files, too, and exceeding it raises
 * SIGXFSZ, which ends the process. So the limit is checked first. */
static int set_size(int fd, size_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        size > limit.rlim_cur) {
        errno = EFBIG;
        return -1;
    }
    return ftruncate(fd, (off_t)size);
}

/* Maps `size` bytes of a new memfd. flags: of memfd_create, for huge pages. */
static void *map_memfd(size_t size, unsigned flags, int *out_fd)
{
    int fd = memfd_create("rdmux-region", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (fd < 0) {
        return NULL;
    }
    void *addr = MAP_FAILED;
    if (set_size(fd, size) == 0) {
        addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (addr == MAP_FAILED) {
        int before = errno;
        close(fd);
        errno = before;
        return NULL;
    }
    *out_fd = fd;
    return addr;
}

/* Seals the memfd: a peer that gets the descriptor can neither shrink the memory nor, without the
 * right, write to it. */
static bool seal_memory(int fd, uint32_t access)
{
    int seals = F_SEAL_SHRINK | F_SEAL_GROW;
    if ((access & (RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC)) == 0) {
        seals |= F_SEAL_FUTURE_WRITE;
    }
    return fcntl(fd, F_ADD_SEALS, seals) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) == 0;
}

/* Prefers a NUMA node before the first touch; the pages come from elsewhere if the node has
 * none. */
static void prefer_node(void *addr, size_t size, uint32_t node)
{
    enum { BITS = 8 * (int)sizeof(unsigned long) };
    unsigned long nodes[NUMA_NODES_MAX / BITS + 1] = { 0 };
    if (node < NUMA_NODES_MAX) {
        nodes[node / BITS] = 1UL << (node % BITS);
        (void)syscall(SYS_mbind, addr, size, MPOL_PREFERRED, nodes, NUMA_NODES_MAX + 1UL, 0UL);
    }
}

/* Returns the next smaller page size to try; 0 = the system's own. */
static uint64_t smaller_page(uint64_t page)
{
    static const uint64_t sizes[] = { UINT64_C(1) << 30, UINT64_C(2) << 20 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(sizes); i++) {
        if (sizes[i] < page) {
            return sizes[i];
        }
    }
    return 0;
}

/* Maps *size bytes, rounded up to pages; page 0 = the system's own. NULL: errno tells why. */
static void *map_memory(struct rdmux_mr *mr, uint64_t page, size_t *size)
{
    const bool huge = page != 0;
    const size_t unit = huge ? (size_t)page : (size_t)sysconf(_SC_PAGESIZE);
    const unsigned bits = huge ? (unsigned)__builtin_ctzll(page) : 0;
    if (*size > SIZE_MAX / 2 - unit) {
        errno = ENOMEM;
        return NULL;
    }
    *size = (*size + unit - 1) / unit * unit;
    if ((mr->access & RDMUX_ACCESS_NO_MAP) != 0) {
        return map_private(*size, huge ? MAP_HUGETLB | (int)(bits << MAP_HUGE_SHIFT) : 0);
    }
    return map_memfd(*size, huge ? MFD_HUGETLB | bits << MFD_HUGE_SHIFT : 0, &mr->memory_fd);
}

/* Allocates the region's bytes with the requested page size, else with smaller pages. */
static enum rdmux_status allocate_memory(struct rdmux_mr *mr, const struct rdmux_mr_attr *attr)
{
    const uint64_t wished = attr->page_size > (uint64_t)sysconf(_SC_PAGESIZE) ? attr->page_size : 0;
    uint64_t page = wished;
    size_t size = attr->length;
    void *addr = map_memory(mr, page, &size);
    while (addr == NULL && page != 0) {
        page = smaller_page(page);
        size = attr->length;
        addr = map_memory(mr, page, &size);
    }
    if (addr == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "region: cannot allocate %zu bytes: %s%s", attr->length,
                          strerror(errno),
                          errno == EFBIG ? "; raise the limit on file sizes (ulimit -f)" : "");
    }
    mr->addr = addr;
    mr->mapped_size = size;
    if (wished != 0 && page == 0) {
        (void)madvise(addr, size, MADV_HUGEPAGE);
    }
    if (attr->numa_node != 0) {
        prefer_node(addr, size, attr->numa_node - 1);
    }
    if (mr->memory_fd >= 0 && !seal_memory(mr->memory_fd, mr->access)) {
        /* Without seals no peer may have the descriptor; the region works by copying. */
        rdmux_log(mr->fabric, RDMUX_LOG_DEBUG, "region: memfd not sealed: %s; peers cannot map it",
                  strerror(errno));
        close(mr->memory_fd);
        mr->memory_fd = -1;
    }
    return RDMUX_OK;
}

static void free_memory(struct rdmux_mr *mr)
{
    if (mr->allocated && mr->addr != NULL) {
        munmap(mr->addr, mr->mapped_size);
    }
    if (mr->memory_fd >= 0) {
        close(mr->memory_fd);
    }
}

int rdmux_provider_mr_fd(const struct rdmux_provider_mr *registration)
{
    return registration->mr->memory_fd;
}

/* -------------------------------------------------------------------------------- registrations */

/* Registers with one domain. setup_lock is held. */
static enum rdmux_status register_with(struct rdmux_mr *mr, struct rdmux_provider_domain *domain,
                                       struct rdmux_provider_mr **out)
{
    const struct rdmux_provider_ops *ops = domain->ops;
    struct rdmux_provider_mr *registration = rdmux_allocate(mr->fabric, ops->mr_size);
    if (registration == NULL) {
        (void)rdmux_fail(RDMUX_NO_MEMORY, "region: no memory for its registration with %s",
                         ops->name);
        return RDMUX_NO_MEMORY;
    }
    registration->domain = domain;
    registration->mr = mr;
    const struct rdmux_provider_mr_attr attr = {
        .addr = mr->addr,
        .length = mr->length,
        .access = mr->access,
        .ordering = mr->ordering,
        .memory_fd = mr->memory_fd,
    };
    rdmux_error_clear();
    enum rdmux_status status = ops->mr_register(registration, &attr);
    if (status != RDMUX_OK) {
        rdmux_release(mr->fabric, registration);
        if (rdmux_last_error()[0] == '\0') {
            (void)rdmux_fail(status, "region: %s cannot register %zu bytes: %s", ops->name,
                             mr->length, rdmux_status_name(status));
        }
        return status;
    }
    *out = registration;
    return RDMUX_OK;
}

/* Deregisters with the provider and frees the registration. */
static void drop_registration(struct rdmux_provider_mr *registration)
{
    struct rdmux_fabric *fabric = registration->mr->fabric;
    const struct rdmux_provider_ops *ops = registration->domain->ops;
    ops->mr_deregister(registration);
    rdmux_release(fabric, registration);
}

/* Drops all registrations of a region that no other thread can reach. Keeps the error text of the
 * failure that it may undo. */
static void drop_registrations(struct rdmux_mr *mr)
{
    size_t count = atomic_load_explicit(&mr->registration_count, memory_order_relaxed);
    while (count-- > 0) {
        drop_registration(mr->registrations[count].mr);
    }
    atomic_store_explicit(&mr->registration_count, 0, memory_order_relaxed);
}

/* Makes a registration visible to the data path. setup_lock is held, or no other thread has the
 * region yet. */
static void publish_registration(struct rdmux_mr *mr, struct rdmux_provider_mr *registration)
{
    size_t count = atomic_load_explicit(&mr->registration_count, memory_order_relaxed);
    mr->registrations[count].domain = registration->domain;
    mr->registrations[count].mr = registration;
    atomic_store_explicit(&mr->registration_count, count + 1,
                          memory_order_release); /* rdmux_mr_with() acquires */
}

enum rdmux_status rdmux_mr_register_all(struct rdmux_fabric *fabric,
                                        struct rdmux_provider_domain *domain)
{
    size_t count = 0;
    for (struct rdmux_list *at = fabric->regions.next; at != &fabric->regions; at = at->next) {
        count++;
    }
    if (count == 0) {
        return RDMUX_OK;
    }
    /* No registration is published before all exist, so the data path never sees one that is
     * undone. */
    struct rdmux_provider_mr **made = rdmux_allocate(fabric,
                                                     count * sizeof(struct rdmux_provider_mr *));
    if (made == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "%s: no memory for %zu registrations", domain->ops->name,
                          count);
    }
    size_t done = 0;
    enum rdmux_status status = RDMUX_OK;
    for (struct rdmux_list *at = fabric->regions.next; at != &fabric->regions; at = at->next) {
        status = register_with(RDMUX_CONTAINER(at, struct rdmux_mr, link), domain, &made[done]);
        if (status != RDMUX_OK) {
            break;
        }
        done++;
    }
    if (status == RDMUX_OK) {
        for (size_t i = 0; i < done; i++) {
            publish_registration(made[i]->mr, made[i]);
        }
    } else {
        while (done-- > 0) {
            drop_registration(made[done]);
        }
    }
    rdmux_release(fabric, made);
    return status;
}

void rdmux_mr_domain_gone(struct rdmux_fabric *fabric, struct rdmux_provider_domain *domain)
{
    for (struct rdmux_list *at = fabric->regions.next; at != &fabric->regions; at = at->next) {
        struct rdmux_mr *mr = RDMUX_CONTAINER(at, struct rdmux_mr, link);
        size_t count = atomic_load_explicit(&mr->registration_count, memory_order_relaxed);
        for (size_t i = 0; i < count; i++) {
            struct rdmux_provider_mr *registration = mr->registrations[i].mr;
            if (registration->domain == domain) {
                mr->registrations[i] = mr->registrations[count - 1];
                atomic_store_explicit(&mr->registration_count, count - 1, memory_order_relaxed);
                drop_registration(registration);
                break;
            }
        }
    }
}

/* ------------------------------------------------------------------------------------- creation */

static enum rdmux_status check_attr(const struct rdmux_mr_attr *attr)
{
    if ((attr->access & ~(uint32_t)ACCESS_KNOWN) != 0) {
        return rdmux_fail(RDMUX_INVALID, "region: unknown access bits 0x%x",
                          attr->access & ~(uint32_t)ACCESS_KNOWN);
    }
    if (attr->length == 0) {
        return rdmux_fail(RDMUX_INVALID, "region: length 0; a region has at least 1 byte");
    }
    if (attr->length - 1 > UINTPTR_MAX - (uintptr_t)attr->addr) {
        return rdmux_fail(RDMUX_INVALID,
                          "region: length of %zu bytes at addr %p ends beyond the address space",
                          attr->length, attr->addr);
    }
    if (attr->dmabuf_fd != 0 || attr->dmabuf_offset != 0) {
        return rdmux_fail(RDMUX_UNSUPPORTED, "region: dmabufs are not supported by this version");
    }
    if (attr->ordering > RDMUX_ORDERING_RELAXED) {
        return rdmux_fail(RDMUX_INVALID, "region: unknown ordering %u", attr->ordering);
    }
    if ((attr->access & RDMUX_ACCESS_REMOTE_ATOMIC) != 0) {
        if (attr->ordering == RDMUX_ORDERING_RELAXED) {
            return rdmux_fail(RDMUX_INVALID, "region: relaxed ordering and remote atomics exclude "
                                             "each other; register the atomic words apart");
        }
        if ((uintptr_t)attr->addr % sizeof(uint64_t) != 0) {
            return rdmux_fail(RDMUX_INVALID,
                              "region: addr %p is not 8-byte aligned, as remote atomics demand",
                              attr->addr);
        }
    }
    if ((attr->page_size & (attr->page_size - 1)) != 0 || attr->page_size > PAGE_SIZE_MAX) {
        return rdmux_fail(RDMUX_INVALID, "region: page_size %llu is no size of pages",
                          (unsigned long long)attr->page_size);
    }
    return RDMUX_OK;
}

/* Registers the region with all open domains, except those whose device has gone, and adds it to
 * the fabric. */
static enum rdmux_status enter_fabric(struct rdmux_fabric *fabric, struct rdmux_mr *mr)
{
    pthread_mutex_lock(&fabric->setup_lock);
    enum rdmux_status status = RDMUX_OK;
    for (size_t i = 0; i < fabric->domain_count && status == RDMUX_OK; i++) {
        struct rdmux_provider_mr *registration = NULL;
        if (atomic_load(&fabric->domains[i].is_gone)) {
            continue;
        }
        status = register_with(mr, fabric->domains[i].domain, &registration);
        if (status == RDMUX_OK) {
            publish_registration(mr, registration);
        }
    }
    if (status == RDMUX_OK) {
        pthread_mutex_lock(&fabric->lock);
        if ((mr->access & ACCESS_REMOTE) != 0) {
            status = rdmux_region_table_add(fabric, mr);
        }
        if (status == RDMUX_OK) {
            rdmux_mr_table_add(fabric, mr);
        }
        pthread_mutex_unlock(&fabric->lock);
    }
    if (status != RDMUX_OK) {
        drop_registrations(mr);
    }
    pthread_mutex_unlock(&fabric->setup_lock);
    return status;
}

/* Waits for a region use the system's clock, whatever the fabric's clock hook returns. */
static bool make_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0) {
        return false;
    }
    bool made = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(condition, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    return made;
}

static enum rdmux_status create_region(struct rdmux_fabric *fabric,
                                       const struct rdmux_mr_attr *attr, struct rdmux_mr **out)
{
    if (*fabric->alive == 0) {
        return rdmux_fail(RDMUX_INVALID, "region: the fabric belongs to the process before fork");
    }
    enum rdmux_status status = check_attr(attr);
    if (status != RDMUX_OK) {
        return status;
    }
    struct rdmux_mr *mr = rdmux_allocate(fabric, sizeof(*mr));
    if (mr == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "region: no memory for the object");
    }
    mr->fabric = fabric;
    mr->length = attr->length;
    mr->access = attr->access;
    mr->ordering = attr->ordering;
    mr->memory_fd = -1;
    mr->id = atomic_fetch_add(&fabric->next_id, 1);
    rdmux_list_init(&mr->link);
    rdmux_list_init(&mr->importers);
    if ((mr->access & (RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC)) != 0) {
        mr->access |= RDMUX_ACCESS_LOCAL_WRITE;
    }
    if (!make_condition(&mr->changed)) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "region: no memory for its condition variable");
        goto release;
    }
    if (attr->addr != NULL) {
        mr->addr = attr->addr;
        status = rdmux_mapping_check(mr->addr, mr->length, (mr->access & ACCESS_WRITES) != 0);
        if (status != RDMUX_OK) {
            goto destroy_condition;
        }
    } else {
        mr->allocated = true;
        status = allocate_memory(mr, attr);
        if (status != RDMUX_OK) {
            goto destroy_condition;
        }
    }
    status = enter_fabric(fabric, mr);
    if (status != RDMUX_OK) {
        goto free_memory;
    }
    *out = mr;
    return RDMUX_OK;

free_memory:
    free_memory(mr);
destroy_condition:
    pthread_cond_destroy(&mr->changed);
release:
    rdmux_release(fabric, mr);
    return status;
}

static enum rdmux_status null_argument(const char *function, const char *name)
{
    return rdmux_fail(RDMUX_INVALID, "%s: %s is NULL", function, name);
}

enum rdmux_status rdmux_mr_create(struct rdmux_fabric *fabric, const struct rdmux_mr_attr *attr,
                                  struct rdmux_mr **out)
{
    if (out != NULL) {
        *out = NULL;
    }
    if (fabric == NULL || attr == NULL || out == NULL) {
        return null_argument("rdmux_mr_create", fabric == NULL ? "fabric"
                                                : attr == NULL ? "attr"
                                                               : "out");
    }
    if (attr->size < offsetof(struct rdmux_mr_attr, length) + sizeof(attr->length)) {
        return rdmux_fail(RDMUX_INVALID, "region: attr.size %u; set it by RDMUX_MR_ATTR_INIT",
                          attr->size);
    }
    struct rdmux_mr_attr full = RDMUX_MR_ATTR_INIT;
    memcpy(&full, attr, attr->size < sizeof(full) ? attr->size : sizeof(full));
    return create_region(fabric, &full, out);
}

enum rdmux_status rdmux_mr_register(struct rdmux_fabric *fabric, void *addr, size_t length,
                                    uint32_t access, struct rdmux_mr **out)
{
    if (out != NULL) {
        *out = NULL;
    }
    if (fabric == NULL || addr == NULL || out == NULL) {
        return null_argument("rdmux_mr_register", fabric == NULL ? "fabric"
                                                  : addr == NULL ? "addr"
                                                                 : "out");
    }
    struct rdmux_mr_attr attr = RDMUX_MR_ATTR_INIT;
    attr.addr = addr;
    attr.length = length;
    attr.access = access;
    return create_region(fabric, &attr, out);
}

enum rdmux_status rdmux_mr_alloc(struct rdmux_fabric *fabric, size_t length, uint32_t access,
                                 struct rdmux_mr **out)
{
    if (out != NULL) {
        *out = NULL;
    }
    if (fabric == NULL || out == NULL) {
        return null_argument("rdmux_mr_alloc", fabric == NULL ? "fabric" : "out");
    }
    struct rdmux_mr_attr attr = RDMUX_MR_ATTR_INIT;
    attr.length = length;
    attr.access = access;
    return create_region(fabric, &attr, out);
}

void *rdmux_mr_addr(const struct rdmux_mr *mr)
{
    return mr != NULL ? mr->addr : NULL;
}

size_t rdmux_mr_length(const struct rdmux_mr *mr)
{
    return mr != NULL ? mr->length : 0;
}

/* --------------------------------------------------------------------------------------- tokens */

static void make_token(const struct rdmux_mr *mr, const uint8_t random[TOKEN_RANDOM_SIZE],
                       struct rdmux_token *out)
{
    uint8_t *bytes = out->bytes;
    memset(bytes, 0, sizeof(out->bytes));
    memcpy(bytes + TOKEN_AT_MAGIC, token_magic, sizeof(token_magic));
    store_be(bytes + TOKEN_AT_VERSION, TOKEN_VERSION, 4);
    store_be(bytes + TOKEN_AT_REGION, mr->id, 8);
    store_be(bytes + TOKEN_AT_LENGTH, mr->length, 8);
    store_be(bytes + TOKEN_AT_ACCESS, mr->access & (ACCESS_REMOTE | RDMUX_ACCESS_ATOMIC_DEVICE), 4);
    memcpy(bytes + TOKEN_AT_PROCESS, mr->fabric->process, TOKEN_PROCESS_SIZE);
    memcpy(bytes + TOKEN_AT_RANDOM, random, TOKEN_RANDOM_SIZE);
}

/* Makes the token for peers of this identity and keeps none of it. fabric->lock is held. False: out
 * of memory. */
static bool make_grant(const struct rdmux_mr *mr, const char *identity, struct rdmux_token *out)
{
    uint8_t bits[TOKEN_RANDOM_SIZE];
    if (!rdmux_grant_bits(mr->secrets->grant, identity, bits)) {
        return false;
    }
    make_token(mr, bits, out);
    explicit_bzero(bits, sizeof(bits));
    return true;
}

bool rdmux_token_is_valid(const struct rdmux_token *token)
{
    return memcmp(token->bytes + TOKEN_AT_MAGIC, token_magic, sizeof(token_magic)) == 0 &&
           load_be(token->bytes + TOKEN_AT_VERSION, 4) == TOKEN_VERSION;
}

/* Checks that the region may have tokens, and draws the random bytes for a new one. */
static enum rdmux_status prepare_export(struct rdmux_mr *mr, uint8_t random[TOKEN_RANDOM_SIZE])
{
    if (*mr->fabric->alive == 0) {
        return rdmux_fail(RDMUX_INVALID, "export: the region belongs to the process before fork");
    }
    if ((mr->access & ACCESS_REMOTE) == 0) {
        return rdmux_fail(RDMUX_INVALID,
                          "export: the region has no remote rights; register it with "
                          "RDMUX_ACCESS_REMOTE_READ, WRITE or ATOMIC");
    }
    return rdmux_random(mr->fabric, random, TOKEN_RANDOM_SIZE);
}

/* Waits until no revocation is under way. Afterwards the region has a key, unless the last
 * revocation failed to get a new one and that still fails. fabric->lock is held, but released
 * meanwhile. */
static enum rdmux_status await_key(struct rdmux_mr *mr)
{
    while (mr->is_revoking) {
        pthread_cond_wait(&mr->changed, &mr->fabric->lock);
    }
    return mr->index == 0 ? rdmux_region_table_add(mr->fabric, mr) : RDMUX_OK;
}

/* fabric->lock is held. */
static enum rdmux_status keep_secrets(struct rdmux_mr *mr)
{
    if (mr->secrets == NULL) {
        mr->secrets = rdmux_secret_allocate(mr->fabric);
    }
    return mr->secrets != NULL ? RDMUX_OK
                               : rdmux_fail(RDMUX_NO_MEMORY, "export: no memory for a token");
}

/* Waits for the region's key and has its secrets allocated. fabric->lock is held. */
static enum rdmux_status await_secrets(struct rdmux_mr *mr)
{
    enum rdmux_status status = await_key(mr);
    return status == RDMUX_OK ? keep_secrets(mr) : status;
}

enum rdmux_status rdmux_mr_export(struct rdmux_mr *mr, struct rdmux_token *out)
{
    if (mr == NULL || out == NULL) {
        return null_argument("rdmux_mr_export", mr == NULL ? "mr" : "out");
    }
    uint8_t random[TOKEN_RANDOM_SIZE] = { 0 };
    enum rdmux_status status = prepare_export(mr, random);
    if (status != RDMUX_OK) {
        return status;
    }
    pthread_mutex_lock(&mr->fabric->lock);
    status = await_secrets(mr);
    if (status == RDMUX_OK && !mr->is_exported) {
        assert(mr->secrets != NULL);
        make_token(mr, random, &mr->secrets->token);
        mr->is_exported = true;
    }
    if (status == RDMUX_OK) {
        *out = mr->secrets->token;
    }
    pthread_mutex_unlock(&mr->fabric->lock);
    explicit_bzero(random, sizeof(random));
    return status;
}

enum rdmux_status rdmux_mr_export_to(struct rdmux_mr *mr, const char *identity,
                                     struct rdmux_token *out)
{
    if (mr == NULL || identity == NULL || out == NULL) {
        return null_argument("rdmux_mr_export_to", mr == NULL         ? "mr"
                                                   : identity == NULL ? "identity"
                                                                      : "out");
    }
    size_t length = strnlen(identity, RDMUX_IDENTITY_MAX);
    if (length == 0 || length == RDMUX_IDENTITY_MAX) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_mr_export_to: identity has %s bytes; 1 to %d",
                          length == 0 ? "no" : "too many", RDMUX_IDENTITY_MAX - 1);
    }
    if (mr->fabric->auth == NULL) {
        return rdmux_fail(
            RDMUX_INVALID,
            "rdmux_mr_export_to: nobody authenticates, so no peer is \"%s\"; open the "
            "fabric with rdmux_fabric_attr.auth",
            identity);
    }
    uint8_t random[TOKEN_RANDOM_SIZE] = { 0 };
    enum rdmux_status status = prepare_export(mr, random);
    if (status != RDMUX_OK) {
        return status;
    }
    pthread_mutex_lock(&mr->fabric->lock);
    status = await_secrets(mr);
    if (status == RDMUX_OK && !mr->is_granted) {
        assert(mr->secrets != NULL);
        memcpy(mr->secrets->grant, random, sizeof(mr->secrets->grant));
        mr->is_granted = true;
    }
    if (status == RDMUX_OK && !make_grant(mr, identity, out)) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "export: no memory for a digest");
    }
    pthread_mutex_unlock(&mr->fabric->lock);
    explicit_bzero(random, sizeof(random));
    return status;
}

/* Owner of ep's cq: returns the region's key on the endpoint's device. */
static enum rdmux_status give_raw(struct rdmux_mr *mr, struct rdmux_ep *ep, uint64_t *addr,
                                  uint32_t *key)
{
    struct rdmux_fabric *fabric = mr->fabric;
    struct rdmux_provider_mr *registration = rdmux_mr_with(mr, ep->domain);
    uint8_t bytes[RDMUX_RAW_KEY_SIZE];
    size_t size = sizeof(bytes);
    if (registration == NULL) {
        return rdmux_fail(RDMUX_UNSUPPORTED, "rdmux_mr_raw: the region is not registered with %s",
                          ep->info.device);
    }
    pthread_mutex_lock(&fabric->lock);
    while (mr->is_revoking) {
        pthread_cond_wait(&mr->changed, &fabric->lock);
    }
    mr->is_given_raw = true;
    mr->importing++;
    pthread_mutex_unlock(&fabric->lock);
    rdmux_error_clear();
    enum rdmux_status status = ep->ops->mr_describe(registration, ep->path, bytes, &size);
    rdmux_mr_import_done(mr);
    if (status == RDMUX_OK) {
        memcpy(addr, bytes, sizeof(*addr));
        memcpy(key, bytes + sizeof(*addr), sizeof(*key));
    }
    return status;
}

enum rdmux_status rdmux_mr_raw(struct rdmux_mr *mr, struct rdmux_ep *ep, uint64_t *addr,
                               uint32_t *key)
{
    if (mr == NULL || ep == NULL || addr == NULL || key == NULL) {
        return null_argument("rdmux_mr_raw", mr == NULL     ? "mr"
                                             : ep == NULL   ? "ep"
                                             : addr == NULL ? "addr"
                                                            : "key");
    }
    if (*mr->fabric->alive == 0 || !rdmux_cq_enter(ep->cq)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_mr_raw: the region belongs to the process before fork");
    }
    enum rdmux_status status = rdmux_ep_check_rdmacm(ep, "rdmux_mr_raw");
    if (status == RDMUX_OK && mr->fabric != ep->fabric) {
        status = rdmux_fail(RDMUX_INVALID, "rdmux_mr_raw: mr belongs to another fabric");
    } else if (status == RDMUX_OK && (mr->access & ACCESS_REMOTE) == 0) {
        status = rdmux_fail(RDMUX_INVALID,
                            "rdmux_mr_raw: the region has no remote rights; register it with "
                            "RDMUX_ACCESS_REMOTE_READ, WRITE or ATOMIC");
    }
    if (status == RDMUX_OK) {
        status = give_raw(mr, ep, addr, key);
    }
    rdmux_cq_leave(ep->cq);
    return status;
}

/* Returns whether this is the token exported to all peers. fabric->lock is held, here and below. */
static bool is_for_all(const struct rdmux_mr *mr, const struct rdmux_token *token)
{
    return mr->is_exported &&
           same_bytes(mr->secrets->token.bytes, token->bytes, sizeof(token->bytes));
}

/* Returns whether this is the token granted to this peer. */
static bool is_granted(const struct rdmux_mr *mr, const struct rdmux_token *token,
                       const char *identity)
{
    struct rdmux_token grant;
    bool same = mr->is_granted && identity[0] != '\0' && make_grant(mr, identity, &grant) &&
                same_bytes(grant.bytes, token->bytes, sizeof(token->bytes));
    explicit_bzero(&grant, sizeof(grant));
    return same;
}

/* Returns the region that this token opens for this peer now, or NULL. */
static struct rdmux_mr *find_exported(struct rdmux_fabric *fabric, const struct rdmux_token *token,
                                      const char *identity)
{
    struct rdmux_mr *mr = rdmux_mr_find(fabric, load_be(token->bytes + TOKEN_AT_REGION, 8));
    bool valid = mr != NULL && !mr->is_revoking &&
                 (is_for_all(mr, token) || is_granted(mr, token, identity));
    return valid ? mr : NULL;
}

enum rdmux_status rdmux_mr_import(struct rdmux_fabric *fabric, const struct rdmux_token *token,
                                  const char *identity, struct rdmux_cq *cq, uint64_t ep_id,
                                  struct rdmux_provider_domain *domain, struct rdmux_mr **out,
                                  struct rdmux_provider_mr **registration)
{
    *out = NULL;
    *registration = NULL;
    enum rdmux_status status = RDMUX_OK;
    pthread_mutex_lock(&fabric->lock);
    struct rdmux_mr *mr = find_exported(fabric, token, identity);
    struct rdmux_provider_mr *found = mr != NULL ? rdmux_mr_with(mr, domain) : NULL;
    if (mr == NULL) {
        status = rdmux_fail(
            RDMUX_DENIED, "import: no region here has this token, or it was revoked, or it is for "
                          "another peer");
    } else if (found == NULL) {
        status = rdmux_fail(RDMUX_UNSUPPORTED, "import: the region is not registered with %s",
                            domain->ops->name);
    } else {
        status = rdmux_mr_note_importer(mr, cq, ep_id);
        if (status == RDMUX_OK) {
            mr->importing++;
            *out = mr;
            *registration = found;
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    return status;
}

void rdmux_mr_import_done(struct rdmux_mr *mr)
{
    struct rdmux_fabric *fabric = mr->fabric;
    pthread_mutex_lock(&fabric->lock);
    if (--mr->importing == 0 && mr->is_revoking) {
        pthread_cond_broadcast(&mr->changed);
    }
    pthread_mutex_unlock(&fabric->lock);
}

/* ----------------------------------------------------------------------------------- revocation */

enum rdmux_status rdmux_mr_revoke(struct rdmux_mr *mr)
{
    if (mr == NULL) {
        return null_argument("rdmux_mr_revoke", "mr");
    }
    if (*mr->fabric->alive == 0) {
        return rdmux_fail(RDMUX_INVALID, "revoke: the region belongs to the process before fork");
    }
    return rdmux_mr_take_back(mr, true);
}

void rdmux_mr_deregister(struct rdmux_mr *mr)
{
    if (mr == NULL || *mr->fabric->alive == 0) {
        return;
    }
    struct rdmux_fabric *fabric = mr->fabric;
    (void)rdmux_mr_take_back(mr, false);
    pthread_mutex_lock(&fabric->setup_lock);
    pthread_mutex_lock(&fabric->lock);
    rdmux_mr_table_remove(fabric, mr);
    pthread_mutex_unlock(&fabric->lock);
    pthread_mutex_unlock(&fabric->setup_lock);
    drop_registrations(mr);
    free_memory(mr);
    rdmux_secret_release(fabric, mr->secrets);
    pthread_cond_destroy(&mr->changed);
    rdmux_release(fabric, mr);
}

/* -------------------------------------------------------------------------------------- finding */

struct rdmux_mr *rdmux_mr_of(struct rdmux_fabric *fabric,
                             const struct rdmux_provider_mr *registration)
{
    struct rdmux_mr *found = NULL;
    pthread_mutex_lock(&fabric->lock);
    for (struct rdmux_list *at = fabric->regions.next; at != &fabric->regions && found == NULL;
         at = at->next) {
        struct rdmux_mr *mr = RDMUX_CONTAINER(at, struct rdmux_mr, link);
        if (rdmux_mr_with(mr, registration->domain) == registration) {
            found = mr;
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    return found;
}

bool rdmux_mr_is_there(struct rdmux_fabric *fabric, const struct rdmux_mr *mr)
{
    bool found = false;
    pthread_mutex_lock(&fabric->lock);
    for (struct rdmux_list *at = fabric->regions.next; at != &fabric->regions && !found;
         at = at->next) {
        found = RDMUX_CONTAINER(at, struct rdmux_mr, link) == mr;
    }
    pthread_mutex_unlock(&fabric->lock);
    return found;
}
