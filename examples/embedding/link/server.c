/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "server.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct client {
    struct link *link;
    void (*serve)(struct link *link);
};

static size_t under_way;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t one_is_done = PTHREAD_COND_INITIALIZER;

_Noreturn void server_fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
    exit(1);
}

static void *serve_client(void *argument)
{
    struct client *client = argument;
    client->serve(client->link);
    link_close(client->link);
    free(client);
    pthread_mutex_lock(&lock);
    under_way--;
    pthread_cond_signal(&one_is_done);
    pthread_mutex_unlock(&lock);
    return NULL;
}

void server_run(const char *address, size_t clients, void (*serve)(struct link *link))
{
    char text[LINK_ADDRESS_MAX];
    struct link_listener *listener = link_listen(address, text);
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    if (listener == NULL) {
        server_fail("listen", link_error());
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("listening on %s\n", text);
    for (size_t come = 0; clients == 0 || come < clients; come++) {
        struct client *client = malloc(sizeof(*client));
        struct link *link = link_accept(listener);
        pthread_t thread;
        if (client == NULL || link == NULL) {
            server_fail("accept", client == NULL ? "no memory" : link_error());
        }
        printf("client over %s\n", link_over(link));
        *client = (struct client){ .link = link, .serve = serve };
        pthread_mutex_lock(&lock);
        under_way++;
        pthread_mutex_unlock(&lock);
        if (pthread_create(&thread, &detached, serve_client, client) != 0) {
            server_fail("thread", "none can be started");
        }
    }
    pthread_mutex_lock(&lock);
    while (under_way > 0) {
        pthread_cond_wait(&one_is_done, &lock);
    }
    pthread_mutex_unlock(&lock);
    link_unlisten(listener);
    pthread_attr_destroy(&detached);
}
