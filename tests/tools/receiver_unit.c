/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tests of the receiver of a copy of version 2: questions and answers, times, holes, hard links, and
 * what is kept of files that were cut off. tools_unit.c has the records that both versions share.
 *
 *   receiver_unit --list       names the cases
 *   receiver_unit NAME FOLDER  runs one in an empty folder; status 0 if it passes
 */
#include "receiver.h"
#include "receiver_park.h"
#include "receiver_sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
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

static bool no_nameless_files; /* as on a file system without O_TMPFILE */
static unsigned read_calls;    /* calls of read() */

int __real_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (no_nameless_files && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_openat(directory, path, flags, mode);
}

ssize_t __real_read(int file, void *bytes, size_t size);
ssize_t __wrap_read(int file, void *bytes, size_t size);
ssize_t __wrap_read(int file, void *bytes, size_t size)
{
    read_calls++;
    return __real_read(file, bytes, size);
}

/* A message of records under construction. */
struct message {
    uint8_t bytes[2 << 20];
    size_t length;
};

static struct message message;
static uint8_t answers[65536]; /* of the messages taken, each an answer without RESUME's details */
static size_t answer_count;
static struct proto_copy_answer resumed; /* the last RESUME */
static int folder;                       /* in which a receiver's root lies */
static int root;                         /* "root" in it */
static struct park *kept;
static struct receiver *target; /* on root */

static const struct proto_attributes plain = {
    .mode = 0640,
    .size = 8,
    .seconds = 1000000000,
    .nanoseconds = 123456789,
};

/* ---------------------------------------------------------------------------------- the records */

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
    memset(record + 8, 0, length);
    message.length += PROTO_RECORD_HEADER_SIZE + length;
    return record + PROTO_RECORD_HEADER_SIZE;
}

static void add_begin(uint32_t flags, const struct proto_place *place, const char *path,
                      const char *name)
{
    uint8_t *payload = add(PROTO_RECORD_BEGIN, PROTO_BEGIN_SIZE + strlen(path) + strlen(name));
    proto_store32(payload, flags);
    if (place != NULL) {
        memcpy(payload + 4, place->boot_id, PROTO_BOOT_ID_SIZE);
        proto_store64(payload + 20, place->device);
        proto_store64(payload + 28, place->inode);
    }
    proto_store32(payload + 36, (uint32_t)strlen(path));
    put(payload + PROTO_BEGIN_SIZE, path);
    put(payload + PROTO_BEGIN_SIZE + strlen(path), name);
}

static void add_question(enum proto_ask kind, const struct proto_attributes *attributes,
                         const uint8_t *checksum, const char *path, const char *other)
{
    uint8_t *payload = add(PROTO_RECORD_ASK, PROTO_ASK_SIZE + strlen(path) + strlen(other));
    proto_attributes_encode(attributes, payload);
    proto_store32(payload + PROTO_ATTRIBUTES_SIZE, (uint32_t)kind);
    proto_store32(payload + PROTO_ATTRIBUTES_SIZE + 4, (uint32_t)strlen(path));
    if (checksum != NULL) {
        memcpy(payload + PROTO_ATTRIBUTES_SIZE + 8, checksum, CHECKSUM_SIZE_MAX);
    }
    put(payload + PROTO_ASK_SIZE, path);
    put(payload + PROTO_ASK_SIZE + strlen(path), other);
}

static void add_file_at(const struct proto_attributes *attributes, uint64_t offset, const char *path)
{
    uint8_t *payload = add(PROTO_RECORD_FILE_AT, PROTO_FILE_AT_SIZE + strlen(path));
    proto_attributes_encode(attributes, payload);
    proto_store64(payload + PROTO_ATTRIBUTES_SIZE, offset);
    put(payload + PROTO_FILE_AT_SIZE, path);
}

static void add_hole(uint64_t length)
{
    proto_store64(add(PROTO_RECORD_HOLE, 8), length);
}

static void add_hard_link(const char *path, const char *existing)
{
    uint8_t *payload = add(PROTO_RECORD_HARD_LINK, 4 + strlen(path) + strlen(existing));
    proto_store32(payload, (uint32_t)strlen(path));
    put(payload + 4, path);
    put(payload + 4 + strlen(path), existing);
}

static void checksum_of(const void *bytes, size_t length, uint8_t out[CHECKSUM_SIZE_MAX])
{
    struct checksum *checksum = checksum_create();
    CHECK(checksum != NULL && checksum_begin(checksum), "a checksum begins");
    CHECK(checksum_add(checksum, bytes, length), "bytes are added");
    CHECK(checksum_end(checksum, out), "it ends");
    checksum_destroy(checksum);
}

static void add_sum(const void *bytes, size_t length)
{
    uint8_t sum[CHECKSUM_SIZE_MAX];
    checksum_of(bytes, length, sum);
    memcpy(add(PROTO_RECORD_FILE_END, sizeof(sum)), sum, sizeof(sum));
}

static void add_file(const struct proto_attributes *attributes, const char *path,
                     const char *contents)
{
    add_file_at(attributes, 0, path);
    put(add(PROTO_RECORD_DATA, strlen(contents)), contents);
    add_sum(contents, strlen(contents));
}

static void take_answers(struct receiver *receiver)
{
    uint8_t bytes[PROTO_CONTROL_MAX];
    struct proto_message opened;
    struct proto_copy_answer answer;
    size_t length = 0;
    const uint8_t *told = receiver_answers(receiver, &length);
    CHECK(proto_open(bytes, proto_copy_answers_encode(told, length, bytes), &opened), "opens");
    size_t at = 0;
    while (proto_copy_answer_decode(&opened, &at, &answer)) {
        CHECK(answer_count < sizeof(answers), "answers without end");
        answers[answer_count++] = answer.code;
        if (answer.code == PROTO_ANSWER_RESUME) {
            resumed = answer;
        }
    }
    CHECK(at == length, "all answers are well formed");
    receiver_forget_answers(receiver);
}

static enum receiver_outcome take_as(struct receiver *receiver)
{
    enum receiver_outcome outcome = RECEIVER_MORE;
    size_t taken = 0;
    unsigned calls = 0;
    answer_count = 0;
    for (size_t at = 0; at < message.length && outcome == RECEIVER_MORE; at += taken) {
        outcome = receiver_take(receiver, message.bytes + at, message.length - at, &taken);
        take_answers(receiver);
        CHECK(++calls < 1000000, "it goes on");
    }
    message.length = 0;
    return outcome;
}

static enum receiver_outcome take(void)
{
    return take_as(target);
}

/* One answer to what the message has. */
static uint8_t answer_of(void)
{
    CHECK(take() == RECEIVER_MORE, receiver_error(target));
    CHECK(answer_count == 1, "one answer");
    return answers[0];
}

/* A new client of this origin begins a copy to "copy". */
static void begin_as(const char *origin, uint32_t flags)
{
    receiver_destroy(target);
    target = receiver_create(root);
    CHECK(target != NULL && receiver_use_version_2(target, kept, origin), "a receiver is created");
    message.length = 0;
    add_begin(flags, NULL, "copy", "");
    CHECK(take() == RECEIVER_MORE, receiver_error(target));
}

static void begin(uint32_t flags)
{
    begin_as("address 1", flags);
}

/* A client that has not begun. */
static void open_target(void)
{
    receiver_destroy(target);
    target = receiver_create(root);
    CHECK(target != NULL && receiver_use_version_2(target, kept, "address 1"), "a receiver");
    message.length = 0;
}

static bool exists(int directory, const char *path)
{
    struct stat status;
    return fstatat(directory, path, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

static struct stat status_of(const char *path)
{
    struct stat status;
    CHECK(fstatat(root, path, &status, AT_SYMLINK_NOFOLLOW) == 0, path);
    return status;
}

static bool has_contents(const char *path, const char *contents)
{
    char bytes[256] = "";
    int file = openat(root, path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : pread(file, bytes, sizeof(bytes) - 1, 0);
    if (file >= 0) {
        close(file);
    }
    return length == (ssize_t)strlen(contents) && strcmp(bytes, contents) == 0;
}

/* A file of somebody else, with the attributes `plain`. */
static void make_file(const char *path, const char *contents)
{
    int file = openat(root, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
                                       { .tv_sec = plain.seconds, .tv_nsec = plain.nanoseconds } };
    CHECK(file >= 0 && write(file, contents, strlen(contents)) == (ssize_t)strlen(contents), path);
    CHECK(fchmod(file, plain.mode) == 0 && futimens(file, times) == 0, path);
    close(file);
}

/* ------------------------------------------------------------------------------------- the cases */

static void times_holes_and_hard_links_are_kept(void)
{
    enum { HOLE = 1 << 20, HOLES = 3 };
    static uint8_t contents[2 * HOLES * HOLE + 8];
    struct proto_attributes linked = plain;
    linked.flags = PROTO_ENTRY_LINKED;
    memcpy(contents + HOLES * HOLE, "contents", 8);
    begin(0);
    add_file_at(&linked, 0, "sparse");
    for (unsigned i = 0; i < HOLES; i++) {
        add_hole(HOLE);
    }
    put(add(PROTO_RECORD_DATA, 8), "contents");
    for (unsigned i = 0; i < HOLES; i++) {
        add_hole(HOLE);
    }
    add_sum(contents, sizeof(contents));
    add_hard_link("second", "sparse");
    put(add(PROTO_RECORD_DIRECTORY, 4 + 1) + 4, "d");
    uint8_t *payload = add(PROTO_RECORD_DIRECTORY_DONE, PROTO_ATTRIBUTES_SIZE + 1);
    proto_attributes_encode(&plain, payload);
    put(payload + PROTO_ATTRIBUTES_SIZE, "d");
    payload = add(PROTO_RECORD_LINK_AT, PROTO_LINK_AT_SIZE + 4 + 6);
    proto_attributes_encode(&plain, payload);
    proto_store32(payload + PROTO_ATTRIBUTES_SIZE, 4);
    put(payload + PROTO_LINK_AT_SIZE, "linksparse");
    payload = add(PROTO_RECORD_END, 16);
    proto_store64(payload, 1);
    proto_store64(payload + 8, 8);

    CHECK(take() == RECEIVER_DONE, receiver_error(target));

    struct stat sparse = status_of("sparse");
    CHECK(sparse.st_size == (off_t)sizeof(contents), "the length has the holes");
    CHECK(sparse.st_blocks * 512 < HOLE, "they take no room");
    CHECK(sparse.st_ino == status_of("second").st_ino, "both names are one file");
    static const char *const names[] = { "sparse", "d", "link" };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct stat status = status_of(names[i]);
        CHECK(status.st_mtim.tv_sec == plain.seconds &&
                  status.st_mtim.tv_nsec == (long)plain.nanoseconds,
              names[i]);
    }
}

static void an_answer_says_whether_a_file_is_needed(void)
{
    struct proto_attributes other = plain;
    make_file("file", "contents");
    begin(0);
    add_question(PROTO_ASK_FILE, &plain, NULL, "file", "");
    CHECK(answer_of() == PROTO_ANSWER_UNCHANGED, "the same");
    add_question(PROTO_ASK_FILE, &plain, NULL, "nothing", "");
    CHECK(answer_of() == PROTO_ANSWER_SEND, "there is none");
    add_question(PROTO_ASK_FILE, &plain, NULL, "nothing/below", "");
    CHECK(answer_of() == PROTO_ANSWER_SEND, "nor a directory");
    other.size++;
    add_question(PROTO_ASK_FILE, &other, NULL, "file", "");
    CHECK(answer_of() == PROTO_ANSWER_SEND, "another size");
    other = plain;
    other.nanoseconds++;
    add_question(PROTO_ASK_FILE, &other, NULL, "file", "");
    CHECK(answer_of() == PROTO_ANSWER_SEND, "another time");
    other = plain;
    other.mode = 0666;
    add_question(PROTO_ASK_FILE, &other, NULL, "file", "");
    CHECK(answer_of() == PROTO_ANSWER_SEND, "another mode");
    CHECK((status_of("file").st_mode & 0777) == plain.mode, "which is not set");
    CHECK(symlinkat("file", root, "link") == 0, "a link");
    add_question(PROTO_ASK_FILE, &plain, NULL, "link", "");
    CHECK(answer_of() == PROTO_ANSWER_SEND, "a link is not followed");
    add_question(PROTO_ASK_LINK, &plain, NULL, "link", "file");
    CHECK(answer_of() == PROTO_ANSWER_UNCHANGED, "it is the same link");
    add_question(PROTO_ASK_LINK, &plain, NULL, "link", "fil");
    CHECK(answer_of() == PROTO_ANSWER_SEND, "it is another");
    CHECK(linkat(root, "file", root, "second", 0) == 0, "a hard link");
    add_question(PROTO_ASK_SAME, &plain, NULL, "second", "file");
    CHECK(answer_of() == PROTO_ANSWER_UNCHANGED, "one file");
    add_question(PROTO_ASK_SAME, &plain, NULL, "link", "file");
    CHECK(answer_of() == PROTO_ANSWER_SEND, "two");
}

static void what_is_there_stays_if_the_sender_wants_that(void)
{
    struct proto_attributes older = plain;
    struct proto_attributes newer = plain;
    older.seconds--;
    newer.seconds++;
    make_file("file", "contents");
    begin(PROTO_BEGIN_UPDATE);
    add_question(PROTO_ASK_FILE, &older, NULL, "file", "");
    CHECK(answer_of() == PROTO_ANSWER_NEWER, "that one is newer");
    add_question(PROTO_ASK_FILE, &newer, NULL, "file", "");
    CHECK(answer_of() == PROTO_ANSWER_SEND, "that one is older");
    begin(PROTO_BEGIN_NO_CLOBBER);
    add_question(PROTO_ASK_FILE, &newer, NULL, "file", "");
    CHECK(answer_of() == PROTO_ANSWER_EXISTS, "something is there");
    add_question(PROTO_ASK_LINK, &newer, NULL, "file", "x");
    CHECK(answer_of() == PROTO_ANSWER_EXISTS, "a file, but no link");
    add_question(PROTO_ASK_FILE, &newer, NULL, "new", "");
    CHECK(answer_of() == PROTO_ANSWER_SEND, "nothing");

    /* A file that has appeared since the question stays, too. */
    add_file(&newer, "late", "mine");
    make_file("late", "theirs");
    CHECK(take() == RECEIVER_FAILED, "the name is taken");
    CHECK(has_contents("late", "theirs"), "it is not replaced");
}

static void contents_are_compared_by_their_checksum(void)
{
    uint8_t sum[CHECKSUM_SIZE_MAX];
    struct proto_attributes other = plain;
    other.mode = 0600;
    other.seconds = 7;
    checksum_of("contents", 8, sum);
    make_file("file", "contents");
    begin(0);
    add_question(PROTO_ASK_CONTENTS, &other, sum, "file", "");
    CHECK(answer_of() == PROTO_ANSWER_UNCHANGED, "the contents are the same");
    CHECK((status_of("file").st_mode & 0777) == 0600, "the mode becomes the sender's");
    CHECK(status_of("file").st_mtim.tv_sec == 7, "and the time");
    make_file("file", "CONTENTS");
    add_question(PROTO_ASK_CONTENTS, &other, sum, "file", "");
    CHECK(answer_of() == PROTO_ANSWER_SEND, "other contents");
    CHECK((status_of("file").st_mode & 0777) == plain.mode, "keep their mode");
}

static void contents_are_compared_in_steps_of_bounded_work(void)
{
    enum { MIB = 64 };
    struct proto_attributes large = plain;
    uint8_t sum[CHECKSUM_SIZE_MAX] = { 0 };
    large.size = (uint64_t)MIB << 20;
    make_file("large", "");
    int file = openat(root, "large", O_WRONLY | O_CLOEXEC);
    CHECK(file >= 0 && ftruncate(file, (off_t)large.size) == 0, "a large file");
    close(file);
    begin(0);
    add_question(PROTO_ASK_CONTENTS, &large, sum, "large", "");
    unsigned steps = 0;
    size_t taken = 0;
    while (taken == 0) {
        read_calls = 0;
        CHECK(receiver_take(target, message.bytes, message.length, &taken) == RECEIVER_MORE,
              receiver_error(target));
        CHECK(read_calls <= 32, "the work of a step is bounded");
        steps++;
    }
    CHECK(steps >= MIB, "it takes many");
    take_answers(target);
    CHECK(answers[answer_count - 1] == PROTO_ANSWER_SEND, "the checksum is another");
}

static void every_question_is_answered_however_many_there_are(void)
{
    begin(0);
    for (unsigned i = 0; i < 5000; i++) {
        add_question(PROTO_ASK_FILE, &plain, NULL, "nothing", "");
    }
    CHECK(take() == RECEIVER_MORE && answer_count == 5000, "with breaks for sending them");
    for (unsigned i = 0; i < 5000; i++) {
        add_question(PROTO_ASK_FILE, &plain, NULL, "nothing", "");
    }
    /* A caller that cannot send answers: the receiver goes no further. */
    size_t at = 0;
    for (unsigned i = 0; i < 1000; i++) {
        size_t taken = 0;
        CHECK(receiver_take(target, message.bytes + at, message.length - at, &taken) ==
                  RECEIVER_MORE,
              receiver_error(target));
        at += taken;
    }
    size_t length = 0;
    (void)receiver_answers(target, &length);
    CHECK(!receiver_has_room(target) && length <= PROTO_ANSWERS_MAX, "its answers are bounded");
    CHECK(at < message.length, "the other questions wait");
}

/* --------------------------------------------------------------------------------- what was cut off */

enum { PART = PARK_BYTES_MIN };
static uint8_t large[2 * PART];

static struct proto_attributes attributes_of_large(void)
{
    struct proto_attributes attributes = plain;
    attributes.size = sizeof(large);
    for (size_t i = 0; i < sizeof(large); i++) {
        large[i] = (uint8_t)(i * 7 + i / 251);
    }
    return attributes;
}

/* A client of this origin sends the first `length` bytes of the large file, and vanishes. */
static void cut_off(const char *origin, const char *path, size_t length)
{
    struct proto_attributes attributes = attributes_of_large();
    begin_as(origin, 0);
    add_file_at(&attributes, 0, path);
    memcpy(add(PROTO_RECORD_DATA, length), large, length);
    CHECK(take() == RECEIVER_MORE, receiver_error(target));
    receiver_destroy(target);
    target = NULL;
}

static uint8_t answer_for(const char *origin, const char *path,
                          const struct proto_attributes *attributes)
{
    begin_as(origin, 0);
    add_question(PROTO_ASK_FILE, attributes, NULL, path, "");
    return answer_of();
}

static void continue_large(void)
{
    struct proto_attributes attributes = attributes_of_large();
    uint8_t sum[CHECKSUM_SIZE_MAX];
    checksum_of(large, PART, sum);
    CHECK(answer_for("address 1", "file", &attributes) == PROTO_ANSWER_RESUME, "it is continued");
    CHECK(resumed.offset == PART && memcmp(resumed.checksum, sum, sizeof(sum)) == 0,
          "the answer describes what is there");
    add_file_at(&attributes, PART, "file");
    memcpy(add(PROTO_RECORD_DATA, PART), large + PART, PART);
    add_sum(large, sizeof(large));
    CHECK(take() == RECEIVER_MORE, receiver_error(target));
    static uint8_t bytes[sizeof(large) + 1];
    int file = openat(root, "file", O_RDONLY | O_CLOEXEC);
    CHECK(pread(file, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(large) &&
              memcmp(bytes, large, sizeof(large)) == 0,
          "the file is whole");
    close(file);
}

static void a_file_that_was_cut_off_is_continued(void)
{
    cut_off("address 1", "file", PART);
    CHECK(!exists(root, "file"), "it has no name meanwhile");
    continue_large();
}

static void a_file_is_continued_without_nameless_files_too(void)
{
    no_nameless_files = true;
    cut_off("address 1", "file", PART);
    CHECK(!exists(root, "file"), "it does not have its name meanwhile");
    continue_large();
    no_nameless_files = false;
    park_clear(kept);
    begin(0);
    CHECK(unlinkat(root, "file", 0) == 0 && unlinkat(folder, "root", AT_REMOVEDIR) == 0,
          "nothing else is left");
}

static void only_its_sender_continues_a_file(void)
{
    struct proto_attributes attributes = attributes_of_large();
    struct proto_attributes later = attributes;
    struct proto_attributes longer = attributes;
    later.nanoseconds++;
    longer.size++;
    cut_off("address 1", "file", PART);
    CHECK(answer_for("address 2", "file", &attributes) == PROTO_ANSWER_SEND, "another address");
    CHECK(answer_for("address 1", "other", &attributes) == PROTO_ANSWER_SEND, "another path");
    CHECK(answer_for("address 1", "file", &later) == PROTO_ANSWER_SEND, "another time");
    CHECK(answer_for("address 1", "file", &longer) == PROTO_ANSWER_SEND, "another size");
    add_file_at(&attributes, PART, "file");
    CHECK(take() == RECEIVER_FAILED, "nobody continues what was not offered");
    CHECK(answer_for("address 1", "file", &attributes) == PROTO_ANSWER_RESUME, "its sender");
    add_file_at(&attributes, PART - 1, "file");
    CHECK(take() == RECEIVER_FAILED, "at another offset");
}

static void a_continued_file_with_other_contents_is_not_stored(void)
{
    struct proto_attributes attributes = attributes_of_large();
    cut_off("address 1", "file", PART);
    CHECK(answer_for("address 1", "file", &attributes) == PROTO_ANSWER_RESUME, "it is continued");
    add_file_at(&attributes, PART, "file");
    add_sum(large, sizeof(large));
    CHECK(take() == RECEIVER_FAILED && !exists(root, "file"), "half of it is missing");
}

static void what_is_kept_is_bounded_and_the_greedy_lose_theirs(void)
{
    char path[32];
    struct proto_attributes attributes = attributes_of_large();
    cut_off("modest", "file", PART);
    cut_off("modest", "small", PART - 1);
    CHECK(answer_for("modest", "small", &attributes) == PROTO_ANSWER_SEND, "too small to be kept");
    for (unsigned i = 0; i < PARK_MAX; i++) {
        snprintf(path, sizeof(path), "file.%u", i);
        cut_off("greedy", path, PART);
    }
    CHECK(answer_for("greedy", "file.0", &attributes) == PROTO_ANSWER_SEND, "the oldest is gone");
    CHECK(answer_for("greedy", "file.1", &attributes) == PROTO_ANSWER_RESUME, "the next is there");
    CHECK(answer_for("modest", "file", &attributes) == PROTO_ANSWER_RESUME,
          "that of the other, too");
    receiver_destroy(target);
    target = NULL;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * UINT64_C(1000000000);
    park_expire(kept, now_ns + (PARK_SECONDS - 60) * UINT64_C(1000000000));
    CHECK(answer_for("modest", "file", &attributes) == PROTO_ANSWER_RESUME,
          "it is kept for an hour");
    receiver_destroy(target);
    target = NULL;
    park_expire(kept, now_ns + (PARK_SECONDS + 60) * UINT64_C(1000000000));
    CHECK(answer_for("modest", "file", &attributes) == PROTO_ANSWER_SEND, "and no longer");
    CHECK(!park_clear(kept), "all others are gone, too");
}

static void a_file_that_its_sender_drops_is_not_stored(void)
{
    begin(0);
    add_file_at(&plain, 0, "file");
    put(add(PROTO_RECORD_DATA, 4), "part");
    add(PROTO_RECORD_FILE_CANCEL, 0);
    add_file(&plain, "other", "contents");
    CHECK(take() == RECEIVER_MORE, receiver_error(target));
    CHECK(!exists(root, "file") && has_contents("other", "contents"), "the next one is");
}

/* ---------------------------------------------------------------------------------- hostile senders */

static void nobody_links_to_the_file_of_another(void)
{
    uint8_t sum[CHECKSUM_SIZE_MAX];
    struct proto_attributes linked = plain;
    linked.flags = PROTO_ENTRY_LINKED;
    make_file("secret", "contents");
    begin(0);
    add_question(PROTO_ASK_FILE, &linked, NULL, "secret", "");
    CHECK(answer_of() == PROTO_ANSWER_UNCHANGED, "its size and time are known");
    add_hard_link("mine", "secret");
    CHECK(take() == RECEIVER_FAILED && !exists(root, "mine"), "its contents are not");
    checksum_of("contents", 8, sum);
    begin(0);
    add_question(PROTO_ASK_CONTENTS, &linked, sum, "secret", "");
    add_hard_link("mine", "secret");
    CHECK(take() == RECEIVER_MORE && has_contents("mine", "contents"), "if they are, it may");
    CHECK(symlinkat("../outside", root, "way") == 0, "a link outside");
    add_hard_link("other", "way");
    CHECK(take() == RECEIVER_FAILED && !exists(root, "other"), "no link to a link");
}

static void malformed_records_are_refused(void)
{
    static const struct {
        uint32_t kind;
        size_t length;
    } records[] = {
        { PROTO_RECORD_FILE, 5 },
        { PROTO_RECORD_DIRECTORY_END, 5 },
        { PROTO_RECORD_LINK, 9 },
        { PROTO_RECORD_ASK, PROTO_ASK_SIZE - 1 },
        { PROTO_RECORD_ASK, PROTO_ASK_SIZE },
        { PROTO_RECORD_FILE_AT, PROTO_FILE_AT_SIZE - 1 },
        { PROTO_RECORD_FILE_AT, PROTO_FILE_AT_SIZE },
        { PROTO_RECORD_HOLE, 7 },
        { PROTO_RECORD_HOLE, 9 },
        { PROTO_RECORD_FILE_CANCEL, 0 },
        { PROTO_RECORD_DIRECTORY_DONE, PROTO_ATTRIBUTES_SIZE - 1 },
        { PROTO_RECORD_DIRECTORY_DONE, PROTO_ATTRIBUTES_SIZE },
        { PROTO_RECORD_LINK_AT, PROTO_LINK_AT_SIZE - 1 },
        { PROTO_RECORD_LINK_AT, PROTO_LINK_AT_SIZE },
        { PROTO_RECORD_HARD_LINK, 3 },
        { PROTO_RECORD_HARD_LINK, 4 },
        { PROTO_RECORD_BEGIN, PROTO_BEGIN_SIZE + 1 },
        { 0, 0 },
        { PROTO_RECORD_NOTHING + 1, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(records); i++) {
        begin(0);
        add(records[i].kind, records[i].length);
        CHECK(take() == RECEIVER_FAILED, "a length, a kind or an order that is wrong");
        CHECK(receiver_error(target)[0] != '\0', "with a text");
    }
    for (uint32_t kind = 0; kind < 6; kind++) {
        if (kind < PROTO_ASK_FILE || kind > PROTO_ASK_SAME) {
            begin(0);
            add_question((enum proto_ask)kind, &plain, NULL, "file", "");
            CHECK(take() == RECEIVER_FAILED, "a question of no kind");
        }
    }
    begin(0);
    add_question(PROTO_ASK_FILE, &plain, NULL, "file", "other");
    CHECK(take() == RECEIVER_FAILED, "another path that has no use");
    begin(0);
    add_question(PROTO_ASK_FILE, &plain, NULL, "file", "");
    proto_store32(message.bytes + 8 + PROTO_ATTRIBUTES_SIZE + 4, 5);
    CHECK(take() == RECEIVER_FAILED, "a path longer than its record");
}

static void attributes_and_holes_out_of_range_are_refused(void)
{
    struct proto_attributes wrong[] = { plain, plain, plain };
    wrong[0].nanoseconds = 1000000000;
    wrong[1].flags = 2;
    wrong[2].size = UINT64_C(1) << 63;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        begin(0);
        add_file_at(&wrong[i], 0, "file");
        CHECK(take() == RECEIVER_FAILED && !exists(root, "file"), "attributes");
        begin(0);
        add_question(PROTO_ASK_FILE, &wrong[i], NULL, "file", "");
        CHECK(take() == RECEIVER_FAILED, "attributes of a question");
    }
    static const uint64_t holes[] = { 0, PROTO_HOLE_MAX + 1, UINT64_MAX };
    for (size_t i = 0; i < COUNT_OF(holes); i++) {
        begin(0);
        add_file_at(&plain, 0, "file");
        add_hole(holes[i]);
        CHECK(take() == RECEIVER_FAILED, "a hole");
    }
    begin(0);
    add_hole(1);
    CHECK(take() == RECEIVER_FAILED, "a hole without a file");
    static const uint64_t offsets[] = { 1, UINT64_MAX, (uint64_t)INT64_MAX };
    for (size_t i = 0; i < COUNT_OF(offsets); i++) {
        begin(0);
        add_file_at(&plain, offsets[i], "file");
        CHECK(take() == RECEIVER_FAILED, "an offset that was not offered");
    }
}

static void paths_of_every_record_are_checked(void)
{
    static const char *const paths[] = {
        "/absolute",
        "..",
        "../sibling",
        "a/../../sibling",
        ".",
        "a//b",
        "",
        ".rdmux-0123456789abcdef0123456789abcdef.part",
        "a/.rdmux-0123456789abcdef0123456789abcdef.part",
    };
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        open_target();
        add_begin(0, NULL, paths[i], "");
        CHECK(take() == RECEIVER_FAILED, paths[i]);
        open_target();
        add_begin(PROTO_BEGIN_INTO, NULL, "", paths[i]);
        CHECK(take() == RECEIVER_FAILED, paths[i]);
        begin(0);
        add_file_at(&plain, 0, paths[i]);
        CHECK(take() == RECEIVER_FAILED, paths[i]);
        for (uint32_t kind = PROTO_ASK_FILE; kind <= PROTO_ASK_SAME; kind++) {
            begin(0);
            add_question((enum proto_ask)kind, &plain, NULL, paths[i],
                         kind >= PROTO_ASK_LINK ? "file" : "");
            CHECK(take() == RECEIVER_FAILED, paths[i]);
        }
        begin(0);
        add_question(PROTO_ASK_SAME, &plain, NULL, "file", paths[i]);
        CHECK(take() == RECEIVER_FAILED, paths[i]);
        begin(0);
        add_hard_link(paths[i], "file");
        CHECK(take() == RECEIVER_FAILED, paths[i]);
        begin(0);
        add_hard_link("file", paths[i]);
        CHECK(take() == RECEIVER_FAILED, paths[i]);
    }
    open_target();
    add_begin(PROTO_BEGIN_INTO, NULL, "", "two/parts");
    CHECK(take() == RECEIVER_FAILED, "a name with two parts");
    CHECK(!exists(folder, "sibling"), "nothing is beside the root");
}

static void a_question_does_not_follow_a_link(void)
{
    uint8_t sum[CHECKSUM_SIZE_MAX];
    checksum_of("contents", 8, sum);
    CHECK(mkdirat(folder, "outside", 0755) == 0, "mkdir");
    make_file("../outside/file", "contents");
    CHECK(symlinkat("../outside", root, "way") == 0, "symlink");
    CHECK(symlinkat("../outside/file", root, "link") == 0, "symlink");
    begin(0);
    add_question(PROTO_ASK_FILE, &plain, NULL, "way/file", "");
    CHECK(answer_of() == PROTO_ANSWER_SEND, "a directory on the way");
    add_question(PROTO_ASK_CONTENTS, &plain, sum, "way/file", "");
    CHECK(answer_of() == PROTO_ANSWER_SEND, "the same for contents");
    add_question(PROTO_ASK_CONTENTS, &plain, sum, "link", "");
    CHECK(answer_of() == PROTO_ANSWER_SEND, "the last part");
}

static void a_copy_begins_once_and_with_flags_that_are_known(void)
{
    open_target();
    add_file(&plain, "file", "contents");
    CHECK(take() == RECEIVER_FAILED && !exists(root, "file"), "a record before it");
    begin(0);
    add_begin(0, NULL, "copy", "");
    CHECK(take() == RECEIVER_FAILED, "a second one");
    open_target();
    add_begin(PROTO_BEGIN_FLAGS + 1, NULL, "copy", "");
    CHECK(take() == RECEIVER_FAILED, "a flag of a later version");
    open_target();
    add_begin(0, NULL, "copy", "name");
    CHECK(take() == RECEIVER_FAILED, "a name that has no use");
    receiver_destroy(target);
    target = receiver_create(root);
    add_begin(0, NULL, "copy", "");
    CHECK(take() == RECEIVER_FAILED, "a copy of version 1");
}

static void the_answer_to_the_beginning_says_where_the_copy_goes(void)
{
    CHECK(mkdirat(root, "directory", 0755) == 0, "mkdir");
    make_file("file", "contents");
    static const struct {
        const char *path;
        uint8_t answer;
    } places[] = {
        { "", PROTO_ANSWER_INTO },
        { "directory", PROTO_ANSWER_INTO },
        { "file", PROTO_ANSWER_TARGET },
        { "new", PROTO_ANSWER_TARGET },
    };
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        open_target();
        add_begin(PROTO_BEGIN_INTO, NULL, places[i].path, "name");
        CHECK(answer_of() == places[i].answer, places[i].path);
    }
    open_target();
    add_begin(0, NULL, "directory", "");
    CHECK(answer_of() == PROTO_ANSWER_TARGET, "exactly this path");
    open_target();
    add_begin(0, NULL, "a/b/copy", "");
    CHECK(take() == RECEIVER_FAILED && !exists(root, "a"), "a directory is missing");
    CHECK(strstr(receiver_error(target), "--parents") != NULL, receiver_error(target));
    open_target();
    add_begin(PROTO_BEGIN_PARENTS, NULL, "a/b/copy", "");
    CHECK(answer_of() == PROTO_ANSWER_TARGET && exists(root, "a/b"), "it is made");
    CHECK(!exists(root, "a/b/copy"), "the copy is not");
}

static void a_tree_is_not_copied_into_itself(void)
{
    struct proto_place place;
    struct stat status;
    CHECK(mkdirat(root, "a", 0755) == 0 && mkdirat(root, "a/b", 0755) == 0, "mkdir");
    static const struct {
        const char *source, *path, *name;
        uint32_t flags;
    } refused[] = {
        { "..", "copy", "", 0 },             /* contains the root */
        { ".", "copy", "", 0 },              /* is the root */
        { "a", "a/b/copy", "", 0 },          /* contains the target */
        { "a", "a", "", 0 },                 /* is the target */
        { "a", "", "a", PROTO_BEGIN_INTO },  /* the same by its name */
        { "a", "a", "x", PROTO_BEGIN_INTO }, /* into it */
        { "a", "a/new/copy", "", PROTO_BEGIN_PARENTS },
    };
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        CHECK(fstatat(root, refused[i].source, &status, 0) == 0, refused[i].source);
        receiver_place_of(&status, &place);
        open_target();
        add_begin(refused[i].flags, &place, refused[i].path, refused[i].name);
        CHECK(take() == RECEIVER_FAILED, refused[i].path);
        CHECK(strstr(receiver_error(target), "contains") != NULL, receiver_error(target));
        place.boot_id[0] ^= 1;
        open_target();
        add_begin(refused[i].flags & ~(uint32_t)PROTO_BEGIN_PARENTS, &place,
                  (refused[i].flags & PROTO_BEGIN_PARENTS) != 0 ? "a" : refused[i].path,
                  refused[i].name);
        CHECK(take() == RECEIVER_MORE, "another host's directory may have the same numbers");
    }
    CHECK(!exists(root, "a/new"), "nothing was made on the way");
    CHECK(fstatat(root, "a/b", &status, 0) == 0, "status");
    receiver_place_of(&status, &place);
    open_target();
    add_begin(0, &place, "a/copy", "");
    CHECK(take() == RECEIVER_MORE, "beside it is fine");
}

static uint64_t random_state = 1;

static uint32_t next_random(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (uint32_t)(random_state >> 33);
}

static void no_damaged_message_writes_outside(void)
{
    uint8_t sum[CHECKSUM_SIZE_MAX];
    checksum_of("contents", 8, sum);
    CHECK(mkdirat(folder, "outside", 0755) == 0, "mkdir");
    for (int round = 0; round < 3000; round++) {
        open_target();
        add_begin(PROTO_BEGIN_INTO | PROTO_BEGIN_PARENTS, NULL, "t/../x", "copy");
        if (round % 2 == 0) {
            message.length = 0;
            add_begin(PROTO_BEGIN_INTO, NULL, "t", "copy");
        }
        add_question(PROTO_ASK_CONTENTS, &plain, sum, "t/file", "");
        add_question(PROTO_ASK_SAME, &plain, NULL, "t/second", "t/file");
        add_file(&plain, "file", "contents");
        add_hard_link("second", "file");
        add_hard_link("third", "../outside");
        for (uint32_t i = next_random() % 6; i > 0; i--) {
            message.bytes[next_random() % message.length] = (uint8_t)next_random();
        }
        (void)take();
        CHECK(!exists(folder, "x") && !exists(folder, "file"), "nothing is beside the root");
    }
}

/* -------------------------------------------------------------------------------- what is left over */

static const char left_over[] = ".rdmux-0123456789abcdef0123456789abcdef.part";

static void what_a_killed_receiver_has_left_is_removed(void)
{
    static const char *const names[] = {
        ".rdmux-0123456789abcdef0123456789abcde.part",   /* too short */
        ".rdmux-0123456789abcdef0123456789abcdef.parts", /* another end */
        ".rdmux-0123456789ABCDEF0123456789abcdef.part",  /* other digits */
        "rdmux-0123456789abcdef0123456789abcdef.part",
    };
    CHECK(mkdirat(root, "d", 0755) == 0 && mkdirat(root, "d/e", 0755) == 0, "mkdir");
    CHECK(mkdirat(folder, "outside", 0755) == 0, "mkdir");
    CHECK(symlinkat("../outside", root, "d/way") == 0, "symlink");
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        make_file(names[i], "mine");
    }
    char path[128];
    make_file(left_over, "part");
    snprintf(path, sizeof(path), "d/e/%s", left_over);
    make_file(path, "part");
    snprintf(path, sizeof(path), "../outside/%s", left_over);
    make_file(path, "part");
    snprintf(path, sizeof(path), "d/%s", left_over);
    CHECK(symlinkat("x", root, path) == 0, "symlink");
    static const char in_use[] = ".rdmux-00000000000000000000000000000000.part";
    make_file(in_use, "part");
    int file = openat(root, in_use, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0, "another server writes this one");

    struct sweep *sweep = sweep_begin(root);
    CHECK(sweep != NULL, "it begins");
    for (unsigned i = 0; i < 100000 && exists(root, "d/e"); i++) {
        struct timespec moment = { .tv_nsec = 1000000 };
        (void)nanosleep(&moment, NULL);
        snprintf(path, sizeof(path), "d/e/%s", left_over);
        if (!exists(root, left_over) && !exists(root, path)) {
            snprintf(path, sizeof(path), "d/%s", left_over);
            if (!exists(root, path)) {
                break;
            }
        }
    }
    sweep_end(sweep);

    CHECK(!exists(root, left_over), "the file is gone");
    snprintf(path, sizeof(path), "d/e/%s", left_over);
    CHECK(!exists(root, path), "the one below, too");
    snprintf(path, sizeof(path), "d/%s", left_over);
    CHECK(!exists(root, path), "and the link");
    snprintf(path, sizeof(path), "outside/%s", left_over);
    CHECK(exists(folder, path), "a link is not followed");
    CHECK(exists(root, in_use), "what is in use stays");
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        CHECK(exists(root, names[i]), names[i]);
    }
    close(file);
}

static void a_file_being_received_survives_the_start_of_another_server(void)
{
    no_nameless_files = true;
    begin(0);
    add_file_at(&plain, 0, "file");
    put(add(PROTO_RECORD_DATA, 8), "contents");
    CHECK(take() == RECEIVER_MORE, receiver_error(target));
    CHECK(mkdirat(root, "z", 0755) == 0, "mkdir");
    char path[128];
    snprintf(path, sizeof(path), "z/%s", left_over);
    make_file(path, "part");
    struct sweep *sweep = sweep_begin(root);
    for (unsigned i = 0; i < 100000 && exists(root, path); i++) {
        struct timespec moment = { .tv_nsec = 1000000 };
        (void)nanosleep(&moment, NULL);
    }
    sweep_end(sweep);
    CHECK(!exists(root, path), "the sweep was here");
    add_sum("contents", 8);
    CHECK(take() == RECEIVER_MORE && has_contents("file", "contents"), receiver_error(target));
}

/* ------------------------------------------------------------------------------------ the protocol */

static void either_side_may_be_of_version_1(void)
{
    uint8_t bytes[PROTO_CONTROL_MAX];
    struct proto_message opened;
    uint32_t version = 99;
    for (uint32_t i = 1; i <= PROTO_COPY_VERSION; i++) {
        CHECK(proto_open(bytes, proto_copy_ready_encode(i, bytes), &opened), "opens");
        CHECK(proto_copy_ready_decode(&opened, &version) && version == i, "the version in force");
    }
    CHECK(proto_copy_ready_encode(1, bytes) == PROTO_HEADER_SIZE, "as it was before version 2");
    static const uint32_t wrong[] = { 0, 1, PROTO_COPY_VERSION + 1, UINT32_MAX };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        size_t length = proto_copy_ready_encode(2, bytes);
        proto_store32(bytes + PROTO_HEADER_SIZE, wrong[i]);
        version = 99;
        CHECK(proto_open(bytes, length, &opened), "opens");
        CHECK(!proto_copy_ready_decode(&opened, &version) && version == 99, "is refused");
    }
    struct proto_copy_request request = { .checksum = 1, .version = 2, .files = 3, .bytes = 4 };
    struct proto_copy_request again = { .version = 9 };
    CHECK(proto_open(bytes, proto_copy_request_encode(&request, bytes), &opened), "opens");
    CHECK(proto_copy_request_decode(&opened, &again) && again.version == 2 && again.files == 3,
          "decodes");
}

static void malformed_answers_are_refused(void)
{
    uint8_t bytes[PROTO_CONTROL_MAX];
    uint8_t told[PROTO_RESUME_SIZE + 1] = { 0 };
    struct proto_message opened;
    struct proto_copy_answer answer = { .code = 77 };
    static const uint8_t codes[] = { 0, PROTO_ANSWER_INTO + 1, 255 };
    for (size_t i = 0; i < COUNT_OF(codes); i++) {
        size_t at = 0;
        told[0] = codes[i];
        CHECK(proto_open(bytes, proto_copy_answers_encode(told, 1, bytes), &opened), "opens");
        CHECK(!proto_copy_answer_decode(&opened, &at, &answer) && at == 0, "a code of none");
    }
    told[0] = PROTO_ANSWER_RESUME;
    for (size_t length = 1; length <= PROTO_RESUME_SIZE; length++) {
        size_t at = 0;
        CHECK(proto_open(bytes, proto_copy_answers_encode(told, length, bytes), &opened), "opens");
        CHECK(proto_copy_answer_decode(&opened, &at, &answer) == (length == PROTO_RESUME_SIZE),
              "one that is cut off");
    }
    size_t at = 0;
    CHECK(proto_open(bytes, proto_copy_answers_encode(told, 0, bytes), &opened), "opens");
    CHECK(!proto_copy_answer_decode(&opened, &at, &answer), "none at all");
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
#define CASE(name)  \
    {               \
#name, name \
    }
    CASE(times_holes_and_hard_links_are_kept),
    CASE(an_answer_says_whether_a_file_is_needed),
    CASE(what_is_there_stays_if_the_sender_wants_that),
    CASE(contents_are_compared_by_their_checksum),
    CASE(contents_are_compared_in_steps_of_bounded_work),
    CASE(every_question_is_answered_however_many_there_are),
    CASE(a_file_that_was_cut_off_is_continued),
    CASE(a_file_is_continued_without_nameless_files_too),
    CASE(only_its_sender_continues_a_file),
    CASE(a_continued_file_with_other_contents_is_not_stored),
    CASE(what_is_kept_is_bounded_and_the_greedy_lose_theirs),
    CASE(a_file_that_its_sender_drops_is_not_stored),
    CASE(nobody_links_to_the_file_of_another),
    CASE(malformed_records_are_refused),
    CASE(attributes_and_holes_out_of_range_are_refused),
    CASE(paths_of_every_record_are_checked),
    CASE(a_question_does_not_follow_a_link),
    CASE(a_copy_begins_once_and_with_flags_that_are_known),
    CASE(the_answer_to_the_beginning_says_where_the_copy_goes),
    CASE(a_tree_is_not_copied_into_itself),
    CASE(no_damaged_message_writes_outside),
    CASE(what_a_killed_receiver_has_left_is_removed),
    CASE(a_file_being_received_survives_the_start_of_another_server),
    CASE(either_side_may_be_of_version_1),
    CASE(malformed_answers_are_refused),
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
        fprintf(stderr, "usage: receiver_unit --list | receiver_unit CASE FOLDER\n");
        return 2;
    }
    umask(022);
    folder = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(folder >= 0, argv[2]);
    CHECK(mkdirat(folder, "root", 0755) == 0, "mkdir");
    root = openat(folder, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(root >= 0, "root");
    kept = park_create();
    CHECK(kept != NULL, "a park");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            receiver_destroy(target);
            park_destroy(kept);
            close(root);
            close(folder);
            return 0;
        }
    }
    fprintf(stderr, "receiver_unit: there is no case %s\n", argv[1]);
    return 2;
}
