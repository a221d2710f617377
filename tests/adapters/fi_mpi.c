/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A program of MPI that checks every byte: messages of all protocols of ofi_rxm, collectives and
 * windows, among any number of ranks.
 *
 *   fi_mpi [quick]
 *
 * Rank 0 prints "ok CASE", and at last "bytes N", what the ranks have received of each other at
 * least. A wrong byte ends all ranks. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_MAX_BYTES = 4 << 20, ADDITIONS = 100 };

static int rank, ranks;
static int is_quick;
static long long received; /* bytes by this rank; of collectives what no algorithm avoids */

static void require(int holds, const char *what)
{
    if (!holds) {
        (void)fprintf(stderr, "rank %d: %s\n", rank, what);
        (void)MPI_Abort(MPI_COMM_WORLD, 1);
        exit(1);
    }
}

static void fill(unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)(i * 7 + i / 251 + seed);
    }
}

static int holds(const unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != (unsigned char)(i * 7 + i / 251 + seed)) {
            return 0;
        }
    }
    return 1;
}

static void passed(const char *name)
{
    (void)MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        (void)printf("ok %s\n", name);
        (void)fflush(stdout);
    }
}

/* Each rank sends to the next one; sizes on both sides of every limit. */
static void ring(void)
{
    static const int sizes[] = { 0,     1,     8,      64,     200,     1024,    16000,  16384,
                                 16385, 65536, 131072, 131073, 1000003, 1 << 20, 4 << 20 };
    unsigned char *out = malloc(SIZE_MAX_BYTES);
    unsigned char *in = malloc(SIZE_MAX_BYTES);
    const int next = (rank + 1) % ranks;
    const int previous = (rank + ranks - 1) % ranks;
    require(out != NULL && in != NULL, "no memory");
    for (unsigned round = 0; round < (is_quick ? 1 : 5); round++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            const size_t size = (size_t)sizes[i];
            MPI_Status status;
            int got = -1;
            fill(out, size, (unsigned)rank + round);
            memset(in, 0, size);
            (void)MPI_Sendrecv(out, sizes[i], MPI_BYTE, next, (int)i, in, sizes[i], MPI_BYTE,
                               previous, (int)i, MPI_COMM_WORLD, &status);
            (void)MPI_Get_count(&status, MPI_BYTE, &got);
            require(got == sizes[i] && holds(in, size, (unsigned)previous + round),
                    "a message of the ring is wrong");
            received += sizes[i];
        }
    }
    free(out);
    free(in);
    passed("ring");
}

/* Buffers that are new each time, and unmapped after use: the library may keep nothing of them. */
static void fresh_buffers(void)
{
    const int next = (rank + 1) % ranks;
    const int previous = (rank + ranks - 1) % ranks;
    for (unsigned round = 0; round < (is_quick ? 10 : 30); round++) {
        const size_t size = 600000 + 4096 * (round % 7);
        unsigned char *out = malloc(size);
        unsigned char *in = malloc(size);
        require(out != NULL && in != NULL, "no memory");
        fill(out, size, (unsigned)rank + round);
        (void)MPI_Sendrecv(out, (int)size, MPI_BYTE, next, 5, in, (int)size, MPI_BYTE, previous, 5,
                           MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        require(holds(in, size, (unsigned)previous + round), "a message of a new buffer is wrong");
        received += (long long)size;
        free(out);
        free(in);
    }
    passed("fresh buffers");
}

/* Many messages at once, unexpected ones among them, and matched by tag in reverse order. */
static void many(void)
{
    enum { MESSAGES = 200, SIZE = 3000 };
    unsigned char *out = malloc((size_t)MESSAGES * SIZE);
    unsigned char *in = malloc((size_t)MESSAGES * SIZE);
    MPI_Request requests[2 * MESSAGES];
    const int next = (rank + 1) % ranks;
    const int previous = (rank + ranks - 1) % ranks;
    require(out != NULL && in != NULL, "no memory");
    for (int i = 0; i < MESSAGES; i++) {
        fill(out + (size_t)i * SIZE, SIZE, (unsigned)(rank * 3 + i));
        (void)MPI_Isend(out + (size_t)i * SIZE, SIZE, MPI_BYTE, next, i, MPI_COMM_WORLD,
                        &requests[i]);
    }
    for (int i = MESSAGES - 1; i >= 0; i--) {
        (void)MPI_Irecv(in + (size_t)i * SIZE, SIZE, MPI_BYTE, previous, i, MPI_COMM_WORLD,
                        &requests[MESSAGES + i]);
    }
    (void)MPI_Waitall(2 * MESSAGES, requests, MPI_STATUSES_IGNORE);
    received += (long long)MESSAGES * SIZE;
    for (int i = 0; i < MESSAGES; i++) {
        require(holds(in + (size_t)i * SIZE, SIZE, (unsigned)(previous * 3 + i)),
                "one of many messages is wrong");
    }
    free(out);
    free(in);
    passed("many");
}

static void collectives(void)
{
    enum { WORDS = 60000 };
    int64_t *out = malloc(sizeof(int64_t) * WORDS * (size_t)ranks);
    int64_t *in = malloc(sizeof(int64_t) * WORDS * (size_t)ranks);
    require(out != NULL && in != NULL, "no memory");
    for (int words = 1; words <= WORDS; words = words == 1 ? 300 : words * 200) {
        for (int i = 0; i < words; i++) {
            out[i] = rank + i;
        }
        (void)MPI_Allreduce(out, in, words, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < words; i++) {
            require(in[i] == (int64_t)i * ranks + (int64_t)ranks * (ranks - 1) / 2,
                    "allreduce is wrong");
        }
        (void)MPI_Bcast(out, words, MPI_INT64_T, ranks - 1, MPI_COMM_WORLD);
        require(out[words - 1] == ranks - 1 + words - 1, "bcast is wrong");
        for (int i = 0; i < words * ranks; i++) {
            out[i] = (int64_t)rank << 32 | i;
        }
        (void)MPI_Alltoall(out, words, MPI_INT64_T, in, words, MPI_INT64_T, MPI_COMM_WORLD);
        for (int i = 0; i < words * ranks; i++) {
            require(in[i] == ((int64_t)(i / words) << 32 | (rank * words + i % words)),
                    "alltoall is wrong");
        }
        (void)MPI_Allgather(out, words, MPI_INT64_T, in, words, MPI_INT64_T, MPI_COMM_WORLD);
        for (int i = 0; i < words * ranks; i++) {
            require(in[i] == ((int64_t)(i / words) << 32 | i % words), "allgather is wrong");
        }
        received += 8LL * words * (ranks - 1) * 2;
    }
    free(out);
    free(in);
    passed("collectives");
}

static void windows(void)
{
    const int size = is_quick ? 1 << 20 : 8 << 20;
    unsigned char *memory = NULL;
    unsigned char *bytes = malloc((size_t)size);
    MPI_Win window;
    const int next = (rank + 1) % ranks;
    const int previous = (rank + ranks - 1) % ranks;
    (void)MPI_Win_allocate(size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    require(bytes != NULL && memory != NULL, "no memory");
    fill(bytes, (size_t)size, (unsigned)rank);
    (void)MPI_Win_fence(0, window);
    (void)MPI_Put(bytes, size, MPI_BYTE, next, 0, size, MPI_BYTE, window);
    (void)MPI_Win_fence(0, window);
    require(holds(memory, (size_t)size, (unsigned)previous), "a put is wrong");
    memset(bytes, 0, (size_t)size);
    (void)MPI_Get(bytes, size, MPI_BYTE, next, 0, size, MPI_BYTE, window);
    (void)MPI_Win_fence(0, window);
    require(holds(bytes, (size_t)size, (unsigned)rank), "a get is wrong");
    memset(memory, 0, 16);
    (void)MPI_Win_fence(0, window);
    const int64_t one = 1;
    int64_t old = 0;
    for (int i = 0; i < ADDITIONS; i++) {
        (void)MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        (void)MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 0, MPI_SUM, window);
        (void)MPI_Win_unlock(0, window);
    }
    (void)MPI_Win_fence(0, window);
    if (rank == 0) {
        int64_t sum = 0;
        memcpy(&sum, memory, sizeof(sum));
        require(sum == (int64_t)ranks * (ADDITIONS), "the sum of an accumulation is wrong");
    }
    received += 2LL * size;
    (void)MPI_Win_free(&window);
    free(bytes);
    passed("windows");
}

int main(int argc, char **argv)
{
    is_quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    ring();
    fresh_buffers();
    many();
    collectives();
    windows();
    long long all = 0;
    (void)MPI_Reduce(&received, &all, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        (void)printf("bytes %lld\n", all);
    }
    (void)MPI_Finalize();
    return 0;
}
