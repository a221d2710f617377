/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Remote calls by frames: the server answers each frame with its bytes in upper case. The program is
 * the same over sockets and over rdmux streams, see ../link/link.h.
 */
#include "../link/server.h"
#include "frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] = "usage: rpc serve ADDRESS [CLIENTS]    until CLIENTS have left, or for "
                            "ever\n"
                            "       rpc call ADDRESS FILE...       prints the files in upper case\n"
                            "ADDRESS is HOST:PORT; PORT 0: a free port.\n";

static void serve(struct link *link)
{
    struct frame frame = { 0 };
    int result;
    while ((result = frame_receive(link, &frame)) == 1) {
        for (size_t i = 0; i < frame.length; i++) {
            uint8_t byte = frame.bytes[i];
            frame.bytes[i] = byte >= 'a' && byte <= 'z' ? (uint8_t)(byte - 'a' + 'A') : byte;
        }
        if (!frame_send(link, frame.bytes, frame.length)) {
            frame.why = link_error();
            result = -1;
            break;
        }
    }
    if (result < 0) {
        fprintf(stderr, "rpc: a client has broken off: %s\n", frame.why);
    }
    free(frame.bytes);
}

static void read_file(const char *name, struct frame *out)
{
    FILE *file = fopen(name, "rb");
    if (out->bytes == NULL) {
        out->bytes = malloc(FRAME_MAX + 1);
    }
    if (file == NULL || out->bytes == NULL) {
        server_fail(name, "it cannot be read");
    }
    out->length = fread(out->bytes, 1, FRAME_MAX + 1, file);
    if (ferror(file) || out->length > FRAME_MAX) {
        server_fail(name, "it cannot be read, or is longer than a frame may be");
    }
    fclose(file);
}

static void call(const char *address, char **files)
{
    struct frame request = { 0 }, answer = { 0 };
    struct link *link = link_connect(address);
    size_t calls = 0;
    if (link == NULL) {
        server_fail("connect", link_error());
    }
    for (; files[calls] != NULL; calls++) {
        read_file(files[calls], &request);
        if (!frame_send(link, request.bytes, request.length)) {
            server_fail("call", link_error());
        }
        answer.why = "the server has gone";
        if (frame_receive(link, &answer) != 1) {
            server_fail("answer", answer.why);
        }
        fwrite(answer.bytes, 1, answer.length, stdout);
    }
    fprintf(stderr, "%zu calls over %s\n", calls, link_over(link));
    link_close(link);
    free(request.bytes);
    free(answer.bytes);
}

int main(int argc, char **argv)
{
    bool helps = argc == 2 && strcmp(argv[1], "--help") == 0;
    bool serves = (argc == 3 || argc == 4) && strcmp(argv[1], "serve") == 0;
    size_t clients = 0;
    char rest;
    if (!(serves || (argc > 3 && strcmp(argv[1], "call") == 0)) ||
        (serves && argc == 4 && sscanf(argv[3], "%zu%c", &clients, &rest) != 1)) {
        fputs(usage, helps ? stdout : stderr);
        return helps ? 0 : 2;
    }
    if (!link_start()) {
        server_fail("start", link_error());
    }
    if (serves) {
        server_run(argv[2], clients, serve);
    } else {
        call(argv[2], argv + 3);
    }
    link_stop();
    return fflush(stdout) == 0 ? 0 : 1;
}
