/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdmux copy: sends a file or a tree to `rdmux serve --receive`.
 *
 * Both sides compute each file's checksum. The receiving end gives a file its name only if the
 * checksums agree.
 */
#include "copy.h"

#include "json.h"
#include "options.h"
#include "outcome.h"
#include "receiver.h"
#include "timer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char command_name[] = "copy";

static const char *const skip_names[SKIP_COUNT] = { "unchanged", "newer", "existing", "special",
                                                    "outside" };
static const char *const skip_texts[SKIP_COUNT] = {
    "unchanged",           "newer there", "existing there", "neither file, directory nor link",
    "links that lead out",
};

/* --------------------------------------------------------------------------------------- reports */

const char *copy_remedy(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return "; run the command as a user who may read it";
    case EMFILE:
    case ENFILE:
        return "; raise the limit on open files (ulimit -n)";
    case ENAMETOOLONG:
        return "; the path at the far end would be too long";
    case ENOENT:
        return "; it has vanished";
    default:
        return "";
    }
}

void copy_tell_failed(struct sender *sender, const char *path, const char *what, int error)
{
    sender->done.failed++;
    progress_clear(&sender->progress);
    tool_notice(command_name, "cannot %s \"%s%s\": %s%s; the rest goes on", what,
                sender->options->source, path, strerror(error), copy_remedy(error));
}

/* Keeps an entry for the JSON, which stays small: a tree may have millions of them. */
static void list_skipped(struct sender *sender, enum copy_skip kind, const char *path)
{
    char *kept = sender->listed_count < COPY_LISTED_MAX ? strdup(path) : NULL;
    if (kept == NULL) {
        sender->unlisted++;
        return;
    }
    sender->listed[sender->listed_count++] = (struct copy_listed){ .kind = kind, .path = kept };
}

void copy_tell_skipped(struct sender *sender, enum copy_skip kind, const char *path, const char *why)
{
    sender->done.skipped[kind]++;
    /* The copy lacks each skipped entry, or has another one, unless the entry is unchanged. */
    if (kind == SKIP_UNCHANGED && !sender->options->verbose) {
        return;
    }
    if (sender->options->json) {
        list_skipped(sender, kind, path);
    }
    progress_clear(&sender->progress);
    tool_notice(command_name, "skipped \"%s%s\": %s", sender->options->source, path, why);
}

static uint64_t count_skipped(const struct tally *done)
{
    uint64_t count = 0;
    for (size_t i = 0; i < SKIP_COUNT; i++) {
        count += done->skipped[i];
    }
    return count;
}

static void write_listed(const struct sender *sender, struct json *json)
{
    json_array_begin(json, "skipped_entries");
    for (size_t i = 0; i < sender->listed_count; i++) {
        json_object_begin(json, NULL);
        json_string(json, "path", sender->listed[i].path);
        json_string(json, "reason", skip_names[sender->listed[i].kind]);
        json_object_end(json);
    }
    json_array_end(json);
    json_unsigned(json, "skipped_unlisted", sender->unlisted);
}

static void write_json(const struct sender *sender, double seconds, FILE *out)
{
    const struct tally *done = &sender->done;
    char sum[2 * CHECKSUM_SIZE_MAX + 1];
    checksum_print(sender->last_sum, sum);
    struct json json;
    json_begin(&json, out);
    json_object_begin(&json, NULL);
    json_string(&json, "source", sender->options->source);
    json_string(&json, "server", sender->client.address);
    json_string(&json, "target", sender->target);
    json_object_begin(&json, "path");
    json_string(&json, "provider", sender->client.info.provider);
    json_string(&json, "device", sender->client.info.device);
    json_object_end(&json);
    json_unsigned(&json, "files", done->files);
    json_unsigned(&json, "directories", done->directories);
    json_unsigned(&json, "links", done->links);
    json_unsigned(&json, "hard_links", done->hard_links);
    json_unsigned(&json, "skipped", count_skipped(done));
    json_object_begin(&json, "skips");
    for (size_t i = 0; i < SKIP_COUNT; i++) {
        json_unsigned(&json, skip_names[i], done->skipped[i]);
    }
    json_object_end(&json);
    write_listed(sender, &json);
    json_unsigned(&json, "failed", done->failed);
    json_unsigned(&json, "bytes", done->bytes);
    json_unsigned(&json, "sent_bytes", done->sent_bytes);
    json_unsigned(&json, "hole_bytes", done->hole_bytes);
    json_unsigned(&json, "resumed_files", done->resumed_files);
    json_unsigned(&json, "resumed_bytes", done->resumed_bytes);
    json_real(&json, "seconds", seconds);
    json_real(&json, "bytes_per_second", (double)done->sent_bytes / seconds);
    json_object_begin(&json, "checksum");
    json_string(&json, "algorithm", checksum_name);
    if (sender->has_sum) {
        json_string(&json, "value", sum);
    } else {
        json_null(&json, "value");
    }
    json_object_end(&json);
    json_bool(&json, "verified", true);
    json_object_end(&json);
    json_end(&json);
}

/* The lines that only some copies have. */
static void write_exceptions(const struct tally *done, FILE *out)
{
    char bytes[TOOL_NUMBER_MAX];
    if (done->resumed_files > 0) {
        tool_format_bytes((double)done->resumed_bytes, bytes);
        fprintf(out, "  %" PRIu64 " files continued; %s of them were there and are the same\n",
                done->resumed_files, bytes);
    }
    if (done->hole_bytes > 0) {
        tool_format_bytes((double)done->hole_bytes, bytes);
        fprintf(out, "  %s of holes kept\n", bytes);
    }
    if (count_skipped(done) > 0) {
        fprintf(out, "  %" PRIu64 " entries skipped: ", count_skipped(done));
        const char *separator = "";
        for (size_t i = 0; i < SKIP_COUNT; i++) {
            if (done->skipped[i] > 0) {
                fprintf(out, "%s%" PRIu64 " %s", separator, done->skipped[i], skip_texts[i]);
                separator = ", ";
            }
        }
        fputc('\n', out);
    }
    if (done->failed > 0) {
        fprintf(out, "  %" PRIu64 " entries could not be read and are not in the copy\n",
                done->failed);
    }
}

static void write_text(const struct sender *sender, double seconds, FILE *out)
{
    const struct tally *done = &sender->done;
    char bytes[TOOL_NUMBER_MAX], speed[TOOL_NUMBER_MAX], sum[2 * CHECKSUM_SIZE_MAX + 1];
    tool_format_bytes((double)done->bytes, bytes);
    tool_format_rate((double)done->sent_bytes / seconds, speed);
    checksum_print(sender->last_sum, sum);
    fprintf(out, "copied %s to %s:/%s over %s\n", sender->options->source, sender->client.address,
            sender->target, sender->client.info.provider);
    if (sender->list.root < 0 && done->files > 0) {
        fprintf(out, "  %s in %.2f s, %s\n  %s %s, the same at the far end\n", bytes, seconds,
                speed, checksum_name, sum);
    } else if (sender->list.root >= 0) {
        fprintf(out, "  %" PRIu64 " files, %" PRIu64 " directories, %" PRIu64 " links", done->files,
                done->directories, done->links);
        if (done->hard_links > 0) {
            fprintf(out, ", %" PRIu64 " hard links", done->hard_links);
        }
        fprintf(out, ", %s in %.2f s, %s\n", bytes, seconds, speed);
        if (done->files > 0) {
            fprintf(out, "  %s of every file sent the same at the far end\n", checksum_name);
        }
    }
    write_exceptions(done, out);
}

/* ---------------------------------------------------------------------------------- preparations */

static void on_failed(void *user, const char *path, const char *what, int error)
{
    copy_tell_failed(user, path, what, error);
}

static void on_special(void *user, const char *path, const char *why)
{
    copy_tell_skipped(user, SKIP_SPECIAL, path, why);
}

/* Copies a text into a path of the sender. Returns false if it is too long, which was printed. */
static bool set_path(struct sender *sender, char out[PROTO_PATH_MAX], const char *directory,
                     const char *name)
{
    int length = snprintf(out, PROTO_PATH_MAX, "%s%s%s", directory, directory[0] != '\0' ? "/" : "",
                          name);
    if (length < 0 || length >= PROTO_PATH_MAX) {
        client_fail(&sender->client, "the path at the far end would be too long");
        return false;
    }
    return true;
}

/* Determines where the copy goes: target, and the name if the target may be a directory. */
static bool choose_target(struct sender *sender, const char *own_name)
{
    const struct copy_options *options = sender->options;
    const char *path = options->target;
    sender->name[0] = '\0';
    if (options->as != NULL) {
        if (options->as[0] == '\0') {
            client_fail(&sender->client, "--as needs a name");
            return false;
        }
        return set_path(sender, sender->target, "", options->as);
    }
    if (own_name[0] == '\0') {
        client_fail(&sender->client,
                    "\"%s\" has no name to store it under; give one with --as NAME",
                    options->source);
        return false;
    }
    if (path == NULL) {
        return set_path(sender, sender->target, "", own_name);
    }
    path += strspn(path, "/");
    char directory[PROTO_PATH_MAX];
    if (!set_path(sender, directory, "", path)) {
        return false;
    }
    size_t length = strlen(directory);
    bool is_directory = length > 0 && directory[length - 1] == '/';
    while (length > 0 && directory[length - 1] == '/') {
        directory[--length] = '\0';
    }
    if (is_directory) {
        return set_path(sender, sender->target, directory, own_name);
    }
    return set_path(sender, sender->target, "", directory) &&
           set_path(sender, sender->name, "", own_name);
}

/* Determines the source's status and its name at the receiver. */
static bool survey(struct sender *sender, struct stat *status)
{
    const char *source = sender->options->source;
    char *real = realpath(source, NULL);
    if (real == NULL || lstat(real, status) != 0) {
        const char *remedy = strstr(source, ":/") != NULL
                                 ? "a server gives no files; run \"rdmux copy\" where they are"
                                 : "check the name";
        client_fail(&sender->client, "cannot find \"%s\": %s; %s", source, strerror(errno), remedy);
        free(real);
        return false;
    }
    bool good = choose_target(sender, strrchr(real, '/') + 1);
    free(real);
    if (!good) {
        return false;
    }
    if (!S_ISREG(status->st_mode) && !S_ISDIR(status->st_mode)) {
        client_fail(&sender->client,
                    "\"%s\" is neither a file nor a directory; only these can be copied", source);
        return false;
    }
    if (access(source, R_OK) != 0) {
        client_fail(&sender->client, "cannot open \"%s\": %s%s", source, strerror(errno),
                    copy_remedy(errno));
        return false;
    }
    receiver_place_of(status, &sender->place);
    return true;
}

static bool make_list(struct sender *sender, const struct stat *status)
{
    static const struct source_listener callbacks = { .failed = on_failed, .special = on_special };
    struct source_listener listener = callbacks;
    listener.user = sender;
    if (!source_list_make(&sender->list, sender->options->source, status, &listener)) {
        client_fail(&sender->client, "cannot list \"%s\": %s%s", sender->options->source,
                    strerror(errno), copy_remedy(errno));
        return false;
    }
    sender->list.listener = NULL;
    return true;
}

/* ------------------------------------------------------------------------------------- the copy */

/* The server speaks version 1 of a copy: it stores what comes, and answers no questions. */
static bool accept_version_1(struct sender *sender)
{
    const struct copy_options *options = sender->options;
    if (options->checksum || options->update || options->no_clobber || options->parents) {
        client_fail(&sender->client,
                    "%s: the server is of an older version, which knows neither --checksum nor "
                    "--update, --no-clobber or --parents",
                    sender->client.address);
        return false;
    }
    tool_notice(command_name, "the server is of an older version: every file is sent, and times, "
                              "holes and hard links are not kept");
    if (sender->target[0] == '\0') {
        return set_path(sender, sender->target, "", sender->name);
    }
    return true;
}

static bool send_all(struct sender *sender)
{
    if (sender->version < 2) {
        if (!accept_version_1(sender)) {
            return false;
        }
    } else {
        if (!copy_begin(sender)) {
            return false;
        }
        if (sender->placed == PROTO_ANSWER_INTO) {
            char directory[PROTO_PATH_MAX];
            memcpy(directory, sender->target, sizeof(directory));
            if (!set_path(sender, sender->target, directory, sender->name)) {
                return false;
            }
        }
    }
    return copy_send_entries(sender) && copy_finish(sender);
}

/* Runs the copy on a connection that is open. */
static bool run_copy(struct sender *sender, FILE *out)
{
    if (!copy_prepare(sender)) {
        return false;
    }
    if (checksum_algorithm != CHECKSUM_SHA256) {
        tool_notice(command_name, "built without OpenSSL: files are checked by %s, not SHA-256",
                    checksum_name);
    }
    progress_begin(&sender->progress, sender->list.bytes);
    uint64_t start_ns = timer_clock_ns();
    bool good = send_all(sender);
    double seconds = (double)(timer_clock_ns() - start_ns) / 1e9;
    progress_clear(&sender->progress);
    if (!good) {
        return false;
    }
    if (sender->options->json) {
        write_json(sender, seconds, out);
    } else {
        write_text(sender, seconds, out);
    }
    if (sender->done.failed != 0) {
        char text[128];
        snprintf(text, sizeof(text),
                 "%" PRIu64 " entries were not copied; standard error names them with the reason",
                 (uint64_t)sender->done.failed);
        outcome_error(text);
    }
    return sender->done.failed == 0;
}

static int connect_and_copy(struct sender *sender, const struct copy_options *options, FILE *out)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.paths = options->paths;
    attr.probe = options->probe;
    attr.prefer = RDMUX_PREFER_BANDWIDTH;
    attr.typical_size = PROTO_COPY_CHUNK;
    attr.send_depth = COPY_BUFFERS + 8;
    attr.recv_depth = COPY_RECEIVES;
    int code = client_open(&sender->client, command_name, options->address, &attr,
                           PROTO_COPY_RECEIVES);
    if (code == TOOL_OK) {
        code = run_copy(sender, out) ? TOOL_OK : TOOL_FAILED;
    }
    client_end(&sender->client);
    rdmux_mr_deregister(sender->mr);
    client_close(&sender->client);
    return code;
}

int tool_copy(const struct copy_options *options, FILE *out)
{
    struct sender *sender = calloc(1, sizeof(*sender));
    int code = TOOL_FAILED;
    if (sender == NULL || (sender->checksum = checksum_create()) == NULL ||
        (sender->scratch = malloc(COPY_SCRATCH)) == NULL) {
        tool_error(command_name, "out of memory");
        goto end;
    }
    sender->options = options;
    sender->client.command = command_name;
    sender->list.root = -1;
    sender->list.directory = -1;
    struct stat status;
    if (survey(sender, &status) && make_list(sender, &status)) {
        code = connect_and_copy(sender, options, out);
    }
    source_list_free(&sender->list);
end:
    if (sender != NULL) {
        for (size_t i = 0; i < sender->listed_count; i++) {
            free(sender->listed[i].path);
        }
        checksum_destroy(sender->checksum);
        free(sender->scratch);
        free(sender);
    }
    return code;
}

/* Splits HOST[:PORT]:/PATH at the path. Returns false if there is no memory. */
static bool split_address(const char *argument, char **address, const char **target)
{
    const char *colon = strncmp(argument, "rdma://", strlen("rdma://")) != 0
                            ? strstr(argument, ":/")
                            : NULL;
    *target = colon != NULL ? colon + 1 : NULL;
    *address = strndup(argument, colon != NULL ? (size_t)(colon - argument) : strlen(argument));
    return *address != NULL;
}

static int run(struct copy_options *copy, const char *argument)
{
    char *address = NULL;
    if (!split_address(argument, &address, &copy->target)) {
        tool_error(command_name, "out of memory");
        return TOOL_FAILED;
    }
    int code = TOOL_USAGE;
    copy->address = address;
    if (copy->target != NULL && copy->as != NULL) {
        tool_error(command_name, "--as and a path behind the host exclude each other");
    } else {
        code = tool_copy(copy, outcome_out());
    }
    free(address);
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
          .help = "store the copy under exactly this path below the server's DIR" },
        { .name = "parents",
          .kind = OPTION_FLAG,
          .flag = &copy.parents,
          .help = "make missing directories above the copy" },
        { .name = "checksum",
          .kind = OPTION_FLAG,
          .flag = &copy.checksum,
          .help = "skip files by their contents, not by size and time" },
        { .name = "update",
          .kind = OPTION_FLAG,
          .flag = &copy.update,
          .help = "skip files that are newer at the far end" },
        { .name = "no-clobber",
          .kind = OPTION_FLAG,
          .flag = &copy.no_clobber,
          .help = "skip what exists at the far end" },
        { .name = "verbose",
          .kind = OPTION_FLAG,
          .flag = &copy.verbose,
          .help = "name unchanged and continued entries, too" },
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
        .usage = "FILE|DIR HOST[:PORT][:/PATH] [OPTION...]",
        .description = "Copies a file, or a directory with all below it, to the server \"rdmux\n"
                       "serve --receive DIR\" at HOST. /PATH is below that DIR; if it is a\n"
                       "directory there, the copy goes into it. Both sides compute the checksum\n"
                       "of every file. The server compares them before it gives the file its\n"
                       "name. Permission bits, modification times, holes and hard links are\n"
                       "kept.\n"
                       "\n"
                       "A file whose size, time and mode are the same at the far end is skipped.\n"
                       "A file that was cut off is continued. Links that lead out of the tree, "
                       "and\n"
                       "special files, are skipped. What cannot be read is reported, the rest "
                       "goes\n"
                       "on, and the exit status is 1.\n",
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
    return run(&copy, positionals[1]);
}
