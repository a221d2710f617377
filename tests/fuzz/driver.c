/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Runs a fuzz target without libFuzzer: every file of the corpus, then pseudo-random mutations of
 * those files. One seed gives one sequence of inputs, on every machine. Prints TAP.
 *
 * usage: fuzz_X [--runs N | --seconds N] [--seed N] [--max-size BYTES] [--save FILE] [FILE|FOLDER ...]
 *
 * An input that kills the process, or takes more than a minute, is written to FILE (default: crash.bin) on
 * the way out; give it as the only FILE, with --runs 0, to run it again. */
#include "driver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    RUNS = 20000,
    MAX_SIZE = 4096,
    PATH_SIZE = 4096,
    MUTATIONS_MAX = 8,
    INPUT_SECONDS = 60, /* limit of one input; all but endless loops take milliseconds */
    LOOK_AT_CLOCK = 64, /* inputs between two looks */
};

struct input {
    uint8_t *data;
    size_t size;
};

struct corpus {
    struct input *inputs;
    size_t count;
    size_t max_size; /* longer files are cut for mutations, never when run unchanged */
};

struct options {
    uint64_t runs;
    uint64_t seconds; /* 0: limited by the number of runs */
    uint64_t seed;
    size_t max_size;
    const char *save_as;
};

/* The running input. Global, because the handlers below read it. */
static const uint8_t *running_data;
static size_t running_size;
static const char *running_save_as;

/* Async-signal-safe. */
static void save_running_input(void)
{
    if (running_data == NULL) {
        return;
    }
    int fd = open(running_save_as, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        return;
    }
    size_t written = 0;
    while (written < running_size) {
        ssize_t count = write(fd, running_data + written, running_size - written);
        if (count <= 0) {
            break;
        }
        written += (size_t)count;
    }
    (void)close(fd);
    running_data = NULL;
}

static void save_and_die(int number)
{
    save_running_input();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* A sanitizer ends the process without a signal; its run-time library calls back instead. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void catch_deaths(void)
{
    if (__sanitizer_set_death_callback != NULL) {
        __sanitizer_set_death_callback(save_running_input);
    }
    static const int deadly[] = { SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV };
    for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++) {
        struct sigaction before;
        /* An existing handler is the sanitizer's, which ends in the callback. */
        if (sigaction(deadly[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL) {
            (void)signal(deadly[i], save_and_die);
        }
    }
}

static void *must_allocate(size_t size)
{
    void *block = malloc(size == 0 ? 1 : size);
    if (block == NULL) {
        printf("Bail out! out of memory\n");
        exit(1);
    }
    return block;
}

/* The block is exactly as long as the input, so that a sanitizer sees any read past its end. */
static void run_input(const uint8_t *data, size_t size)
{
    uint8_t *exact = must_allocate(size);
    if (size > 0) {
        memcpy(exact, data, size);
    }
    running_size = size;
    running_data = exact;
    (void)alarm(INPUT_SECONDS);
    (void)LLVMFuzzerTestOneInput(exact, size);
    (void)alarm(0);
    running_data = NULL;
    free(exact);
}

/* SplitMix64 (Steele, Lea, Flood 2014): every seed is a good one. */
static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t random_below(uint64_t *state, size_t bound)
{
    return bound == 0 ? 0 : (size_t)(next_random(state) % bound);
}

static void insert_bytes(struct input *in, size_t max_size, size_t at, const uint8_t *bytes,
                         size_t count)
{
    if (count > max_size - in->size) {
        count = max_size - in->size;
    }
    memmove(in->data + at + count, in->data + at, in->size - at);
    for (size_t i = 0; i < count; i++) {
        in->data[at + i] = bytes[i];
    }
    in->size += count;
}

/* Writes values at the limits of lengths and counts, big-endian as on the wire. */
static void overwrite_with_edge(struct input *in, uint64_t *random)
{
    /* clang-format off */
    static const uint64_t edges[] = {
        0, 1, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0xffff, 0x10000, 0x7fffffff, 0x80000000,
        0xffffffff, UINT64_C(0x7fffffffffffffff), UINT64_C(0x8000000000000000), UINT64_MAX,
    };
    /* clang-format on */
    size_t width = (size_t)1 << random_below(random, 4);
    if (in->size < width) {
        return;
    }
    uint64_t edge = edges[random_below(random, sizeof(edges) / sizeof(edges[0]))];
    size_t at = random_below(random, in->size - width + 1);
    for (size_t i = 0; i < width; i++) {
        in->data[at + i] = (uint8_t)(edge >> (8 * (width - 1 - i)));
    }
}

/* in->data has room for max_size bytes. */
static void mutate_once(struct input *in, const struct corpus *corpus, uint64_t *random)
{
    size_t at = random_below(random, in->size + 1);
    size_t count = 1 + random_below(random, 32);
    bool at_a_byte = at < in->size;
    uint8_t bytes[32];
    switch (random_below(random, 8)) {
    case 0: /* flip a bit */
        if (at_a_byte) {
            in->data[at] ^= (uint8_t)(1U << random_below(random, 8));
        }
        break;
    case 1: /* any byte */
        if (at_a_byte) {
            in->data[at] = (uint8_t)next_random(random);
        }
        break;
    case 2:
        overwrite_with_edge(in, random);
        break;
    case 3: /* insert noise */
        for (size_t i = 0; i < count; i++) {
            bytes[i] = (uint8_t)next_random(random);
        }
        insert_bytes(in, corpus->max_size, at, bytes, count);
        break;
    case 4: /* delete */
        if (count > in->size - at) {
            count = in->size - at;
        }
        memmove(in->data + at, in->data + at + count, in->size - at - count);
        in->size -= count;
        break;
    case 5: /* repeat a piece elsewhere */
        if (count > in->size - at) {
            count = in->size - at;
        }
        memcpy(bytes, in->data + at, count);
        insert_bytes(in, corpus->max_size, random_below(random, in->size + 1), bytes, count);
        break;
    case 6: /* cut off */
        in->size = at;
        break;
    case 7: /* continue with the tail of another input */
        if (corpus->count > 0) {
            const struct input *other = &corpus->inputs[random_below(random, corpus->count)];
            if (at < other->size) {
                size_t end = other->size < corpus->max_size ? other->size : corpus->max_size;
                if (at < end) {
                    memcpy(in->data + at, other->data + at, end - at);
                    in->size = end;
                }
            }
        }
        break;
    }
}

static uint64_t now_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec;
}

/* Returns the number of inputs run. */
static uint64_t run_mutations(const struct corpus *corpus, const struct options *options)
{
    uint64_t until = now_seconds() + options->seconds;
    uint64_t run = 0;
    struct input mutant = { .data = must_allocate(corpus->max_size) };
    uint64_t random = options->seed;
    for (; run < options->runs; run++) {
        if (options->seconds != 0 && run % LOOK_AT_CLOCK == 0 && now_seconds() >= until) {
            break;
        }
        mutant.size = 0;
        if (corpus->count > 0) {
            const struct input *parent = &corpus->inputs[random_below(&random, corpus->count)];
            mutant.size = parent->size < corpus->max_size ? parent->size : corpus->max_size;
            memcpy(mutant.data, parent->data, mutant.size);
        }
        size_t mutations = 1 + random_below(&random, MUTATIONS_MAX);
        for (size_t i = 0; i < mutations; i++) {
            mutate_once(&mutant, corpus, &random);
        }
        run_input(mutant.data, mutant.size);
    }
    free(mutant.data);
    return run;
}

static bool corpus_add_file(struct corpus *corpus, const char *path)
{
    FILE *file = fopen(path, "rbe");
    struct stat info;
    if (file == NULL || fstat(fileno(file), &info) != 0) {
        if (file != NULL) {
            (void)fclose(file);
        }
        return false;
    }
    struct input in = { .data = must_allocate((size_t)info.st_size) };
    in.size = fread(in.data, 1, (size_t)info.st_size, file);
    (void)fclose(file);
    struct input *grown = realloc(corpus->inputs, (corpus->count + 1) * sizeof(*grown));
    if (grown == NULL) {
        free(in.data);
        return false;
    }
    corpus->inputs = grown;
    corpus->inputs[corpus->count] = in;
    corpus->count++;
    return true;
}

/* Adds a file, or the files directly in a folder, sorted by name. */
static bool corpus_add(struct corpus *corpus, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return false;
    }
    if (!S_ISDIR(info.st_mode)) {
        return corpus_add_file(corpus, path);
    }
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, alphasort);
    bool good = count >= 0;
    for (int i = 0; i < count; i++) {
        char file[PATH_SIZE];
        int length = snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name);
        if (length < 0 || (size_t)length >= sizeof(file) || stat(file, &info) != 0) {
            good = false;
        } else if (S_ISREG(info.st_mode)) {
            good = corpus_add_file(corpus, file) && good;
        }
        free(entries[i]);
    }
    free(entries);
    return good;
}

static void corpus_free(struct corpus *corpus)
{
    for (size_t i = 0; i < corpus->count; i++) {
        free(corpus->inputs[i].data);
    }
    free(corpus->inputs);
}

static bool parse_number(const char *text, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    uint64_t number = strtoull(text, &end, 0);
    if (errno != 0 || end == text || *end != '\0') {
        return false;
    }
    *out = number;
    return true;
}

/* Returns the index of the first argument that is no option, or -1. */
static int parse_options(int argc, char **argv, struct options *out)
{
    struct options options = {
        .runs = RUNS, .seed = 1, .max_size = MAX_SIZE, .save_as = "crash.bin"
    };
    int index = 1;
    while (index + 1 < argc && strncmp(argv[index], "--", 2) == 0) {
        const char *name = argv[index] + 2;
        const char *value = argv[index + 1];
        uint64_t number = 0;
        if (strcmp(name, "save") == 0) {
            options.save_as = value;
        } else if (!parse_number(value, &number)) {
            return -1;
        } else if (strcmp(name, "runs") == 0) {
            options.runs = number;
        } else if (strcmp(name, "seconds") == 0 && number > 0 && number <= UINT32_MAX) {
            options.seconds = number;
            options.runs = UINT64_MAX;
        } else if (strcmp(name, "seed") == 0) {
            options.seed = number;
        } else if (strcmp(name, "max-size") == 0 && number > 0 && number <= UINT32_MAX) {
            options.max_size = (size_t)number;
        } else {
            return -1;
        }
        index += 2;
    }
    if (index < argc && strncmp(argv[index], "--", 2) == 0) {
        return -1;
    }
    *out = options;
    return index;
}

int main(int argc, char **argv)
{
    struct options options;
    int first_path = parse_options(argc, argv, &options);
    if (first_path < 0) {
        (void)fprintf(
            stderr,
            "usage: %s [--runs N | --seconds N] [--seed N] [--max-size BYTES] [--save FILE] "
            "[FILE|FOLDER ...]\n",
            argv[0]);
        return 2;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    running_save_as = options.save_as;
    catch_deaths();

    struct corpus corpus = { .max_size = options.max_size };
    printf("1..2\n");
    bool read_all = true;
    for (int i = first_path; i < argc; i++) {
        if (!corpus_add(&corpus, argv[i])) {
            printf("# cannot read %s: %s\n", argv[i], strerror(errno));
            read_all = false;
        }
    }
    run_input(NULL, 0);
    for (size_t i = 0; i < corpus.count; i++) {
        run_input(corpus.inputs[i].data, corpus.inputs[i].size);
    }
    printf("%s 1 - the empty input and %zu inputs of the corpus\n", read_all ? "ok" : "not ok",
           corpus.count);

    uint64_t runs = run_mutations(&corpus, &options);
    printf("ok 2 - %" PRIu64 " mutations from seed %" PRIu64 "\n", runs, options.seed);
    corpus_free(&corpus);
    return read_all ? 0 : 1;
}
