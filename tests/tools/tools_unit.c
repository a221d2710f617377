/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tests of the parts of the rdmux command that need no connection: the receiver of a copy, the
 * protocol's decoders, the histogram, the JSON writer, the test patterns.
 *
 *   tools_unit --list       names the cases
 *   tools_unit NAME FOLDER  runs one in an empty folder; status 0 if it passes
 */
#include "json.h"
#include "perf_memory.h"
#include "protocol.h"
#include "receiver.h"
#include "stats.h"
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define CHECK(condition, says) check((condition), #condition, (says), __LINE__)

static void check(bool holds, const char *condition, const char *says, int line)
{
    if (!holds) {
        printf("line %d: %s is false: %s\n", line, condition, says);
        exit(1);
    }
}

/* ------------------------------------------------------------------------------- the receiver */

static bool no_nameless_files; /* as on a file system without O_TMPFILE */
static unsigned open_calls;    /* calls of openat() */

int __real_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    open_calls++;
    if (no_nameless_files && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_openat(directory, path, flags, mode);
}

/* A message of records under construction. */
struct message {
    uint8_t bytes[65536];
    size_t length;
};

static struct message message;
static int folder;              /* in which a receiver's root lies */
static int root;                /* "root" in it */
static struct receiver *target; /* on root */

/* A text's bytes without its NUL. */
static void put(uint8_t *out, const char *text)
{
    for (; *text != '\0'; text++) {
        *out++ = (uint8_t)*text;
    }
}

static uint8_t *add(uint32_t kind, size_t length)
{
    uint8_t *record = message.bytes + message.length;
    proto_store32(record, kind);
    proto_store32(record + 4, (uint32_t)length);
    message.length += PROTO_RECORD_HEADER_SIZE + length;
    return record + PROTO_RECORD_HEADER_SIZE;
}

static void add_entry(uint32_t kind, uint32_t mode, const char *path)
{
    uint8_t *payload = add(kind, 4 + strlen(path));
    proto_store32(payload, mode);
    put(payload + 4, path);
}

static void add_link(const char *path, const char *points_to)
{
    uint8_t *payload = add(PROTO_RECORD_LINK, 4 + strlen(path) + strlen(points_to));
    proto_store32(payload, (uint32_t)strlen(path));
    put(payload + 4, path);
    put(payload + 4 + strlen(path), points_to);
}

static void add_file(const char *path, uint32_t mode, const char *contents)
{
    add_entry(PROTO_RECORD_FILE, mode, path);
    put(add(PROTO_RECORD_DATA, strlen(contents)), contents);
    struct checksum *checksum = checksum_create();
    uint8_t sum[CHECKSUM_SIZE_MAX];
    CHECK(checksum != NULL && checksum_begin(checksum), "a checksum begins");
    CHECK(checksum_add(checksum, contents, strlen(contents)), "bytes are added");
    CHECK(checksum_end(checksum, sum), "it ends");
    checksum_destroy(checksum);
    memcpy(add(PROTO_RECORD_FILE_END, sizeof(sum)), sum, sizeof(sum));
}

static void add_end(uint64_t files, uint64_t bytes)
{
    uint8_t *payload = add(PROTO_RECORD_END, 16);
    proto_store64(payload, files);
    proto_store64(payload + 8, bytes);
}

static enum receiver_outcome take_as(struct receiver *receiver)
{
    enum receiver_outcome outcome = RECEIVER_MORE;
    size_t taken = 0;
    for (size_t at = 0; at < message.length && outcome == RECEIVER_MORE; at += taken) {
        outcome = receiver_take(receiver, message.bytes + at, message.length - at, &taken);
        CHECK(outcome != RECEIVER_MORE || taken > 0, "it goes on");
    }
    message.length = 0;
    return outcome;
}

static enum receiver_outcome take(void)
{
    return take_as(target);
}

static void open_target(void)
{
    receiver_destroy(target);
    target = receiver_create(root);
    CHECK(target != NULL, "a receiver is created");
    message.length = 0;
}

static bool exists(int directory, const char *path)
{
    struct stat status;
    return fstatat(directory, path, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool has_contents(const char *path, const char *contents)
{
    char bytes[256] = "";
    int file = openat(root, path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, bytes, sizeof(bytes) - 1);
    if (file >= 0) {
        close(file);
    }
    return length == (ssize_t)strlen(contents) && strcmp(bytes, contents) == 0;
}

static uint32_t mode_of(const char *path)
{
    struct stat status;
    CHECK(fstatat(root, path, &status, AT_SYMLINK_NOFOLLOW) == 0, path);
    return (uint32_t)status.st_mode & 07777;
}

static void a_tree_is_stored_with_its_modes_and_links(void)
{
    add_entry(PROTO_RECORD_DIRECTORY, 0750, "tree");
    add_file("tree/one", 04755, "first");
    add_entry(PROTO_RECORD_DIRECTORY, 0555, "tree/deep");
    add_file("tree/deep/two", 0640, "second");
    add_link("tree/deep/up", "../one");
    add_entry(PROTO_RECORD_DIRECTORY_END, 0555, "tree/deep");
    add_entry(PROTO_RECORD_DIRECTORY_END, 0750, "tree");
    add_end(2, 11);

    enum receiver_outcome outcome = take();

    CHECK(outcome == RECEIVER_DONE, receiver_error(target));
    CHECK(has_contents("tree/one", "first"), "one");
    CHECK(has_contents("tree/deep/two", "second"), "two");
    CHECK(has_contents("tree/deep/up", "first"), "the link leads to one");
    CHECK(mode_of("tree/one") == 0755, "set-user-id is not kept");
    CHECK(mode_of("tree/deep/two") == 0640, "the mode is kept");
    CHECK(mode_of("tree/deep") == 0555, "the directory's mode is kept");
    fchmodat(root, "tree/deep", 0755, 0);
}

static void a_path_that_leads_elsewhere_is_refused_and_writes_nothing(void)
{
    static const char *const paths[] = {
        "/absolute", "..", "../sibling", "a/../../sibling", "a/..", ".", "./a", "a/./b", "a//b",
        "/",         "a/", "",
    };
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        for (uint32_t kind = PROTO_RECORD_FILE; kind <= PROTO_RECORD_DIRECTORY_END; kind++) {
            if (kind == PROTO_RECORD_DATA || kind == PROTO_RECORD_FILE_END) {
                continue;
            }
            open_target();
            add_entry(kind, 0644, paths[i]);
            CHECK(take() == RECEIVER_FAILED, paths[i]);
            CHECK(receiver_error(target)[0] != '\0', "the error has a text");
        }
        open_target();
        add_link(paths[i], "harmless");
        CHECK(take() == RECEIVER_FAILED, paths[i]);
    }
    CHECK(!exists(folder, "sibling"), "nothing is beside the root");
}

static void a_path_with_a_nul_or_of_endless_length_is_refused(void)
{
    uint8_t *payload = add(PROTO_RECORD_FILE, 4 + 3);
    put(payload + 4, "axb");
    payload[5] = '\0';
    CHECK(take() == RECEIVER_FAILED, "a NUL");

    open_target();
    payload = add(PROTO_RECORD_FILE, 4 + 5000);
    memset(payload + 4, 'x', 5000);
    CHECK(take() == RECEIVER_FAILED, "5,000 bytes");

    open_target();
    payload = add(PROTO_RECORD_FILE, 4 + 300);
    memset(payload + 4, 'x', 300);
    CHECK(take() == RECEIVER_FAILED, "a part of 300 bytes");
}

static void a_link_that_could_lead_outside_is_refused(void)
{
    static const struct {
        const char *path, *points_to;
    } links[] = {
        { "link", "/etc" },      { "link", ".." },          { "link", "../x" },
        { "link", "x/../../y" }, { "link", "x/.." },        { "link", "" },
        { "d/link", "../../x" }, { "d/link", "../x/../y" }, { "d/link", "./../../x" },
    };
    CHECK(mkdirat(root, "d", 0755) == 0, "mkdir");
    for (size_t i = 0; i < COUNT_OF(links); i++) {
        open_target();
        add_link(links[i].path, links[i].points_to);
        CHECK(take() == RECEIVER_FAILED, links[i].points_to);
        CHECK(!exists(root, links[i].path), links[i].points_to);
    }
    open_target();
    add_link("d/link", "../x");
    CHECK(take() == RECEIVER_MORE, "one level up is inside");
}

static void a_link_that_lies_there_is_not_followed(void)
{
    CHECK(mkdirat(folder, "outside", 0755) == 0, "mkdir");
    CHECK(symlinkat("../outside", root, "way") == 0, "symlink");

    add_file("way/evil", 0644, "evil");
    CHECK(take() == RECEIVER_FAILED, "a file through it");
    open_target();
    add_entry(PROTO_RECORD_DIRECTORY, 0755, "way");
    CHECK(take() == RECEIVER_FAILED, "a directory in its place");
    open_target();
    add_entry(PROTO_RECORD_DIRECTORY_END, 0700, "way");
    CHECK(take() == RECEIVER_FAILED, "a mode through it");
    open_target();
    add_file("way", 0644, "plain");
    CHECK(take() == RECEIVER_MORE, "a file takes its place");

    CHECK(has_contents("way", "plain"), "the link is gone");
    CHECK(!exists(folder, "outside/evil"), "nothing is outside");
}

static void a_damaged_file_is_not_stored(void)
{
    add_file("file", 0644, "contents");
    message.bytes[message.length - CHECKSUM_SIZE_MAX] ^= 1;

    CHECK(take() == RECEIVER_FAILED, "the checksum is wrong");

    CHECK(!exists(root, "file"), "no file");
    CHECK(strstr(receiver_error(target), checksum_name) != NULL, "the error names the checksum");
}

static void an_unfinished_file_leaves_nothing_behind(void)
{
    add_entry(PROTO_RECORD_FILE, 0644, "file");
    put(add(PROTO_RECORD_DATA, 4), "part");
    CHECK(take() == RECEIVER_MORE, "so far so good");

    receiver_destroy(target);
    target = NULL;

    CHECK(unlinkat(folder, "root", AT_REMOVEDIR) == 0, "the root is empty");
}

static void records_out_of_place_are_refused(void)
{
    static const uint32_t kinds[] = { PROTO_RECORD_DATA, PROTO_RECORD_FILE_END, 0, 8, 0xffffffff };
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        open_target();
        memset(add(kinds[i], CHECKSUM_SIZE_MAX), 0, CHECKSUM_SIZE_MAX);
        CHECK(take() == RECEIVER_FAILED, "without a file");
    }
    open_target();
    add_entry(PROTO_RECORD_FILE, 0644, "a");
    add_entry(PROTO_RECORD_FILE, 0644, "b");
    CHECK(take() == RECEIVER_FAILED, "a file inside a file");
    open_target();
    add_end(1, 0);
    CHECK(take() == RECEIVER_FAILED, "counts that are not true");
    open_target();
    add_end(0, 0);
    add_end(0, 0);
    CHECK(take() == RECEIVER_FAILED, "records after the end");
    open_target();
    add_file("a", 0644, "x");
    message.length--;
    CHECK(take() == RECEIVER_FAILED, "a record cut off");
    open_target();
    proto_store32(add(PROTO_RECORD_LINK, 4), 0xffffffff);
    CHECK(take() == RECEIVER_FAILED, "a path longer than its record");
}

/* Names of files in the root that a copy has made for a while, at most COUNT. */
enum { TEMPORARY_MAX = 4 };

static size_t temporary_names(char names[TEMPORARY_MAX][64])
{
    size_t count = 0;
    DIR *directory = fdopendir(openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    CHECK(directory != NULL, "the root is read");
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        if (strncmp(entry->d_name, ".rdmux-", 7) == 0 && count < TEMPORARY_MAX) {
            snprintf(names[count++], 64, "%.63s", entry->d_name);
        }
    }
    closedir(directory);
    return count;
}

/* A file is half copied; somebody replaces whatever name it has meanwhile. */
static enum receiver_outcome copy_beside_a_thief(void)
{
    char names[TEMPORARY_MAX][64];
    struct receiver *thief = receiver_create(root);
    CHECK(thief != NULL, "a receiver is created");
    add_file("file", 0644, "good");
    size_t end = message.length - CHECKSUM_SIZE_MAX - PROTO_RECORD_HEADER_SIZE;
    uint8_t rest[CHECKSUM_SIZE_MAX + PROTO_RECORD_HEADER_SIZE];
    memcpy(rest, message.bytes + end, sizeof(rest));
    message.length = end;
    CHECK(take() == RECEIVER_MORE, "the file has come, but not its end");
    size_t count = temporary_names(names);
    for (size_t i = 0; i < count; i++) {
        add_file(names[i], 0644, "evil");
        CHECK(take_as(thief) == RECEIVER_FAILED, "no client may use such a name");
        CHECK(unlinkat(root, names[i], 0) == 0, "a process of this host can remove it");
        int file = __real_openat(root, names[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        CHECK(file >= 0 && write(file, "evil", 4) == 4, "and put another in its place");
        close(file);
    }
    memcpy(message.bytes, rest, sizeof(rest));
    message.length = sizeof(rest);
    enum receiver_outcome outcome = take();
    receiver_destroy(thief);
    return outcome;
}

static void nobody_replaces_a_file_that_is_being_copied(void)
{
    CHECK(copy_beside_a_thief() == RECEIVER_MORE, receiver_error(target));
    CHECK(has_contents("file", "good"), "the contents are those that were sent");
}

static void a_file_that_was_replaced_is_not_called_stored(void)
{
    no_nameless_files = true;
    CHECK(copy_beside_a_thief() == RECEIVER_FAILED, "its sender is told");
    CHECK(strstr(receiver_error(target), "replaced") != NULL, receiver_error(target));
}

static void a_copy_works_without_nameless_files_and_leaves_nothing(void)
{
    char names[TEMPORARY_MAX][64];
    no_nameless_files = true;
    add_file("file", 0640, "contents");
    CHECK(take() == RECEIVER_MORE, receiver_error(target));
    CHECK(has_contents("file", "contents") && mode_of("file") == 0640, "the file is there");
    add_entry(PROTO_RECORD_FILE, 0644, "other");
    put(add(PROTO_RECORD_DATA, 4), "part");
    CHECK(take() == RECEIVER_MORE, "another one begins");
    CHECK(temporary_names(names) == 1, "under another name");
    open_target();
    CHECK(temporary_names(names) == 0, "which goes with the client");
}

static void names_that_others_have_taken_keep_nobody_out(void)
{
    char name[64];
    for (unsigned i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), ".rdmux-%lx-%x.part", (unsigned long)getpid(), i);
        int file = __real_openat(root, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        CHECK(file >= 0, name);
        close(file);
    }
    for (unsigned i = 0; i < 2; i++) {
        no_nameless_files = i != 0;
        add_file("file", 0644, "contents");
        add_link("link", "file");
        CHECK(take() == RECEIVER_MORE, receiver_error(target));
        CHECK(has_contents("link", "contents"), "the copy is there");
    }
}

/* "d/d/d", with this many parts. */
static const char *deep_path(unsigned parts)
{
    static char path[PROTO_PATH_MAX];
    size_t length = 0;
    for (unsigned i = 0; i < parts; i++) {
        length += (size_t)snprintf(path + length, sizeof(path) - length, "%sd", i == 0 ? "" : "/");
    }
    return path;
}

static void a_path_may_have_128_parts_and_no_more(void)
{
    for (unsigned parts = 1; parts <= RECEIVER_DEPTH_MAX; parts++) {
        add_entry(PROTO_RECORD_DIRECTORY, 0755, deep_path(parts));
    }
    CHECK(take() == RECEIVER_MORE, receiver_error(target));
    CHECK(exists(root, deep_path(RECEIVER_DEPTH_MAX)), "all are there");

    add_entry(PROTO_RECORD_DIRECTORY, 0755, deep_path(RECEIVER_DEPTH_MAX + 1));

    CHECK(take() == RECEIVER_FAILED, "one more");
    CHECK(strstr(receiver_error(target), "128 parts") != NULL, receiver_error(target));
}

static void a_message_is_taken_in_steps_of_bounded_work(void)
{
    enum { STEP_MAX = 600 }; /* directories opened by one call */
    for (unsigned parts = 1; parts < RECEIVER_DEPTH_MAX; parts++) {
        add_entry(PROTO_RECORD_DIRECTORY, 0755, deep_path(parts));
    }
    CHECK(take() == RECEIVER_MORE, receiver_error(target));
    while (message.length + 1024 < sizeof(message.bytes)) { /* each walks down anew */
        add_entry(PROTO_RECORD_DIRECTORY, 0755, deep_path(RECEIVER_DEPTH_MAX - 1));
        add_entry(PROTO_RECORD_DIRECTORY, 0755, deep_path(RECEIVER_DEPTH_MAX - 2));
    }
    unsigned steps = 0;
    for (size_t at = 0; at < message.length; steps++) {
        size_t taken = 0;
        open_calls = 0;
        CHECK(receiver_take(target, message.bytes + at, message.length - at, &taken) ==
                  RECEIVER_MORE,
              receiver_error(target));
        CHECK(open_calls > 0 && open_calls <= STEP_MAX, "the work of a step is bounded");
        at += taken;
    }
    CHECK(steps > 10, "it takes several");
}

static uint64_t random_state = 1;

static uint32_t next_random(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (uint32_t)(random_state >> 33);
}

static void no_damaged_message_writes_outside(void)
{
    for (int round = 0; round < 3000; round++) {
        open_target();
        add_entry(PROTO_RECORD_DIRECTORY, 0755, "t");
        add_file("t/../x", 0644, "evil");
        add_file("t/file", 0644, "good");
        add_link("t/link", "file");
        add_entry(PROTO_RECORD_DIRECTORY_END, 0755, "t");
        add_end(1, 4);
        for (uint32_t i = next_random() % 6; i > 0; i--) {
            message.bytes[next_random() % message.length] = (uint8_t)next_random();
        }
        (void)take();
        CHECK(!exists(folder, "x"), "nothing is beside the root");
    }
}

/* -------------------------------------------------------------------------------- the protocol */

static void every_message_decodes_to_what_was_encoded(void)
{
    uint8_t bytes[PROTO_CONTROL_MAX];
    struct proto_message opened;
    struct proto_perf_request request = {
        .op = PERF_WRITE,
        .test = PERF_LATENCY,
        .memory = PERF_ALLOCATED,
        .wait = PERF_SLEEP,
        .verify = 1,
        .depth = 7,
        .size = 4096,
        .has_token = 1,
        .echo_offset = 1 << 20,
    };
    memset(request.token.bytes, 0x5a, sizeof(request.token.bytes));
    struct proto_perf_request again = { .op = 0 };
    CHECK(proto_open(bytes, proto_perf_request_encode(&request, bytes), &opened), "opens");
    CHECK(proto_perf_request_decode(&opened, &again), "decodes");
    CHECK(again.op == request.op && again.test == request.test && again.wait == request.wait &&
              again.memory == request.memory && again.verify == 1 && again.depth == 7 &&
              again.size == 4096 && again.echo_offset == request.echo_offset &&
              memcmp(&again.token, &request.token, sizeof(again.token)) == 0,
          "is the same");

    struct proto_perf_result result = { .delivered = 3, .cpu_ns = 4, .verified = 1, .wrong = 5 };
    struct proto_perf_result result_again = { .delivered = 0 };
    CHECK(proto_open(bytes, proto_perf_result_encode(&result, bytes), &opened), "opens");
    CHECK(proto_perf_result_decode(&opened, &result_again), "decodes");
    CHECK(result_again.delivered == 3 && result_again.cpu_ns == 4 && result_again.wrong == 5,
          "is the same");
    CHECK(result_again.has_waited == 0 && !result_again.has_posted, "as of earlier versions");
    result = (struct proto_perf_result){ .has_waited = 1,
                                         .waited_ns = 70000,
                                         .has_posted = true,
                                         .posted = 9,
                                         .measured = 8,
                                         .measured_ns = 7 };
    CHECK(proto_open(bytes, proto_perf_result_encode(&result, bytes), &opened), "opens");
    CHECK(proto_perf_result_decode(&opened, &result_again), "decodes");
    CHECK(result_again.has_waited == 1 && result_again.waited_ns == 70000 &&
              result_again.has_posted && result_again.posted == 9 && result_again.measured == 8 &&
              result_again.measured_ns == 7,
          "is the same");

    request = (struct proto_perf_request){ .op = PERF_READ,
                                           .test = PERF_RATE,
                                           .depth = 1,
                                           .size = 8,
                                           .has_token = 1,
                                           .direction = PERF_BOTH };
    CHECK(proto_open(bytes, proto_perf_request_encode(&request, bytes), &opened), "opens");
    CHECK(proto_perf_request_decode(&opened, &again), "decodes");
    CHECK(again.direction == PERF_BOTH, "is the same");
    struct proto_perf_start start = { .batch = 7 };
    CHECK(proto_open(bytes, proto_perf_start_encode(&start, bytes), &opened), "opens");
    start.batch = 0;
    CHECK(proto_perf_start_decode(&opened, &start) && start.batch == 7, "is the same");
    CHECK(proto_open(bytes, proto_perf_start_encode(&(struct proto_perf_start){ 0 }, bytes),
                     &opened) &&
              !proto_perf_start_decode(&opened, &start),
          "a batch of none is refused");

    struct proto_error error;
    CHECK(proto_open(bytes, proto_error_encode("no\033[31m room", bytes), &opened), "opens");
    CHECK(proto_error_decode(&opened, &error), "decodes");
    CHECK(strcmp(error.text, "no?[31m room") == 0, "has no control characters");
}

static void what_a_peer_says_does_no_harm_to_a_terminal(void)
{
    static const struct {
        const char *text, *printed, *clean;
    } texts[] = {
        { "plain \xc3\xa9", "plain \xc3\xa9", "plain \xc3\xa9" },
        { "a\nrdmux serve: b", "a\\x0ardmux serve: b", "a?rdmux serve: b" },
        { "\033[2J\r\t\x7f", "\\x1b[2J\\x0d\\x09\\x7f", "?[2J???" },
        { "\x9b"
          "2J \xc2\x9b"
          "2J",
          "\\x9b2J \\xc2\\x9b2J", "?2J ??2J" },
        { "\xe2\x80\xae \xe2\x80\xa8", "\\xe2\\x80\\xae \\xe2\\x80\\xa8", "??? ???" },
        { "\xe2\x82", "\\xe2\\x82", "??" },
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        char *printed = NULL;
        size_t length = 0;
        FILE *out = open_memstream(&printed, &length);
        char clean[64];
        CHECK(out != NULL, "open_memstream");
        text_print(out, texts[i].text);
        fclose(out);
        CHECK(strcmp(printed, texts[i].printed) == 0, printed);
        free(printed);
        snprintf(clean, sizeof(clean), "%s", texts[i].text);
        text_clean(clean);
        CHECK(strcmp(clean, texts[i].clean) == 0, clean);
    }
}

static void a_log_gets_64_lines_in_ten_seconds_and_the_count_of_the_rest(void)
{
    struct log_limit limit = { .told = 0 };
    uint64_t now_ns = UINT64_C(1000000000000);
    for (unsigned period = 0; period < 3; period++) {
        unsigned lines = 0;
        for (unsigned i = 0; i < 1000; i++) {
            lines += log_limit_left_out(&limit, now_ns + i) != 0 ? 1 : 0;
            lines += log_limit_take(&limit, now_ns + i) ? 1 : 0;
        }
        CHECK(lines == LOG_LIMIT_LINES, "no more of it");
        CHECK(log_limit_left_out(&limit, now_ns + 9999999999) == 0, "not yet");
        now_ns += 10000000000;
        if (period == 0) {
            CHECK(log_limit_left_out(&limit, now_ns) == 1000 - LOG_LIMIT_LINES, "the count");
            CHECK(log_limit_left_out(&limit, now_ns) == 0, "once");
            now_ns += 10000000000;
        }
    }
    CHECK(log_limit_left_out(&limit, now_ns) == 1000 - LOG_LIMIT_LINES + 1,
          "the count's line, too");
}

static void a_request_out_of_range_is_refused(void)
{
    static const struct proto_perf_request requests[] = {
        { .op = PERF_OP_COUNT, .depth = 1, .size = 8 },
        { .test = PERF_TEST_COUNT, .depth = 1, .size = 8 },
        { .memory = PERF_MEMORY_COUNT, .depth = 1, .size = 8 },
        { .wait = PERF_WAIT_COUNT, .depth = 1, .size = 8 },
        { .verify = 2, .depth = 1, .size = 8 },
        { .depth = 0, .size = 8 },
        { .depth = PROTO_DEPTH_MAX + 1, .size = 8 },
        { .depth = 1, .size = PROTO_PERF_SIZE_MAX + 1 },
        { .op = PERF_FETCH_ADD, .depth = 1, .size = 16 },
        { .op = PERF_WRITE, .test = PERF_LATENCY, .depth = 1, .size = 8 },
        { .op = PERF_SEND, .has_token = 1, .depth = 1, .size = 8 },
        { .op = PERF_WRITE_IMM, .test = PERF_LATENCY, .depth = 1, .size = 8 },
        { .op = PERF_SEND_IMM, .has_token = 1, .depth = 1, .size = 8 },
        { .test = PERF_RATE, .direction = PERF_DIRECTION_COUNT, .depth = 1, .size = 8 },
        { .test = PERF_LATENCY, .direction = PERF_BOTH, .depth = 1, .size = 8 },
        { .op = PERF_WRITE, .test = PERF_RATE, .direction = PERF_BOTH, .depth = 1, .size = 8 },
        { .op = PERF_WRITE,
          .test = PERF_RATE,
          .direction = PERF_REVERSE,
          .has_token = 1,
          .verify = 1,
          .depth = 1,
          .size = 8 },
    };
    for (size_t i = 0; i < COUNT_OF(requests); i++) {
        uint8_t bytes[PROTO_CONTROL_MAX];
        struct proto_message opened;
        struct proto_perf_request out = { .depth = 99 };
        size_t length = proto_perf_request_encode(&requests[i], bytes);
        CHECK(proto_open(bytes, length, &opened), "opens");
        CHECK(!proto_perf_request_decode(&opened, &out), "is refused");
        CHECK(out.depth == 99, "leaves the output alone");
    }
}

static void the_immediate_data_of_an_operation_is_its_number(void)
{
    static const struct {
        const char *says;
        unsigned op;
        uint32_t flags;
        uint32_t imm;
        bool matches;
    } cases[] = {
        { "send_imm with its number", PERF_SEND_IMM, RDMUX_WC_HAS_IMM, 7, true },
        { "send_imm with another number", PERF_SEND_IMM, RDMUX_WC_HAS_IMM, 8, false },
        { "send_imm without one", PERF_SEND_IMM, 0, 7, false },
        { "write_imm with its number", PERF_WRITE_IMM, RDMUX_WC_HAS_IMM, 7, true },
        { "write_imm with another number", PERF_WRITE_IMM, RDMUX_WC_HAS_IMM, 6, false },
        { "send without one", PERF_SEND, 0, 0, true },
        { "write with the count of its notice", PERF_WRITE, RDMUX_WC_HAS_IMM, 3, true },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct rdmux_wc wc = { .flags = cases[i].flags, .imm = cases[i].imm };
        CHECK(perf_immediate_matches(cases[i].op, &wc, 7) == cases[i].matches, cases[i].says);
    }
    CHECK(perf_immediate(PROTO_IMM_CONTROL) != PROTO_IMM_CONTROL, "no control message");
    CHECK(perf_immediate(UINT64_MAX) != PROTO_IMM_CONTROL, "nor of the last number");
}

static void a_message_of_any_wrong_length_is_refused(void)
{
    uint8_t bytes[PROTO_CONTROL_MAX + 1] = { 0 };
    struct proto_message opened;
    struct proto_perf_end end = { .operations = 1 };
    size_t length = proto_perf_end_encode(&end, bytes);
    for (size_t i = 0; i <= PROTO_CONTROL_MAX + 1; i++) {
        CHECK(proto_open(bytes, i, &opened) == (i == length), "only its own length");
    }
}

static void the_layout_of_every_request_stays_within_its_bounds(void)
{
    static const uint32_t sizes[] = { 0, 1, 8, 512, 513, 65536, 1 << 20, PROTO_PERF_SIZE_MAX };
    static const uint32_t depths[] = { 1, 2, 3, 64, PROTO_DEPTH_MAX };
    for (size_t i = 0; i < COUNT_OF(sizes) * COUNT_OF(depths) * 6; i++) {
        struct proto_perf_request request = {
            .op = i / 3 % 2 == 0 ? PERF_SEND : PERF_WRITE,
            .test = (uint8_t)(i % 3),
            .verify = i % 2 == 0,
            .size = sizes[i / 6 % COUNT_OF(sizes)],
            .depth = depths[i / 6 / COUNT_OF(sizes)],
        };
        struct perf_layout layout = perf_layout_of(&request);
        CHECK(layout.slots >= 1 && layout.depth >= 1 && layout.depth <= request.depth, "counts");
        CHECK(layout.stride >= request.size && layout.stride >= PROTO_CONTROL_MAX, "stride");
        CHECK(layout.target_at >= layout.slots * layout.stride, "areas do not overlap");
        CHECK(layout.control_at >= layout.target_at + layout.slots * layout.stride, "control");
        CHECK(layout.length <= UINT64_C(80) << 20, "the server's bound for a client");
        CHECK(!request.verify || layout.depth <= layout.slots, "a slot for each under way");
        CHECK(layout.group * (layout.slots > 1 ? 2 : 1) <= layout.slots, "two groups fit");
    }
}

/* ------------------------------------------------------------------------------------ the rest */

static void quantiles_are_right_to_within_their_precision(void)
{
    static struct stats stats;
    stats_begin(&stats);
    for (uint64_t value = 1; value <= 100000; value++) {
        stats_add(&stats, value);
    }
    static const double shares[] = { 0.01, 0.5, 0.99, 0.999, 1.0 };
    for (size_t i = 0; i < COUNT_OF(shares); i++) {
        double exact = shares[i] * 100000.0;
        double error = stats_quantile(&stats, shares[i]) - exact;
        CHECK(error < exact / 200.0 && error > -exact / 200.0, "within 0.5 %");
    }
    CHECK(stats.min == 1 && stats.max == 100000, "the ends are exact");

    stats_begin(&stats);
    stats_add(&stats, 0);
    stats_add(&stats, UINT64_MAX);
    CHECK(stats_quantile(&stats, 0.5) <= 0.0, "zero counts");
    CHECK(stats_quantile(&stats, 1.0) > 1e19, "so does the largest");
}

static void merged_histograms_are_that_of_all_values(void)
{
    static struct stats parts[2], whole;
    stats_begin(&parts[0]);
    stats_begin(&parts[1]);
    stats_begin(&whole);
    for (uint64_t value = 1; value <= 1000; value++) {
        stats_add(&parts[value % 3 == 0], value * value);
        stats_add(&whole, value * value);
    }
    stats_merge(&parts[0], &parts[1]);
    CHECK(memcmp(&parts[0], &whole, sizeof(whole)) == 0, "is the same");
    stats_begin(&parts[1]);
    stats_merge(&parts[0], &parts[1]);
    CHECK(memcmp(&parts[0], &whole, sizeof(whole)) == 0, "an empty one changes nothing");
}

static void a_pattern_matches_only_itself(void)
{
    uint8_t bytes[100];
    for (size_t length = 0; length <= sizeof(bytes); length++) {
        perf_pattern_fill(bytes, length, 7);
        CHECK(perf_pattern_matches(bytes, length, 7), "itself");
        for (size_t i = 0; i < length; i++) {
            bytes[i] ^= 0x10;
            CHECK(!perf_pattern_matches(bytes, length, 7), "a changed byte");
            bytes[i] ^= 0x10;
        }
        CHECK(length < 4 || !perf_pattern_matches(bytes, length, 8), "another seed");
    }
}

static void strings_become_valid_json(void)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    CHECK(out != NULL, "open_memstream");
    struct json json;
    json_begin(&json, out);
    json_array_begin(&json, NULL);
    json_string(&json, NULL, "a\"b\\c\n\x01");
    json_string(&json, NULL, "\xc3\xa9 \xff \xed\xa0\x80 \xc3");
    json_real(&json, NULL, 0.0 / (1.0 - (double)length - 1.0));
    json_array_end(&json);
    fclose(out);
    CHECK(strcmp(text, "[\"a\\\"b\\\\c\\u000a\\u0001\",\"\xc3\xa9 \\ufffd \\ufffd\\ufffd\\ufffd "
                       "\\ufffd\",null]") == 0,
          text);
    free(text);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
#define CASE(name)  \
    {               \
#name, name \
    }
    CASE(a_tree_is_stored_with_its_modes_and_links),
    CASE(a_path_that_leads_elsewhere_is_refused_and_writes_nothing),
    CASE(a_path_with_a_nul_or_of_endless_length_is_refused),
    CASE(a_link_that_could_lead_outside_is_refused),
    CASE(a_link_that_lies_there_is_not_followed),
    CASE(a_damaged_file_is_not_stored),
    CASE(an_unfinished_file_leaves_nothing_behind),
    CASE(records_out_of_place_are_refused),
    CASE(no_damaged_message_writes_outside),
    CASE(nobody_replaces_a_file_that_is_being_copied),
    CASE(a_file_that_was_replaced_is_not_called_stored),
    CASE(a_copy_works_without_nameless_files_and_leaves_nothing),
    CASE(names_that_others_have_taken_keep_nobody_out),
    CASE(a_path_may_have_128_parts_and_no_more),
    CASE(a_message_is_taken_in_steps_of_bounded_work),
    CASE(what_a_peer_says_does_no_harm_to_a_terminal),
    CASE(a_log_gets_64_lines_in_ten_seconds_and_the_count_of_the_rest),
    CASE(every_message_decodes_to_what_was_encoded),
    CASE(a_request_out_of_range_is_refused),
    CASE(the_immediate_data_of_an_operation_is_its_number),
    CASE(a_message_of_any_wrong_length_is_refused),
    CASE(the_layout_of_every_request_stays_within_its_bounds),
    CASE(quantiles_are_right_to_within_their_precision),
    CASE(merged_histograms_are_that_of_all_values),
    CASE(a_pattern_matches_only_itself),
    CASE(strings_become_valid_json),
};

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < COUNT_OF(cases); i++) {
            puts(cases[i].name);
        }
        return 0;
    }
    if (argc != 3) {
        fprintf(stderr, "usage: tools_unit --list | tools_unit CASE FOLDER\n");
        return 2;
    }
    umask(022);
    folder = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(folder >= 0, argv[2]);
    CHECK(mkdirat(folder, "root", 0755) == 0, "mkdir");
    root = openat(folder, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(root >= 0, "root");
    open_target();
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            receiver_destroy(target);
            close(root);
            close(folder);
            return 0;
        }
    }
    fprintf(stderr, "tools_unit: there is no case %s\n", argv[1]);
    return 2;
}
