/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Captures: their settings and limits, what they hide, and that both sides of a shared socket
 * capture the same frames. tests/tools/wireshark.sh has other readers read them. */
#include "tests/unit/api_pair.h"

#include "api/base/bytes.h"
#include "api/base/capture.h"
#include "negotiation/control_capture.h"
#include "negotiation/message.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum {
    SHOTS_MAX = 128,
    FILE_BYTES_MAX = 1 << 20,
    SETTING_MAX = 256,
    BLOCK_SECTION = 0x0a0d0d0a,
    BLOCK_INTERFACE = 1,
    BLOCK_PACKET = 6,
    PACKET_AT_SIZES = 20,
    PACKET_AT_BYTES = 28,
    FLAGS_BEHIND = 16, /* bytes from the option with the flags to the block's end */
};

/* A frame in a capture. */
struct shot {
    const uint8_t *bytes;
    uint32_t kept;
    uint32_t length;
    bool is_out;
};

static char folder[] = "/tmp/rdmux-capture.XXXXXX";
static uint8_t contents[2][FILE_BYTES_MAX];

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static const char *file_of(const char *name)
{
    static char path[SETTING_MAX];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static size_t read_whole(const char *name, uint8_t *out)
{
    int fd = open(file_of(name), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t size = read(fd, out, FILE_BYTES_MAX);
    assert_in_range(size, 1, FILE_BYTES_MAX - 1);
    close(fd);
    return (size_t)size;
}

/* Skips the tags before a frame. */
static const uint8_t *skip_tags(const uint8_t *at)
{
    while (rdmux_load_be16(at) != 0) {
        at += 4 + rdmux_load_be16(at + 2);
    }
    return at + 4;
}

/* Reads a file's frames, and removes the file. Fails the test if a block is not whole. */
static size_t read_shots(const char *name, uint8_t *bytes, struct shot shots[SHOTS_MAX],
                         size_t *sections)
{
    const size_t size = read_whole(name, bytes);
    size_t count = 0;
    *sections = 0;
    for (size_t at = 0; at < size;) {
        const uint8_t *block = bytes + at;
        assert_true(size - at >= 12);
        const uint32_t type = rdmux_load_host32(block);
        const uint32_t length = rdmux_load_host32(block + 4);
        assert_true(length >= 12 && length % 4 == 0 && length <= size - at);
        assert_int_equal(rdmux_load_host32(block + length - 4), length);
        *sections += type == (uint32_t)BLOCK_SECTION;
        if (type == BLOCK_PACKET) {
            const uint32_t kept = rdmux_load_host32(block + PACKET_AT_SIZES);
            const uint32_t whole = rdmux_load_host32(block + PACKET_AT_SIZES + 4);
            const uint8_t *frame = skip_tags(block + PACKET_AT_BYTES);
            const uint32_t tags = (uint32_t)(frame - (block + PACKET_AT_BYTES));
            assert_in_range(count, 0, SHOTS_MAX - 1);
            shots[count++] = (struct shot){
                .bytes = frame,
                .kept = kept - tags,
                .length = whole - tags,
                .is_out = rdmux_load_host32(block + length - FLAGS_BEHIND + 4) == 2,
            };
        } else {
            assert_true(type == (uint32_t)BLOCK_SECTION || type == BLOCK_INTERFACE);
        }
        at += length;
    }
    assert_int_equal(unlink(file_of(name)), 0);
    return count;
}

static enum rdmux_status open_capturing(const char *words, const char *name, struct logbook *book,
                                        struct rdmux_fabric **out)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    char setting[SETTING_MAX];
    (void)snprintf(setting, sizeof(setting), "%s%s", words, file_of(name));
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.capture = setting;
    attr.paths = "tcp";
    if (book != NULL) {
        attr.log = logbook_write;
        attr.log_user = book;
        attr.log_level = RDMUX_LOG_WARN;
    }
    *out = NULL;
    return rdmux_fabric_open(&attr, out);
}

/* ------------------------------------------------------------------------------------- settings */

static void words_of_a_setting_are_understood(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        struct rdmux_capture_options options;
    } cases[] = {
        { "", { .snap = RDMUX_CAPTURE_SNAP } },
        { "snap=0:", { .snap = 0 } },
        { "secrets:", { .snap = RDMUX_CAPTURE_SNAP, .has_secrets = true } },
        { "max=7,decrypted,snap=65536:", { .snap = 65536, .is_decrypted = true } },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct rdmux_fabric *fabric;
        struct stat info;
        CHECK_OK(open_capturing(cases[i].words, "words", NULL, &fabric));
        const struct rdmux_capture_options *options = rdmux_capture_of(fabric);
        assert_int_equal(options->snap, cases[i].options.snap);
        assert_int_equal(options->has_secrets, cases[i].options.has_secrets);
        assert_int_equal(options->is_decrypted, cases[i].options.is_decrypted);
        CHECK_OK(rdmux_fabric_close(fabric));
        assert_int_equal(stat(file_of("words"), &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
        assert_int_equal(unlink(file_of("words")), 0);
    }
}

static void a_wrong_setting_opens_no_fabric(void **state)
{
    (void)state;
    static const char *const words[] = { "snap=:",  "snap=65537:", "snap=-1:",  "max=0:",
                                         "max=1x:", "secret:",     "secrets,:", ":" };
    struct rdmux_fabric *fabric;
    for (size_t i = 0; i < RDMUX_COUNT_OF(words); i++) {
        CHECK_STATUS(open_capturing(words[i], "none", NULL, &fabric), RDMUX_INVALID);
        assert_non_null(strstr(rdmux_last_error(), "[WORD,...:]FILE"));
        assert_int_equal(access(file_of("none"), F_OK), -1);
    }
    CHECK_STATUS(open_capturing("", "no/folder", NULL, &fabric), RDMUX_IO);
    assert_non_null(strstr(rdmux_last_error(), "no/folder"));
}

static void a_file_that_is_no_capture_is_left_as_it_is(void **state)
{
    (void)state;
    static const char *const texts[] = { "abc", "a letter to a friend" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(texts); i++) {
        struct rdmux_fabric *fabric;
        char kept[64] = "";
        FILE *file = fopen(file_of("letter"), "w");
        assert_non_null(file);
        assert_true(fputs(texts[i], file) >= 0);
        assert_int_equal(fclose(file), 0);

        CHECK_STATUS(open_capturing("", "letter", NULL, &fabric), RDMUX_INVALID);

        file = fopen(file_of("letter"), "r");
        assert_non_null(file);
        assert_non_null(fgets(kept, sizeof(kept), file));
        assert_int_equal(fclose(file), 0);
        assert_string_equal(kept, texts[i]);
        assert_int_equal(unlink(file_of("letter")), 0);
    }
}

static void the_environment_names_a_file_unless_the_program_does(void **state)
{
    (void)state;
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric;
    char program[SETTING_MAX];
    assert_int_equal(setenv("RDMUX_CAPTURE", file_of("environment"), 1), 0);
    (void)snprintf(program, sizeof(program), "%s", file_of("program"));
    attr.flags = RDMUX_FABRIC_NO_DEFAULT_PLUGINS;

    CHECK_OK(rdmux_fabric_open(&attr, &fabric));
    CHECK_OK(rdmux_fabric_close(fabric));
    assert_int_equal(unlink(file_of("environment")), 0);

    attr.capture = program;
    CHECK_OK(rdmux_fabric_open(&attr, &fabric));
    CHECK_OK(rdmux_fabric_close(fabric));
    assert_int_equal(unlink(file_of("program")), 0);
    assert_int_equal(access(file_of("environment"), F_OK), -1);

    attr.capture = NULL;
    attr.flags |= RDMUX_FABRIC_IGNORE_ENVIRONMENT;
    CHECK_OK(rdmux_fabric_open(&attr, &fabric));
    assert_null(rdmux_capture_of(fabric));
    CHECK_OK(rdmux_fabric_close(fabric));
    assert_int_equal(access(file_of("environment"), F_OK), -1);

    assert_int_equal(setenv("RDMUX_CAPTURE", "all:file", 1), 0);
    attr.flags = RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    CHECK_STATUS(rdmux_fabric_open(&attr, &fabric), RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), "RDMUX_CAPTURE \"all:file\""));
    assert_int_equal(unsetenv("RDMUX_CAPTURE"), 0);
}

static void a_failed_write_ends_the_capture_and_nothing_else(void **state)
{
    (void)state;
    struct logbook book = LOGBOOK_INIT;
    struct rdmux_fabric *fabric;
    struct rlimit before;
    const uint8_t heartbeat[8] = { RDMUX_FRAME_HEARTBEAT };
    CHECK_OK(open_capturing("", "limited", &book, &fabric));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = { .rlim_cur = 4096, .rlim_max = before.rlim_max };

    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 100; i++) {
        errno = ENOENT;
        rdmux_capture_control(fabric, -1, RDMUX_CAPTURE_OUT, heartbeat, sizeof(heartbeat), false);
        assert_int_equal(errno, ENOENT);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);

    assert_int_equal(logbook_count(&book, "its capture ends"), 1);
    CHECK_OK(rdmux_fabric_close(fabric));
    struct stat info;
    assert_int_equal(stat(file_of("limited"), &info), 0);
    assert_in_range(info.st_size, 1, 4096);
    assert_int_equal(unlink(file_of("limited")), 0);
}

/* ------------------------------------------------------------------------------ what is hidden */

static void what_an_offer_hides_is_hidden_in_a_broken_one(void **state)
{
    (void)state;
    struct rdmux_fabric *fabric;
    struct shot shots[SHOTS_MAX];
    size_t sections;
    uint8_t offer[] = { RDMUX_FRAME_OFFER,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0,
                        32, /* the header */
                        0,
                        12,
                        0,
                        6,
                        1,
                        2,
                        3,
                        4,
                        5,
                        6, /* private data */
                        0,
                        15,
                        0,
                        4,
                        7,
                        7,
                        7,
                        7, /* a secret, too short */
                        0,
                        2,
                        0,
                        99,
                        9,
                        9,
                        9,
                        9,
                        9,
                        9, /* longer than the frame */
                        0,
                        0,
                        0,
                        0 };
    CHECK_OK(open_capturing("snap=2:", "offer", NULL, &fabric));

    rdmux_capture_control(fabric, -1, RDMUX_CAPTURE_IN, offer, sizeof(offer), false);
    rdmux_capture_control(fabric, -1, RDMUX_CAPTURE_IN, offer, sizeof(offer), true);

    CHECK_OK(rdmux_fabric_close(fabric));
    assert_int_equal(read_shots("offer", contents[0], shots, &sections), 1); /* not the secured */
    assert_int_equal(shots[0].kept, sizeof(offer));
    assert_false(shots[0].is_out);
    memset(offer + 14, 0, 4);
    memset(offer + 22, 0, 4);
    memset(offer + 30, 0, sizeof(offer) - 30);
    assert_memory_equal(shots[0].bytes, offer, sizeof(offer));
}

static void bytes_that_are_no_frame_are_not_captured(void **state)
{
    (void)state;
    struct rdmux_fabric *fabric;
    struct shot shots[SHOTS_MAX];
    size_t sections;
    const uint8_t cut[12] = { RDMUX_FRAME_END, 0, 0, 0, 0, 0, 0, 5 };
    const uint8_t endless[8] = { RDMUX_FRAME_END, 0, 0, 0, 255, 255, 255, 255 };
    CHECK_OK(open_capturing("", "cut", NULL, &fabric));
    rdmux_capture_control(fabric, -1, RDMUX_CAPTURE_IN, cut, sizeof(cut), false);
    rdmux_capture_control(fabric, -1, RDMUX_CAPTURE_IN, endless, sizeof(endless), false);
    rdmux_capture_control(fabric, -1, RDMUX_CAPTURE_IN, "R", 1, false);
    CHECK_OK(rdmux_fabric_close(fabric));
    assert_int_equal(read_shots("cut", contents[0], shots, &sections), 0);
    assert_int_equal(sections, 1);
}

/* ----------------------------------------------------------------------------- a shared socket */

struct side {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    int socket;
    enum rdmux_role role;
    enum rdmux_status status;
};

static void *adopt(void *argument)
{
    struct side *side = argument;
    side->status = rdmux_adopt(side->fabric, side->cq, side->socket, side->role, NULL, PATIENT_MS,
                               &side->ep);
    return NULL;
}

/* Frames in one direction that are of the control channel, or not. */
static size_t pick(const struct shot *shots, size_t count, bool is_out, bool is_control,
                   const struct shot *out[SHOTS_MAX])
{
    size_t picked = 0;
    for (size_t i = 0; i < count; i++) {
        const bool control = shots[i].bytes[0] < 0x40 || shots[i].bytes[0] == 'R';
        if (shots[i].is_out == is_out && control == is_control &&
            shots[i].bytes[0] != RDMUX_FRAME_HEARTBEAT) {
            out[picked++] = &shots[i];
        }
    }
    return picked;
}

static void both_sides_of_a_shared_socket_capture_the_same_frames(void **state)
{
    (void)state;
    static const char *const names[] = { "side0", "side1" };
    static uint8_t message[5000];
    static uint8_t received[sizeof(message)];
    static struct shot shots[2][SHOTS_MAX];
    struct side sides[2];
    int ends[2];
    size_t counts[2];
    size_t sections;
    pthread_t thread;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    for (int i = 0; i < 2; i++) {
        sides[i] = (struct side){ .socket = ends[i],
                                  .role = i == 0 ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT };
        CHECK_OK(open_capturing("secrets,snap=65536:", names[i], NULL, &sides[i].fabric));
        sides[i].cq = create_cq(sides[i].fabric);
    }
    assert_int_equal(pthread_create(&thread, NULL, adopt, &sides[1]), 0);
    (void)adopt(&sides[0]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    CHECK_OK(sides[0].status);
    CHECK_OK(sides[1].status);
    memset(message, 0x77, sizeof(message));

    CHECK_OK(rdmux_recv(sides[1].ep, received, sizeof(received), NULL, NULL));
    CHECK_OK(rdmux_send(sides[0].ep, message, sizeof(message), NULL, NULL, 0));
    (void)expect_entry(sides[1].cq, RDMUX_WC_RECV, RDMUX_OK);
    (void)expect_entry(sides[0].cq, RDMUX_WC_SEND, RDMUX_OK);
    CHECK_OK(rdmux_ep_close(sides[0].ep));
    (void)expect_entry(sides[1].cq, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    CHECK_OK(rdmux_ep_close(sides[1].ep));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rdmux_cq_destroy(sides[i].cq));
        CHECK_OK(rdmux_fabric_close(sides[i].fabric));
        counts[i] = read_shots(names[i], contents[i], shots[i], &sections);
        assert_int_equal(sections, 1);
    }

    for (int is_control = 0; is_control < 2; is_control++) {
        const struct shot *sent[SHOTS_MAX];
        const struct shot *came[SHOTS_MAX];
        const size_t sent_count = pick(shots[0], counts[0], true, is_control != 0, sent);
        const size_t came_count = pick(shots[1], counts[1], false, is_control != 0, came);
        assert_int_equal(sent_count, came_count);
        assert_true(sent_count >= (is_control ? 6 : 1));
        for (size_t i = 0; i < sent_count; i++) {
            assert_int_equal(sent[i]->kept, sent[i]->length);
            assert_int_equal(sent[i]->kept, came[i]->kept);
            assert_memory_equal(sent[i]->bytes, came[i]->bytes, sent[i]->kept);
        }
        if (!is_control) {
            bool is_there = false;
            for (size_t i = 0; i < sent_count; i++) {
                is_there = is_there || (sent[i]->length > sizeof(message) &&
                                        memcmp(sent[i]->bytes + sent[i]->kept - sizeof(message),
                                               message, sizeof(message)) == 0);
            }
            assert_true(is_there);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_a_setting_are_understood),
        cmocka_unit_test(a_wrong_setting_opens_no_fabric),
        cmocka_unit_test(a_file_that_is_no_capture_is_left_as_it_is),
        cmocka_unit_test(the_environment_names_a_file_unless_the_program_does),
        cmocka_unit_test(a_failed_write_ends_the_capture_and_nothing_else),
        cmocka_unit_test(what_an_offer_hides_is_hidden_in_a_broken_one),
        cmocka_unit_test(bytes_that_are_no_frame_are_not_captured),
        cmocka_unit_test(both_sides_of_a_shared_socket_capture_the_same_frames),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
