/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What a program of MPI sees, whatever carries its bytes; libfabric_programs starts it.
 *
 *   peer_mpi OP SIZE SECONDS
 *     pingpong   half a round trip in us
 *     stream     bytes/s of messages, WINDOW under way
 *     allreduce  us of a sum over all ranks, SIZE bytes of doubles
 *     alltoall   us of an exchange, SIZE bytes for each rank
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { WINDOW = 16, ROUNDS_FIRST = 16 };

struct bench {
    int rank, ranks, size;
    char *out, *in;
};

static void fail(const char *what)
{
    (void)fprintf(stderr, "peer_mpi: %s\n", what);
    (void)MPI_Abort(MPI_COMM_WORLD, 1);
}

static void pingpong(struct bench *bench, long rounds)
{
    const int peer = 1 - bench->rank;
    for (long i = 0; i < rounds && bench->rank < 2; i++) {
        if (bench->rank == 0) {
            (void)MPI_Send(bench->out, bench->size, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
        }
        (void)MPI_Recv(bench->in, bench->size, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (bench->rank == 1) {
            (void)MPI_Send(bench->out, bench->size, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
        }
    }
}

static void stream(struct bench *bench, long rounds)
{
    MPI_Request requests[WINDOW];
    for (long i = 0; i < rounds && bench->rank < 2; i++) {
        for (int j = 0; j < WINDOW; j++) {
            if (bench->rank == 0) {
                (void)MPI_Isend(bench->out, bench->size, MPI_BYTE, 1, 2, MPI_COMM_WORLD,
                                &requests[j]);
            } else {
                (void)MPI_Irecv(bench->in, bench->size, MPI_BYTE, 0, 2, MPI_COMM_WORLD,
                                &requests[j]);
            }
        }
        (void)MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    }
}

static void allreduce(struct bench *bench, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        (void)MPI_Allreduce(bench->out, bench->in, bench->size / (int)sizeof(double), MPI_DOUBLE,
                            MPI_SUM, MPI_COMM_WORLD);
    }
}

static void alltoall(struct bench *bench, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        (void)MPI_Alltoall(bench->out, bench->size, MPI_BYTE, bench->in, bench->size, MPI_BYTE,
                           MPI_COMM_WORLD);
    }
}

/* Seconds of these rounds, the same on all ranks. */
static double time_of(struct bench *bench, void (*run)(struct bench *, long), long rounds)
{
    (void)MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime();
    run(bench, rounds);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    seconds = MPI_Wtime() - seconds;
    (void)MPI_Bcast(&seconds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return seconds;
}

static double cpu_seconds(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static int size_of(const char *text)
{
    char *end = NULL;
    const long size = strtol(text, &end, 10);
    const long factor = *end == 'K' ? 1024 : *end == 'M' ? 1024 * 1024 : 1;
    return (int)(size * factor);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct bench *, long);
    } ops[] = { { "pingpong", pingpong },
                { "stream", stream },
                { "allreduce", allreduce },
                { "alltoall", alltoall } };
    struct bench bench = { 0 };
    size_t at = 0;
    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &bench.ranks);
    if (argc != 4 || bench.ranks < 2) {
        fail("usage: mpirun -n RANKS peer_mpi pingpong|stream|allreduce|alltoall SIZE SECONDS");
    }
    while (at < sizeof(ops) / sizeof(ops[0]) && strcmp(argv[1], ops[at].name) != 0) {
        at++;
    }
    const double wanted = strtod(argv[3], NULL);
    bench.size = size_of(argv[2]);
    bench.out = calloc((size_t)bench.ranks, (size_t)bench.size);
    bench.in = calloc((size_t)bench.ranks, (size_t)bench.size);
    if (at == sizeof(ops) / sizeof(ops[0]) || bench.size <= 0 || bench.out == NULL ||
        bench.in == NULL) {
        fail("no such operation or size");
    }
    /* The warm-up tells how many rounds fill the time. */
    long rounds = ROUNDS_FIRST;
    double seconds = time_of(&bench, ops[at].run, rounds);
    while (seconds < wanted / 8) {
        rounds *= 2;
        seconds = time_of(&bench, ops[at].run, rounds);
    }
    rounds = (long)((double)rounds * wanted / seconds) + 1;
    const double before = cpu_seconds();
    seconds = time_of(&bench, ops[at].run, rounds);
    double used = cpu_seconds() - before;
    double all = 0;
    (void)MPI_Reduce(&used, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (bench.rank == 0) {
        const double each = seconds / (double)rounds;
        double value = each * 1e6;
        long operations = rounds;
        if (ops[at].run == pingpong) {
            value /= 2;
            operations *= 2;
        } else if (ops[at].run == stream) {
            value = (double)WINDOW * (double)bench.size / each;
            operations *= WINDOW;
        }
        (void)printf("{\"value\":%.6g,\"cpu_seconds\":%.4f,\"operations\":%ld,\"seconds\":%.4f}\n",
                     value, all, operations, seconds);
    }
    free(bench.out);
    free(bench.in);
    (void)MPI_Finalize();
    return 0;
}
