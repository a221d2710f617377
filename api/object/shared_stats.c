/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The counts of a fabric's endpoints for other processes of its user.
 *
 * Every PERIOD_NS the service thread writes the counts that it has to a file, and mails each cq. The
 * owner of the cq copies the counts of its endpoints when it delivers the mail. So the data path
 * does nothing, and the owner of a cq does not touch files.
 */
#include "api/object/shared_stats.h"

#include "api/base/stats_layout.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/mail.h"
#include "api/object/ep.h"
#include "api/progress/cq_owner.h"
#include "api/system/system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    PERIOD_NS = 250 * 1000 * 1000,
    FILE_NAME_MAX = 64,
};

/* The last copy of an endpoint's counts. */
struct slot {
    uint64_t cq_id; /* 0: free */
    struct rdmux_stats_entry entry;
};

struct rdmux_shared_stats {
    int folder;
    char name[FILE_NAME_MAX];
    char new_name[FILE_NAME_MAX]; /* while the file is written */
    uint64_t next_ns;
    bool has_failed;        /* the log has the reason */
    _Atomic uint32_t mails; /* not delivered yet */
    struct rdmux_stats_header header;
    struct rdmux_stats_entry *written; /* entries of the file that is written */
    pthread_mutex_t lock;              /* a leaf; guards the members below */
    uint32_t left_out;
    struct slot slots[RDMUX_STATS_ENDPOINTS_MAX];
};

struct stats_mail {
    struct rdmux_mail mail;
    struct rdmux_shared_stats *stats;
};

/* --------------------------------------------------------------------------------------- counts */

static void fill_entry(struct rdmux_ep *ep, struct rdmux_stats_entry *entry)
{
    struct rdmux_ep_stats stats;
    rdmux_ep_read_info(ep);
    rdmux_ep_read_stats(ep, &stats);
    *entry = (struct rdmux_stats_entry){
        .endpoint = ep->id,
        .state = ep->info.state,
        .epoch = ep->info.epoch,
        .counted = stats.counted,
        .security = ep->info.security,
        .requests = stats.sends + stats.writes + stats.reads + stats.atomics,
        .receives = stats.receives,
        .bytes_sent = stats.bytes_sent,
        .bytes_received = stats.bytes_received,
        .again = stats.again,
        .moves = stats.moves,
        .retransmissions = stats.retransmissions,
        .ecn_marks = stats.ecn_marks,
        .credits = stats.credits,
        .system_calls = stats.system_calls,
    };
    memcpy(entry->provider, ep->info.provider, sizeof(entry->provider));
    memcpy(entry->device, ep->info.device, sizeof(entry->device));
    memcpy(entry->peer_address, ep->info.peer_address, sizeof(entry->peer_address));
}

/* The owner of a cq: replaces the entries of its endpoints. */
static void copy_counts(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct rdmux_shared_stats *stats = RDMUX_CONTAINER(mail, struct stats_mail, mail)->stats;
    uint32_t at = 0;
    pthread_mutex_lock(&stats->lock);
    for (uint32_t i = 0; i < RDMUX_STATS_ENDPOINTS_MAX; i++) {
        if (stats->slots[i].cq_id == cq->id) {
            stats->slots[i].cq_id = 0;
        }
    }
    for (struct rdmux_list *link = cq->lists.eps.next; link != &cq->lists.eps; link = link->next) {
        while (at < RDMUX_STATS_ENDPOINTS_MAX && stats->slots[at].cq_id != 0) {
            at++;
        }
        if (at == RDMUX_STATS_ENDPOINTS_MAX) {
            stats->left_out++;
        } else {
            fill_entry(RDMUX_CONTAINER(link, struct rdmux_ep, places.cq), &stats->slots[at].entry);
            stats->slots[at].cq_id = cq->id;
        }
    }
    pthread_mutex_unlock(&stats->lock);
    atomic_fetch_sub_explicit(&stats->mails, 1, memory_order_release);
    rdmux_release(cq->fabric, RDMUX_CONTAINER(mail, struct stats_mail, mail));
}

/* Asks all cqs. A cq that did not answer the last time keeps the counts of all as they are. */
static void ask_cqs(struct rdmux_fabric *fabric, struct rdmux_shared_stats *stats)
{
    if (atomic_load_explicit(&stats->mails, memory_order_acquire) != 0) {
        return;
    }
    pthread_mutex_lock(&stats->lock);
    stats->left_out = 0;
    pthread_mutex_unlock(&stats->lock);
    pthread_mutex_lock(&fabric->lock);
    for (struct rdmux_list *at = fabric->cqs.next; at != &fabric->cqs; at = at->next) {
        struct rdmux_cq *cq = RDMUX_CONTAINER(at, struct rdmux_cq, link);
        struct stats_mail *mail = rdmux_allocate(fabric, sizeof(*mail));
        if (mail != NULL) {
            mail->mail.deliver = copy_counts;
            mail->stats = stats;
            atomic_fetch_add_explicit(&stats->mails, 1, memory_order_relaxed);
            rdmux_cq_mail(cq, &mail->mail);
        }
    }
    pthread_mutex_unlock(&fabric->lock);
}

/* ----------------------------------------------------------------------------------------- file */

static bool write_all(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size != 0) {
        ssize_t written = write(fd, at, size);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return false;
        }
        at += written;
        size -= (size_t)written;
    }
    return true;
}

static bool write_file(struct rdmux_shared_stats *stats)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    stats->header.count = 0;
    stats->header.written_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    pthread_mutex_lock(&stats->lock);
    for (uint32_t i = 0; i < RDMUX_STATS_ENDPOINTS_MAX; i++) {
        if (stats->slots[i].cq_id != 0) {
            stats->written[stats->header.count++] = stats->slots[i].entry;
        }
    }
    stats->header.left_out = stats->left_out;
    pthread_mutex_unlock(&stats->lock);
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    (void)unlinkat(stats->folder, stats->new_name, 0);
    int fd = openat(stats->folder, stats->new_name, flags, 0600);
    if (fd < 0) {
        return false;
    }
    bool done = write_all(fd, &stats->header, sizeof(stats->header)) &&
                write_all(fd, stats->written, stats->header.count * sizeof(*stats->written));
    int error = errno;
    close(fd);
    if (done && renameat(stats->folder, stats->new_name, stats->folder, stats->name) == 0) {
        return true;
    }
    error = done ? errno : error;
    (void)unlinkat(stats->folder, stats->new_name, 0);
    errno = error;
    return false;
}

uint64_t rdmux_shared_stats_timer(struct rdmux_fabric *fabric, uint64_t now_ns)
{
    struct rdmux_shared_stats *stats = fabric->shared_stats;
    if (stats == NULL) {
        return UINT64_MAX;
    }
    if (now_ns >= stats->next_ns) {
        bool written = write_file(stats);
        if (!written && !stats->has_failed) {
            rdmux_log(fabric, RDMUX_LOG_WARN, "fabric: the file of its counts is not written: %s",
                      strerror(errno));
        }
        stats->has_failed = !written;
        ask_cqs(fabric, stats);
        stats->next_ns = now_ns + PERIOD_NS;
    }
    return stats->next_ns;
}

/* Opens the folder, which belongs to this user alone. -1: the reason is in why. */
static int open_folder(const char *path, char why[RDMUX_TEXT_MAX])
{
    struct stat info;
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        snprintf(why, RDMUX_TEXT_MAX, "%s", strerror(errno));
        return -1;
    }
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0 || fstat(folder, &info) != 0) {
        snprintf(why, RDMUX_TEXT_MAX, "%s", strerror(errno));
    } else if (info.st_uid != geteuid()) {
        snprintf(why, RDMUX_TEXT_MAX, "it belongs to user %u", (unsigned)info.st_uid);
    } else if ((info.st_mode & 077) != 0) {
        snprintf(why, RDMUX_TEXT_MAX, "others have access to it: its mode is %03o, and not 700",
                 (unsigned)info.st_mode & 0777);
    } else {
        return folder;
    }
    if (folder >= 0) {
        close(folder);
    }
    return -1;
}

static void fill_header(struct rdmux_stats_header *header)
{
    memcpy(header->magic, RDMUX_STATS_MAGIC, sizeof(header->magic));
    header->pid = (int32_t)getpid();
    header->start_ticks = rdmux_stats_start_of(header->pid);
    header->pid_space = rdmux_stats_pid_space();
    snprintf(header->command, sizeof(header->command), "%s", rdmux_process_name());
}

enum rdmux_status rdmux_shared_stats_open(struct rdmux_fabric *fabric)
{
    char path[RDMUX_STATS_FOLDER_MAX];
    char why[RDMUX_TEXT_MAX];
    rdmux_stats_folder(rdmux_environment("XDG_RUNTIME_DIR"), path);
    int folder = open_folder(path, why);
    if (folder < 0) {
        rdmux_log(fabric, RDMUX_LOG_WARN, "fabric: its counts are not shared in %s: %s", path, why);
        return RDMUX_OK;
    }
    struct rdmux_shared_stats *stats = rdmux_allocate_sparse(fabric, sizeof(*stats));
    struct rdmux_stats_entry *written = rdmux_allocate_sparse(fabric, RDMUX_STATS_ENDPOINTS_MAX *
                                                                          sizeof(*written));
    if (stats == NULL || written == NULL) {
        rdmux_release(fabric, stats);
        rdmux_release(fabric, written);
        close(folder);
        return rdmux_fail(RDMUX_NO_MEMORY, "fabric: no memory to share its counts");
    }
    uint64_t number = 0;
    memcpy(&number, fabric->process, sizeof(number));
    stats->folder = folder;
    stats->written = written;
    pthread_mutex_init(&stats->lock, NULL);
    fill_header(&stats->header);
    snprintf(stats->name, sizeof(stats->name), "%d-%016llx%s", (int)stats->header.pid,
             (unsigned long long)number, RDMUX_STATS_SUFFIX);
    snprintf(stats->new_name, sizeof(stats->new_name), "%d-%016llx.new", (int)stats->header.pid,
             (unsigned long long)number);
    fabric->shared_stats = stats;
    rdmux_service_timer(fabric, rdmux_now(fabric));
    return RDMUX_OK;
}

void rdmux_shared_stats_close(struct rdmux_fabric *fabric)
{
    struct rdmux_shared_stats *stats = fabric->shared_stats;
    if (stats == NULL) {
        return;
    }
    (void)unlinkat(stats->folder, stats->name, 0);
    (void)unlinkat(stats->folder, stats->new_name, 0);
    close(stats->folder);
    pthread_mutex_destroy(&stats->lock);
    rdmux_release(fabric, stats->written);
    rdmux_release(fabric, stats);
    fabric->shared_stats = NULL;
}
