/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What a sender asks before it sends: where the copy goes, and which entries are needed. Nothing
 * here follows a symbolic link, and an entry changes only if its sender knows its contents. */
#include "receiver_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BEGIN_AT_FLAGS = 0,
    BEGIN_AT_BOOT_ID = 4,
    BEGIN_AT_DEVICE = 20,
    BEGIN_AT_INODE = 28,
    BEGIN_AT_LENGTH = 36,

    ASK_AT_KIND = PROTO_ATTRIBUTES_SIZE,
    ASK_AT_LENGTH = PROTO_ATTRIBUTES_SIZE + 4,
    ASK_AT_CHECKSUM = PROTO_ATTRIBUTES_SIZE + 8,

    UPWARDS_MAX = 4096, /* directories above the root */
    COMPARE_STEP = 64 << 10,
};

static enum receiver_outcome answer(struct receiver *receiver, const struct proto_copy_answer *what)
{
    receiver->answers_length += proto_copy_answer_encode(what, receiver->answers +
                                                                   receiver->answers_length);
    return RECEIVER_MORE;
}

static enum receiver_outcome answer_code(struct receiver *receiver, enum proto_answer code)
{
    return answer(receiver, &(struct proto_copy_answer){ .code = (uint8_t)code });
}

/* -------------------------------------------------------------------------------------- the place */

static int digit_value(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

void receiver_place_of(const struct stat *status, struct proto_place *out)
{
    char text[64] = "";
    *out = (struct proto_place){ .device = status->st_dev, .inode = status->st_ino };
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof(text) - 1);
    if (file >= 0) {
        close(file);
    }
    size_t digits = 0;
    for (ssize_t i = 0; i < length && digits < 2 * sizeof(out->boot_id); i++) {
        int value = digit_value(text[i]);
        if (value >= 0) {
            out->boot_id[digits / 2] |= (uint8_t)(value << (digits % 2 == 0 ? 4 : 0));
            digits++;
        }
    }
}

static bool is_place(const struct stat *status, const struct proto_place *place)
{
    return status->st_dev == place->device && status->st_ino == place->inode;
}

/* Returns whether the place is on this host. */
static bool is_here(const struct proto_place *place)
{
    static const uint8_t unknown[PROTO_BOOT_ID_SIZE];
    struct stat none = { .st_dev = 0 };
    struct proto_place here;
    receiver_place_of(&none, &here);
    return memcmp(here.boot_id, unknown, sizeof(unknown)) != 0 &&
           memcmp(here.boot_id, place->boot_id, sizeof(unknown)) == 0;
}

/* Returns whether the place is the root or a directory above it. */
static bool contains_root(const struct receiver *receiver, const struct proto_place *place)
{
    int directory = receiver_open_part(receiver->root, ".");
    struct stat status = { .st_dev = 0 };
    struct stat previous = { .st_dev = 0 };
    bool found = false;
    for (unsigned i = 0; directory >= 0 && i < UPWARDS_MAX && fstat(directory, &status) == 0; i++) {
        found = is_place(&status, place);
        if (found ||
            (i > 0 && status.st_dev == previous.st_dev && status.st_ino == previous.st_ino)) {
            break; /* the uppermost directory is its own parent */
        }
        previous = status;
        int up = receiver_open_part(directory, "..");
        close(directory);
        directory = up;
    }
    if (directory >= 0) {
        close(directory);
    }
    return found;
}

/* ---------------------------------------------------------------------------------------- BEGIN */

struct beginning {
    uint32_t flags;
    struct proto_place source;
    bool here; /* the source is on this host */
    char target[PROTO_PATH_MAX];
    char name[PROTO_PATH_MAX];
};

static enum receiver_outcome refuse_own_tree(struct receiver *receiver)
{
    return receiver_fail(receiver,
                         "the source is, or contains, the place that it is to be copied to; "
                         "name another source or target");
}

/* Opens the directory of `path`, makes what is missing of it if the sender asks for that, and sees
 * to it that the source is not on the way. */
static enum receiver_outcome prepare_parent(struct receiver *receiver,
                                            const struct beginning *beginning, const char *path)
{
    char part[PROTO_PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        memcpy(part, path, (size_t)(slash - path));
        part[slash - path] = '\0';
        if (!receiver_enter_parent(receiver, part)) {
            return receiver_fail_errno(receiver, "open the directory of", part, errno);
        }
        receiver->cost += COST_ENTRY;
        const char *name = receiver_name_of(part);
        int directory = receiver_open_part(receiver->directory, name);
        if (directory < 0 && errno == ENOENT) {
            if ((beginning->flags & PROTO_BEGIN_PARENTS) == 0) {
                return receiver_fail(receiver,
                                     "there is no directory \"%s\"; make it, or use --parents",
                                     receiver_tail_of(part));
            }
            if (mkdirat(receiver->directory, name, 0777) != 0 && errno != EEXIST) {
                return receiver_fail_errno(receiver, "create the directory", part, errno);
            }
            directory = receiver_open_part(receiver->directory, name);
        }
        struct stat status;
        if (directory < 0) {
            return receiver_fail_errno(receiver, "use the directory", part, errno);
        }
        bool own = beginning->here && fstat(directory, &status) == 0 &&
                   is_place(&status, &beginning->source);
        close(directory);
        if (own) {
            return refuse_own_tree(receiver);
        }
    }
    return RECEIVER_MORE;
}

/* Finds the entry without following a link at its end. */
static bool look_up(struct receiver *receiver, const char *path, struct stat *out)
{
    receiver->cost += COST_ENTRY;
    return receiver_enter_parent(receiver, path) &&
           fstatat(receiver->directory, receiver_name_of(path), out, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Reads the paths of BEGIN. Returns NULL if they are valid, else the problem. */
static const char *read_paths(struct beginning *beginning, const uint8_t *payload, size_t length)
{
    size_t target_length = proto_load32(payload + BEGIN_AT_LENGTH);
    if (target_length > length - PROTO_BEGIN_SIZE) {
        return "it is longer than its record";
    }
    const uint8_t *target = payload + PROTO_BEGIN_SIZE;
    size_t name_length = length - PROTO_BEGIN_SIZE - target_length;
    bool into = (beginning->flags & PROTO_BEGIN_INTO) != 0;
    const char *wrong = NULL;
    if (target_length > 0 || !into) {
        wrong = receiver_read_path(target, target_length, beginning->target);
    }
    if (wrong == NULL && into) {
        wrong = receiver_read_path(target + target_length, name_length, beginning->name);
        if (wrong == NULL && strchr(beginning->name, '/') != NULL) {
            wrong = "the name in it has several parts";
        }
    } else if (wrong == NULL && name_length > 0) {
        wrong = "a name follows that has no use";
    }
    return wrong;
}

enum receiver_outcome receiver_begin(struct receiver *receiver, const uint8_t *payload,
                                     size_t length)
{
    if (receiver->begun || length < PROTO_BEGIN_SIZE) {
        return receiver_fail(receiver, "protocol: a second or a short beginning of the copy");
    }
    struct beginning beginning = {
        .flags = proto_load32(payload + BEGIN_AT_FLAGS),
        .source = { .device = proto_load64(payload + BEGIN_AT_DEVICE),
                    .inode = proto_load64(payload + BEGIN_AT_INODE) },
    };
    memcpy(beginning.source.boot_id, payload + BEGIN_AT_BOOT_ID, PROTO_BOOT_ID_SIZE);
    if ((beginning.flags & ~(uint32_t)PROTO_BEGIN_FLAGS) != 0) {
        return receiver_fail(receiver, "protocol: unknown flags 0x%x of a copy", beginning.flags);
    }
    const char *wrong = read_paths(&beginning, payload, length);
    if (wrong != NULL) {
        return receiver_fail(receiver, "the path \"%s\" is refused: %s",
                             receiver_tail_of(beginning.target), wrong);
    }
    beginning.here = is_here(&beginning.source);
    if (beginning.here && contains_root(receiver, &beginning.source)) {
        return refuse_own_tree(receiver);
    }
    char *path = beginning.target;
    struct stat status;
    if (path[0] != '\0' && prepare_parent(receiver, &beginning, path) == RECEIVER_FAILED) {
        return RECEIVER_FAILED;
    }
    bool is_there = path[0] != '\0' && look_up(receiver, path, &status);
    bool own = is_there && beginning.here && is_place(&status, &beginning.source);
    bool into = (beginning.flags & PROTO_BEGIN_INTO) != 0 &&
                (path[0] == '\0' || (is_there && S_ISDIR(status.st_mode)));
    if (into && !own) {
        size_t used = strlen(path);
        size_t name_length = strlen(beginning.name);
        if (used + 1 + name_length >= PROTO_PATH_MAX) {
            return receiver_fail(receiver, "the path \"%s\" is refused: it is too long",
                                 receiver_tail_of(beginning.name));
        }
        if (used > 0) {
            path[used++] = '/';
        }
        memcpy(path + used, beginning.name, name_length + 1);
        own = beginning.here && look_up(receiver, path, &status) &&
              is_place(&status, &beginning.source);
    }
    if (own) {
        return refuse_own_tree(receiver);
    }
    receiver->flags = beginning.flags;
    receiver->begun = true;
    return answer_code(receiver, into ? PROTO_ANSWER_INTO : PROTO_ANSWER_TARGET);
}

/* ------------------------------------------------------------------------------------------ ASK */

struct question {
    uint32_t kind; /* enum proto_ask */
    struct proto_attributes attributes;
    uint8_t checksum[CHECKSUM_SIZE_MAX];
    char path[PROTO_PATH_MAX];
    char other[PROTO_PATH_MAX];
};

/* Returns NULL if the question is valid, else the problem. */
static const char *read_question(struct question *question, const uint8_t *payload, size_t length)
{
    if (length < PROTO_ASK_SIZE || !proto_attributes_decode(payload, &question->attributes)) {
        return "it is too short, or its attributes are not valid";
    }
    question->kind = proto_load32(payload + ASK_AT_KIND);
    size_t path_length = proto_load32(payload + ASK_AT_LENGTH);
    if (path_length > length - PROTO_ASK_SIZE) {
        return "it is longer than its record";
    }
    memcpy(question->checksum, payload + ASK_AT_CHECKSUM, CHECKSUM_SIZE_MAX);
    const uint8_t *path = payload + PROTO_ASK_SIZE;
    size_t other_length = length - PROTO_ASK_SIZE - path_length;
    const char *wrong = receiver_read_path(path, path_length, question->path);
    if (wrong != NULL) {
        return wrong;
    }
    switch (question->kind) {
    case PROTO_ASK_FILE:
    case PROTO_ASK_CONTENTS:
        return other_length == 0 ? NULL : "another path follows that has no use";
    case PROTO_ASK_LINK:
        return receiver_read_target(path + path_length, other_length, question->other);
    case PROTO_ASK_SAME:
        return receiver_read_path(path + path_length, other_length, question->other);
    default:
        return "nobody asks like this";
    }
}

static bool is_same_time(const struct stat *status, const struct proto_attributes *attributes)
{
    /* Some file systems keep no fractions of a second. */
    return status->st_mtim.tv_sec == attributes->seconds &&
           (status->st_mtim.tv_nsec == (long)attributes->nanoseconds ||
            status->st_mtim.tv_nsec == 0);
}

static bool is_newer(const struct stat *status, const struct proto_attributes *attributes)
{
    return status->st_mtim.tv_sec > attributes->seconds ||
           (status->st_mtim.tv_sec == attributes->seconds &&
            status->st_mtim.tv_nsec > (long)attributes->nanoseconds);
}

/* Another mode is a reason to send the file again: only a sender that has the contents may change
 * who can read them. */
static bool is_unchanged(const struct stat *status, const struct proto_attributes *attributes)
{
    return S_ISREG(status->st_mode) && (uint64_t)status->st_size == attributes->size &&
           is_same_time(status, attributes) &&
           (status->st_mode & MODE_MASK) == (attributes->mode & MODE_MASK);
}

static bool is_link_to(const struct receiver *receiver, const char *name, const char *target)
{
    char actual[PROTO_PATH_MAX];
    ssize_t length = readlinkat(receiver->directory, name, actual, sizeof(actual));
    return length >= 0 && (size_t)length == strlen(target) &&
           memcmp(actual, target, (size_t)length) == 0;
}

/* Whether the flags of the copy protect what is there. Returns 0 if they do not. */
static enum proto_answer protection(const struct receiver *receiver, const struct stat *there,
                                    const struct proto_attributes *attributes)
{
    if ((receiver->flags & PROTO_BEGIN_NO_CLOBBER) != 0) {
        return PROTO_ANSWER_EXISTS;
    }
    if ((receiver->flags & PROTO_BEGIN_UPDATE) != 0 && !S_ISDIR(there->st_mode) &&
        is_newer(there, attributes)) {
        return PROTO_ANSWER_NEWER;
    }
    return 0;
}

/* The file has to be sent: offers to continue what was kept of it. */
static enum receiver_outcome answer_file(struct receiver *receiver, const char *path,
                                         const struct proto_attributes *attributes)
{
    struct proto_copy_answer resume = { .code = PROTO_ANSWER_RESUME };
    if (receiver->park == NULL || receiver->promised_count == PROTO_RESUMES_MAX) {
        return answer_code(receiver, PROTO_ANSWER_SEND);
    }
    struct partial *partial = &receiver->promised[receiver->promised_count];
    if (!park_take(receiver->park, receiver->origin, path, attributes, partial)) {
        return answer_code(receiver, PROTO_ANSWER_SEND);
    }
    if (!checksum_peek(partial->checksum, resume.checksum)) {
        partial_drop(partial);
        return answer_code(receiver, PROTO_ANSWER_SEND);
    }
    receiver->promised_count++;
    resume.offset = partial->offset;
    return answer(receiver, &resume);
}

static enum receiver_outcome ask_contents(struct receiver *receiver,
                                          const struct question *question, const struct stat *there)
{
    if (there == NULL || !S_ISREG(there->st_mode) ||
        (uint64_t)there->st_size != question->attributes.size) {
        return answer_file(receiver, question->path, &question->attributes);
    }
    if (receiver->compared_checksum == NULL) {
        receiver->compared_checksum = checksum_create();
    }
    if (receiver->compared_checksum == NULL || !checksum_begin(receiver->compared_checksum)) {
        return receiver_fail_errno(receiver, "compute the checksum of", question->path, ENOMEM);
    }
    receiver->compared = openat(receiver->directory, receiver_name_of(question->path),
                                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (receiver->compared < 0) {
        return answer_file(receiver, question->path, &question->attributes);
    }
    return RECEIVER_MORE; /* receiver_compare() continues */
}

enum receiver_outcome receiver_ask(struct receiver *receiver, const uint8_t *payload, size_t length)
{
    struct question question = { .kind = 0 };
    const char *wrong = read_question(&question, payload, length);
    if (wrong != NULL) {
        return receiver_fail(receiver, "a question about \"%s\" is refused: %s",
                             receiver_tail_of(question.path), wrong);
    }
    struct stat there;
    struct stat other;
    bool found = look_up(receiver, question.path, &there);
    bool same = false;
    switch (question.kind) {
    case PROTO_ASK_FILE:
        same = found && is_unchanged(&there, &question.attributes);
        break;
    case PROTO_ASK_LINK:
        same = found && S_ISLNK(there.st_mode) &&
               is_link_to(receiver, receiver_name_of(question.path), question.other);
        break;
    case PROTO_ASK_SAME:
        same = found && look_up(receiver, question.other, &other) && S_ISREG(there.st_mode) &&
               there.st_dev == other.st_dev && there.st_ino == other.st_ino;
        break;
    default:
        break;
    }
    if (same) {
        return answer_code(receiver, PROTO_ANSWER_UNCHANGED);
    }
    enum proto_answer stays = found ? protection(receiver, &there, &question.attributes) : 0;
    if (stays != 0) {
        return answer_code(receiver, stays);
    }
    switch (question.kind) {
    case PROTO_ASK_FILE:
        return answer_file(receiver, question.path, &question.attributes);
    case PROTO_ASK_CONTENTS:
        return ask_contents(receiver, &question, found ? &there : NULL);
    default:
        return answer_code(receiver, PROTO_ANSWER_SEND);
    }
}

/* The contents are those of the sender, which therefore may say the mode and the time. */
static bool adopt_attributes(int file, const struct stat *status,
                             const struct proto_attributes *attributes)
{
    if ((status->st_mode & MODE_MASK) != (attributes->mode & MODE_MASK) &&
        fchmod(file, attributes->mode & MODE_MASK) != 0) {
        return false;
    }
    return is_same_time(status, attributes) || receiver_set_time(file, attributes);
}

static enum receiver_outcome end_comparison(struct receiver *receiver,
                                            const struct question *question)
{
    uint8_t actual[CHECKSUM_SIZE_MAX];
    struct stat status;
    bool same = checksum_end(receiver->compared_checksum, actual) &&
                memcmp(actual, question->checksum, CHECKSUM_SIZE_MAX) == 0 &&
                fstat(receiver->compared, &status) == 0 && S_ISREG(status.st_mode) &&
                adopt_attributes(receiver->compared, &status, &question->attributes);
    close(receiver->compared);
    receiver->compared = -1;
    if (!same) {
        return answer_file(receiver, question->path, &question->attributes);
    }
    if ((question->attributes.flags & PROTO_ENTRY_LINKED) != 0 &&
        !receiver_add_leader(receiver, &status)) {
        return receiver_fail(receiver, "the receiver is out of memory for hard links");
    }
    return answer_code(receiver, PROTO_ANSWER_UNCHANGED);
}

enum receiver_outcome receiver_compare(struct receiver *receiver, const uint8_t *payload,
                                       size_t length)
{
    uint8_t bytes[COMPARE_STEP];
    while (receiver->cost < COST_MAX) {
        ssize_t count = read(receiver->compared, bytes, sizeof(bytes));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            struct question question = { .kind = 0 };
            (void)read_question(&question, payload, length); /* receiver_ask() has found it valid */
            return end_comparison(receiver, &question);
        }
        receiver->cost += COST_RECORD + (unsigned)((size_t)count >> COST_BYTES_SHIFT);
        if (!checksum_add(receiver->compared_checksum, bytes, (size_t)count)) {
            return receiver_fail(receiver, "cannot compute a checksum: out of memory");
        }
    }
    return RECEIVER_MORE;
}
