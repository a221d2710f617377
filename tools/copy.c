/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdmux copy: sends a file or a tree to `rdmux serve --receive`.
 *
 * Files are read directly into the send buffers, many small files to a buffer, so a tree of small
 * files costs no round trip per file. Both sides compute each file's checksum. The receiving end
 * gives a file its name only if the checksums agree.
 */
#include "client.h"
#include "json.h"
#include "options.h"
#include "progress.h"
#include "receiver.h"
#include "timer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char command_name[] = "copy";

enum {
    BUFFERS = 8,
    RECEIVES = 4,
    SEND_DEPTH = BUFFERS + 8,
    ROOM_MIN = 4096, /* a buffer with less room than this for file data is sent as it is */
    SKIPS_TOLD = 3,
    RESULT_TIMEOUT_MS = 60000, /* the receiver may still have a buffer full of files to write */
};

/* Contents of the source. */
struct tally {
    uint64_t files;
    uint64_t directories;
    uint64_t links;
    uint64_t skipped; /* neither file, directory nor link, or a link that leads out of the tree */
    uint64_t bytes;
};

struct sender {
    struct client client;
    const struct copy_options *options;
    struct rdmux_mr *mr;
    uint8_t *base;
    bool busy[BUFFERS];
    unsigned current;
    size_t fill; /* bytes in the current buffer */
    uint8_t control_in[RECEIVES][PROTO_CONTROL_MAX];
    bool ready;
    bool result_here;
    struct proto_copy_result result;
    struct checksum *checksum;
    uint8_t last_sum[CHECKSUM_SIZE_MAX];
    struct progress progress;
    struct tally expected;
    struct tally done;
    char path[PROTO_PATH_MAX]; /* path at the receiver of the current entry */
    size_t path_length;
    size_t root_length; /* length of the part that stands for the source itself */
};

/* --------------------------------------------------------------------------------------- errors */

/* Writes the local name of the current entry. */
static void local_name(const struct sender *sender, char *out, size_t size)
{
    snprintf(out, size, "%s%s", sender->options->source, sender->path + sender->root_length);
}

static bool fail_errno(struct sender *sender, const char *what, int error)
{
    char name[PATH_MAX];
    local_name(sender, name, sizeof(name));
    progress_clear(&sender->progress);
    const char *remedy = "";
    if (error == EACCES || error == EPERM) {
        remedy = "; run the command as a user who may read it";
    } else if (error == EMFILE || error == ENFILE) {
        remedy = "; raise the limit on open files (ulimit -n)";
    } else if (error == ENAMETOOLONG) {
        remedy = "; the path at the far end would be too long";
    }
    client_fail(&sender->client, "cannot %s \"%s\": %s%s", what, name, strerror(error), remedy);
    return false;
}

static void tell_skipped(struct sender *sender, const char *why)
{
    sender->done.skipped++;
    if (sender->done.skipped > SKIPS_TOLD) {
        return;
    }
    char name[PATH_MAX];
    local_name(sender, name, sizeof(name));
    progress_clear(&sender->progress);
    if (sender->done.skipped == SKIPS_TOLD) {
        tool_error(command_name, "skipped \"%s\": %s; more are only counted", name, why);
    } else {
        tool_error(command_name, "skipped \"%s\": %s", name, why);
    }
}

/* ------------------------------------------------------------------------------- the connection */

static bool take_message(struct sender *sender, const struct rdmux_wc *wc)
{
    struct proto_message message;
    if (!client_is_control(wc) || !proto_open(wc->context, (size_t)wc->length, &message)) {
        client_fail(&sender->client, "%s: the server sent a malformed message",
                    sender->client.address);
        return false;
    }
    if (!sender->ready && proto_copy_ready_decode(&message)) {
        sender->ready = true;
        return true;
    }
    if (sender->ready && !sender->result_here &&
        proto_copy_result_decode(&message, &sender->result)) {
        sender->result_here = true;
        return true;
    }
    progress_clear(&sender->progress);
    client_fail_message(&sender->client, &message);
    return false;
}

/* Takes the available completions, waiting up to timeout_ms for the first. On failure prints the
 * error and returns false. */
static bool pump(struct sender *sender, int timeout_ms)
{
    struct rdmux_wc wc[16];
    size_t count = 0;
    enum rdmux_status status = rdmux_cq_wait(sender->client.cq, wc, TOOL_COUNT_OF(wc), timeout_ms,
                                             &count);
    if (status != RDMUX_OK && status != RDMUX_TIMED_OUT && status != RDMUX_AGAIN) {
        client_fail_call(&sender->client, "wait for completions", status);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (wc[i].status != RDMUX_OK || wc[i].opcode == RDMUX_WC_DISCONNECTED) {
            progress_clear(&sender->progress);
            client_fail_completion(&sender->client, &wc[i], count - i);
            return false;
        }
        if (wc[i].opcode == RDMUX_WC_SEND) {
            *(bool *)wc[i].context = false;
        } else if (wc[i].opcode == RDMUX_WC_RECV && !take_message(sender, &wc[i])) {
            return false;
        }
    }
    return true;
}

/* Waits until *condition is true. On failure or timeout prints the error and returns false. */
static bool wait_for(struct sender *sender, const bool *condition, int timeout_ms, const char *what)
{
    uint64_t give_up_ns = timer_clock_ns() + UINT64_C(1000000) * (uint64_t)timeout_ms;
    while (!*condition) {
        if (!pump(sender, 1000)) {
            return false;
        }
        if (!*condition && timer_clock_ns() > give_up_ns) {
            client_fail(&sender->client,
                        "%s: the server has not %s for %d s; is it stopped or overloaded?",
                        sender->client.address, what, timeout_ms / 1000);
            return false;
        }
    }
    return true;
}

static uint8_t *buffer(const struct sender *sender)
{
    return sender->base + (size_t)sender->current * PROTO_COPY_CHUNK;
}

/* Sends the current buffer and waits until the next one is free. */
static bool flush(struct sender *sender)
{
    if (sender->fill == 0) {
        return true;
    }
    enum rdmux_status status = RDMUX_OK;
    while ((status = rdmux_send(sender->client.ep, buffer(sender), sender->fill, sender->mr,
                                &sender->busy[sender->current], 0)) == RDMUX_AGAIN) {
        if (!pump(sender, 1000)) {
            return false;
        }
    }
    if (status != RDMUX_OK) {
        progress_clear(&sender->progress);
        /* The endpoint may have ended because the server gave up; the queue then holds its
         * reason. */
        if (pump(sender, 100)) {
            client_fail_call(&sender->client, "send", status);
        }
        return false;
    }
    sender->busy[sender->current] = true;
    sender->current = (sender->current + 1) % BUFFERS;
    sender->fill = 0;
    if (!pump(sender, 0)) {
        return false;
    }
    while (sender->busy[sender->current]) {
        if (!pump(sender, 1000)) {
            return false;
        }
    }
    progress_update(&sender->progress, sender->done.bytes);
    return true;
}

/* -------------------------------------------------------------------------------------- records */

/* Begins a record with a payload of this length in the current buffer, or in the next one if it
 * does not fit. Returns NULL on failure. */
static uint8_t *add_record(struct sender *sender, enum proto_record kind, size_t length)
{
    if (sender->fill + PROTO_RECORD_HEADER_SIZE + length > PROTO_COPY_CHUNK && !flush(sender)) {
        return NULL;
    }
    uint8_t *record = buffer(sender) + sender->fill;
    proto_store32(record, (uint32_t)kind);
    proto_store32(record + 4, (uint32_t)length);
    sender->fill += PROTO_RECORD_HEADER_SIZE + length;
    return record + PROTO_RECORD_HEADER_SIZE;
}

static bool add_entry(struct sender *sender, enum proto_record kind, mode_t mode)
{
    uint8_t *payload = add_record(sender, kind, 4 + sender->path_length);
    if (payload == NULL) {
        return false;
    }
    proto_store32(payload, (uint32_t)mode & 07777);
    memcpy(payload + 4, sender->path, sender->path_length);
    return true;
}

/* Reads the rest of a file into DATA records. */
static bool send_contents(struct sender *sender, int file)
{
    for (;;) {
        if (sender->fill + PROTO_RECORD_HEADER_SIZE + ROOM_MIN > PROTO_COPY_CHUNK &&
            !flush(sender)) {
            return false;
        }
        uint8_t *record = buffer(sender) + sender->fill;
        uint8_t *data = record + PROTO_RECORD_HEADER_SIZE;
        ssize_t length = read(file, data,
                              PROTO_COPY_CHUNK - sender->fill - PROTO_RECORD_HEADER_SIZE);
        if (length < 0 && errno == EINTR) {
            continue;
        }
        if (length < 0) {
            return fail_errno(sender, "read", errno);
        }
        if (length == 0) {
            return true;
        }
        proto_store32(record, PROTO_RECORD_DATA);
        proto_store32(record + 4, (uint32_t)length);
        sender->fill += PROTO_RECORD_HEADER_SIZE + (size_t)length;
        sender->done.bytes += (uint64_t)length;
        if (!checksum_add(sender->checksum, data, (size_t)length)) {
            return fail_errno(sender, "compute the checksum of", ENOMEM);
        }
    }
}

static bool send_file(struct sender *sender, int file, mode_t mode)
{
    if (!checksum_begin(sender->checksum)) {
        return fail_errno(sender, "compute the checksum of", ENOMEM);
    }
    if (!add_entry(sender, PROTO_RECORD_FILE, mode) || !send_contents(sender, file)) {
        return false;
    }
    uint8_t *payload = add_record(sender, PROTO_RECORD_FILE_END, CHECKSUM_SIZE_MAX);
    if (payload == NULL) {
        return false;
    }
    if (!checksum_end(sender->checksum, sender->last_sum)) {
        return fail_errno(sender, "compute the checksum of", ENOMEM);
    }
    memcpy(payload, sender->last_sum, CHECKSUM_SIZE_MAX);
    sender->done.files++;
    return true;
}

static bool send_link(struct sender *sender, int directory, const char *name)
{
    char target[PROTO_PATH_MAX];
    ssize_t length = readlinkat(directory, name, target, sizeof(target) - 1);
    if (length < 0) {
        return fail_errno(sender, "read the link", errno);
    }
    target[length] = '\0';
    const char *wrong = receiver_check_link(sender->path, target);
    if (wrong != NULL) {
        tell_skipped(sender, wrong);
        return true;
    }
    uint8_t *payload = add_record(sender, PROTO_RECORD_LINK,
                                  4 + sender->path_length + (size_t)length);
    if (payload == NULL) {
        return false;
    }
    proto_store32(payload, (uint32_t)sender->path_length);
    memcpy(payload + 4, sender->path, sender->path_length);
    memcpy(payload + 4 + sender->path_length, target, (size_t)length);
    sender->done.links++;
    return true;
}

/* ------------------------------------------------------------------------------------- the tree */

static int not_dots(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

/* Extends the path by a name. Returns the length to restore with path_leave(), 0 if the name does
 * not fit. */
static size_t path_enter(struct sender *sender, const char *name)
{
    size_t before = sender->path_length;
    size_t length = strlen(name);
    if (before + 1 + length >= sizeof(sender->path)) {
        return 0;
    }
    sender->path[before] = '/';
    memcpy(sender->path + before + 1, name, length + 1);
    sender->path_length = before + 1 + length;
    return before;
}

static void path_leave(struct sender *sender, size_t length)
{
    sender->path_length = length;
    sender->path[length] = '\0';
}

/* Visits one entry of the source. Each of the two passes has its own visitor. */
typedef bool visit_function(struct sender *sender, int directory, const char *name,
                            const struct stat *stat);

/* Calls visit for each entry of a directory, sorted by name. */
static bool for_each_entry(struct sender *sender, int directory, visit_function *visit)
{
    struct dirent **entries = NULL;
    int count = scandirat(directory, ".", &entries, not_dots, alphasort);
    if (count < 0) {
        return fail_errno(sender, "list", errno);
    }
    bool good = true;
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        size_t before = good ? path_enter(sender, name) : 0;
        if (before != 0) {
            struct stat stat;
            good = fstatat(directory, name, &stat, AT_SYMLINK_NOFOLLOW) == 0
                       ? visit(sender, directory, name, &stat)
                       : fail_errno(sender, "look at", errno);
            path_leave(sender, before);
        } else if (good) {
            good = fail_errno(sender, "enter a name below", ENAMETOOLONG);
        }
        free(entries[i]);
    }
    free(entries);
    return good;
}

/* Opens an entry found earlier; does not follow a link that has replaced it since. */
static int open_entry(struct sender *sender, int directory, const char *name, int flags)
{
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags);
    if (fd < 0) {
        fail_errno(sender, "open", errno);
    }
    return fd;
}

static bool count_entry(struct sender *sender, int directory, const char *name,
                        const struct stat *stat)
{
    if (S_ISREG(stat->st_mode)) {
        sender->expected.files++;
        sender->expected.bytes += (uint64_t)stat->st_size;
    } else if (S_ISDIR(stat->st_mode)) {
        int fd = open_entry(sender, directory, name, O_DIRECTORY);
        bool good = fd >= 0 && for_each_entry(sender, fd, count_entry);
        if (fd >= 0) {
            close(fd);
        }
        return good;
    }
    return true;
}

static bool send_entry(struct sender *sender, int directory, const char *name,
                       const struct stat *stat)
{
    if (S_ISLNK(stat->st_mode)) {
        return send_link(sender, directory, name);
    }
    if (!S_ISREG(stat->st_mode) && !S_ISDIR(stat->st_mode)) {
        tell_skipped(sender, "it is neither a file, a directory nor a link");
        return true;
    }
    int fd = open_entry(sender, directory, name, S_ISDIR(stat->st_mode) ? O_DIRECTORY : 0);
    if (fd < 0) {
        return false;
    }
    bool good = false;
    if (S_ISREG(stat->st_mode)) {
        good = send_file(sender, fd, stat->st_mode);
    } else {
        good = add_entry(sender, PROTO_RECORD_DIRECTORY, stat->st_mode) &&
               for_each_entry(sender, fd, send_entry) &&
               add_entry(sender, PROTO_RECORD_DIRECTORY_END, stat->st_mode);
        sender->done.directories++;
    }
    close(fd);
    return good;
}

/* ------------------------------------------------------------------------------------- the copy */

/* Determines the source's name at the receiver and counts its contents. */
static bool survey(struct sender *sender, struct stat *stat)
{
    const char *source = sender->options->source;
    char *real = realpath(source, NULL);
    if (real == NULL || lstat(real, stat) != 0) {
        client_fail(&sender->client, "cannot find \"%s\": %s; check the name", source,
                    strerror(errno));
        free(real);
        return false;
    }
    const char *name = sender->options->as != NULL ? sender->options->as : strrchr(real, '/') + 1;
    int length = snprintf(sender->path, sizeof(sender->path), "%s", name);
    free(real);
    if (length <= 0 || (size_t)length >= sizeof(sender->path)) {
        client_fail(&sender->client,
                    "\"%s\" has no name to store it under; give one with --as NAME", source);
        return false;
    }
    sender->path_length = (size_t)length;
    sender->root_length = (size_t)length;
    if (!S_ISREG(stat->st_mode) && !S_ISDIR(stat->st_mode)) {
        client_fail(&sender->client,
                    "\"%s\" is neither a file nor a directory; only these can be copied", source);
        return false;
    }
    return true;
}

/* Opens the source itself, following links, because the user named it. */
static int open_source(struct sender *sender)
{
    int fd = open(sender->options->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        fail_errno(sender, "open", errno);
    }
    return fd;
}

static bool count_source(struct sender *sender, const struct stat *stat)
{
    if (S_ISREG(stat->st_mode)) {
        return count_entry(sender, AT_FDCWD, NULL, stat);
    }
    int fd = open_source(sender);
    bool good = fd >= 0 && for_each_entry(sender, fd, count_entry);
    if (fd >= 0) {
        close(fd);
    }
    return good;
}

static bool send_source(struct sender *sender, const struct stat *stat)
{
    int fd = open_source(sender);
    if (fd < 0) {
        return false;
    }
    bool good = false;
    if (S_ISREG(stat->st_mode)) {
        good = send_file(sender, fd, stat->st_mode);
    } else {
        good = add_entry(sender, PROTO_RECORD_DIRECTORY, stat->st_mode) &&
               for_each_entry(sender, fd, send_entry) &&
               add_entry(sender, PROTO_RECORD_DIRECTORY_END, stat->st_mode);
        sender->done.directories++;
    }
    close(fd);
    return good;
}

/* Posts receives and sends the request. The server answers that it is ready or why it is not. */
static bool prepare(struct sender *sender)
{
    struct client *client = &sender->client;
    enum rdmux_status status = rdmux_mr_alloc(client->fabric, (size_t)BUFFERS * PROTO_COPY_CHUNK,
                                              RDMUX_ACCESS_LOCAL_WRITE, &sender->mr);
    if (status != RDMUX_OK) {
        client_fail_call(client, "allocate buffers", status);
        return false;
    }
    sender->base = rdmux_mr_addr(sender->mr);
    if (client->info.max_send < PROTO_COPY_CHUNK) {
        client_fail(client, "%s: the connection allows sends of %" PRIu64 " bytes, copy needs %d",
                    client->address, client->info.max_send, PROTO_COPY_CHUNK);
        return false;
    }
    for (unsigned i = 0; i < RECEIVES; i++) {
        status = rdmux_recv(client->ep, sender->control_in[i], PROTO_CONTROL_MAX, NULL,
                            sender->control_in[i]);
        if (status != RDMUX_OK) {
            client_fail_call(client, "post a receive", status);
            return false;
        }
    }
    struct proto_copy_request request = {
        .checksum = checksum_algorithm,
        .files = sender->expected.files,
        .bytes = sender->expected.bytes,
    };
    return client_send_control(
               client, proto_copy_request_encode(&request, client_control_buffer(client))) &&
           wait_for(sender, &sender->ready, TOOL_CONNECT_TIMEOUT_MS, "answered");
}

static bool send_end(struct sender *sender)
{
    uint8_t *payload = add_record(sender, PROTO_RECORD_END, 16);
    if (payload == NULL) {
        return false;
    }
    proto_store64(payload, sender->done.files);
    proto_store64(payload + 8, sender->done.bytes);
    if (!flush(sender) ||
        !wait_for(sender, &sender->result_here, RESULT_TIMEOUT_MS, "confirmed the copy")) {
        return false;
    }
    if (sender->result.files != sender->done.files || sender->result.bytes != sender->done.bytes) {
        client_fail(&sender->client, "%s: the server stored %" PRIu64 " files, not %" PRIu64,
                    sender->client.address, sender->result.files, sender->done.files);
        return false;
    }
    return true;
}

static void write_json(const struct sender *sender, bool single, double seconds, FILE *out)
{
    const struct tally *done = &sender->done;
    char sum[2 * CHECKSUM_SIZE_MAX + 1];
    checksum_print(sender->last_sum, sum);
    struct json json;
    json_begin(&json, out);
    json_object_begin(&json, NULL);
    json_string(&json, "source", sender->options->source);
    json_string(&json, "server", sender->options->address);
    json_object_begin(&json, "path");
    json_string(&json, "provider", sender->client.info.provider);
    json_string(&json, "device", sender->client.info.device);
    json_object_end(&json);
    json_unsigned(&json, "files", done->files);
    json_unsigned(&json, "directories", done->directories);
    json_unsigned(&json, "links", done->links);
    json_unsigned(&json, "skipped", done->skipped);
    json_unsigned(&json, "bytes", done->bytes);
    json_real(&json, "seconds", seconds);
    json_real(&json, "bytes_per_second", (double)done->bytes / seconds);
    json_object_begin(&json, "checksum");
    json_string(&json, "algorithm", checksum_name);
    if (single) {
        json_string(&json, "value", sum);
    } else {
        json_null(&json, "value");
    }
    json_object_end(&json);
    json_bool(&json, "verified", true);
    json_object_end(&json);
    json_end(&json);
}

static void write_text(const struct sender *sender, bool single, double seconds, FILE *out)
{
    const struct tally *done = &sender->done;
    char bytes[TOOL_NUMBER_MAX], speed[TOOL_NUMBER_MAX], sum[2 * CHECKSUM_SIZE_MAX + 1];
    tool_format_bytes((double)done->bytes, bytes);
    tool_format_rate((double)done->bytes / seconds, speed);
    checksum_print(sender->last_sum, sum);
    fprintf(out, "copied %s to %s over %s\n", sender->options->source, sender->options->address,
            sender->client.info.provider);
    if (single) {
        fprintf(out, "  %s in %.2f s, %s\n  %s %s, the same at the far end\n", bytes, seconds,
                speed, checksum_name, sum);
        return;
    }
    fprintf(out,
            "  %" PRIu64 " files, %" PRIu64 " directories, %" PRIu64 " links, %s in %.2f s, %s\n",
            done->files, done->directories, done->links, bytes, seconds, speed);
    fprintf(out, "  %s of every file the same at the far end\n", checksum_name);
    if (done->skipped > 0) {
        fprintf(out, "  %" PRIu64 " entries skipped\n", done->skipped);
    }
}

/* Runs the copy on a connection that is open. */
static bool run_copy(struct sender *sender, const struct stat *stat, FILE *out)
{
    bool single = S_ISREG(stat->st_mode);
    if (!prepare(sender)) {
        return false;
    }
    if (checksum_algorithm != CHECKSUM_SHA256) {
        tool_error(command_name, "built without OpenSSL: files are checked by %s, not SHA-256",
                   checksum_name);
    }
    progress_begin(&sender->progress, sender->expected.bytes);
    uint64_t start_ns = timer_clock_ns();
    bool good = send_source(sender, stat) && send_end(sender);
    double seconds = (double)(timer_clock_ns() - start_ns) / 1e9;
    progress_clear(&sender->progress);
    if (!good) {
        return false;
    }
    if (sender->options->json) {
        write_json(sender, single, seconds, out);
    } else {
        write_text(sender, single, seconds, out);
    }
    return true;
}

int tool_copy(const struct copy_options *options, FILE *out)
{
    struct sender *sender = calloc(1, sizeof(*sender));
    if (sender == NULL || (sender->checksum = checksum_create()) == NULL) {
        tool_error(command_name, "out of memory");
        free(sender);
        return TOOL_FAILED;
    }
    sender->options = options;
    sender->client.command = command_name;
    struct stat stat;
    int code = TOOL_FAILED;
    if (survey(sender, &stat) && count_source(sender, &stat)) {
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        attr.paths = options->paths;
        attr.probe = options->probe;
        attr.prefer = RDMUX_PREFER_BANDWIDTH;
        attr.typical_size = PROTO_COPY_CHUNK;
        attr.send_depth = SEND_DEPTH;
        attr.recv_depth = RECEIVES;
        code = client_open(&sender->client, command_name, options->address, &attr,
                           PROTO_COPY_RECEIVES);
        if (code == TOOL_OK) {
            code = run_copy(sender, &stat, out) ? TOOL_OK : TOOL_FAILED;
        }
        client_end(&sender->client);
        rdmux_mr_deregister(sender->mr);
        client_close(&sender->client);
    }
    checksum_destroy(sender->checksum);
    free(sender);
    return code;
}

int tool_copy_main(int argc, char **argv)
{
    struct copy_options copy = { 0 };
    const struct option_spec options[] = {
        { .name = "as",
          .kind = OPTION_TEXT,
          .text = &copy.as,
          .argument = "NAME",
          .help = "store the copy under this path below the server's DIR" },
        { .name = "paths",
          .kind = OPTION_TEXT,
          .text = &copy.paths,
          .argument = "LIST",
          .help = "paths to consider: \"shm,tcp\", \"!shm\"" },
        { .name = "probe",
          .kind = OPTION_FLAG,
          .flag = &copy.probe,
          .help = "measure the paths before one is chosen" },
        { .name = "json", .kind = OPTION_FLAG, .flag = &copy.json, .help = "print JSON" },
    };
    const struct command_spec command = {
        .name = command_name,
        .authenticates = true,
        .usage = "FILE HOST[:PORT] [--as NAME] [--paths LIST] [--probe] [--json]",
        .description = "Copies a file, or a directory with all below it, to the server \"rdmux\n"
                       "serve --receive DIR\" at HOST. Both sides compute the checksum of every\n"
                       "file. The server compares them before it gives the file its name.\n"
                       "Permission bits are kept. Links that lead out of the tree, and special\n"
                       "files, are skipped and listed.\n",
        .options = options,
        .option_count = TOOL_COUNT_OF(options),
        .positional_min = 2,
        .positional_max = 2,
    };
    const char *positionals[2];
    enum options_outcome outcome = options_parse(&command, argc, argv, positionals);
    if (outcome != OPTIONS_RUN) {
        return outcome == OPTIONS_HELP ? TOOL_OK : TOOL_USAGE;
    }
    copy.source = positionals[0];
    copy.address = positionals[1];
    return tool_copy(&copy, stdout);
}
