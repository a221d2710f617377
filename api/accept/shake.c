/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The computation of the TLS handshakes of pending connections. */
#include "api/accept/shake.h"

#include "api/accept/turns.h"
#include "api/core/fabric.h"
#include "api/loop/exit.h"
#include "api/loop/service.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct rdmux_shakes {
    struct rdmux_fabric *fabric;
    /* guards the members below, sources, and handshakes that are not idle; order: core/fabric.h */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rdmux_turns turns;
    bool stop;
    bool runs; /* the thread runs */
    pthread_t thread;
};

void rdmux_shake_source_init(struct rdmux_shake_source *source)
{
    rdmux_turn_init(&source->turn);
    rdmux_list_init(&source->steps);
}

static uint64_t processor_ns(void)
{
    struct timespec now = { 0 };
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static bool shake_state_may_follow(enum rdmux_shake_state before, enum rdmux_shake_state next)
{
    switch (next) {
    case RDMUX_SHAKE_IDLE:
    case RDMUX_SHAKE_ABANDONED:
        return before == RDMUX_SHAKE_RUNNING;
    case RDMUX_SHAKE_QUEUED:
        return before == RDMUX_SHAKE_IDLE;
    case RDMUX_SHAKE_RUNNING:
        return before == RDMUX_SHAKE_QUEUED;
    }
    return false;
}

/* The only writer of the state. lock is held. */
static void set_shake_state(struct rdmux_shake *shake, enum rdmux_shake_state state)
{
    bool allowed = shake_state_may_follow((enum rdmux_shake_state)atomic_load(&shake->state), state);
    assert(allowed);
    (void)allowed;
    atomic_store(&shake->state, state);
}

static void destroy_shakes(struct rdmux_shake *shake)
{
    rdmux_tls_destroy(shake->tls);
    rdmux_release(shake->fabric, shake);
}

/* ---------------------------------------------------------------------------------------- steps */

/* Called by the owner of the handshake. lock is not held, as the step may take long. */
static void do_step(struct rdmux_shake *shake)
{
    enum rdmux_status status = RDMUX_OK;
    if (shake->tls == NULL) {
        status = rdmux_tls_create(shake->fabric->auth, RDMUX_ROLE_ACCEPT, shake->socket, NULL,
                                  &shake->tls);
        if (status == RDMUX_OK) {
            rdmux_tls_greeted(shake->tls, shake->hello);
        }
    }
    if (status == RDMUX_OK) {
        status = rdmux_tls_step(shake->tls);
    }
    shake->status = status;
    if (status != RDMUX_OK && status != RDMUX_AGAIN) {
        snprintf(shake->text, sizeof(shake->text), "%s", rdmux_last_error());
    }
}

/* Takes the next step of the source that is next, and marks it running. NULL: none. lock is
 * held. */
static struct rdmux_shake *take_next(struct rdmux_shakes *shakes)
{
    struct rdmux_turn *turn = rdmux_turns_next(&shakes->turns);
    if (turn == NULL) {
        return NULL;
    }
    struct rdmux_shake_source *source = RDMUX_CONTAINER(turn, struct rdmux_shake_source, turn);
    struct rdmux_shake *shake = RDMUX_CONTAINER(source->steps.next, struct rdmux_shake, link);
    rdmux_list_remove(&shake->link);
    if (rdmux_list_empty(&source->steps)) {
        rdmux_turns_leave(turn);
    }
    set_shake_state(shake, RDMUX_SHAKE_RUNNING);
    return shake;
}

/* Does a step. lock is held, and released meanwhile. */
static void run_shakes(struct rdmux_shakes *shakes, struct rdmux_shake *shake)
{
    pthread_mutex_unlock(&shakes->lock);
    uint64_t began_ns = processor_ns();
    do_step(shake);
    uint64_t used_ns = processor_ns() - began_ns;
    pthread_mutex_lock(&shakes->lock);
    if (atomic_load(&shake->state) == RDMUX_SHAKE_ABANDONED) { /* its source may be freed */
        int socket = shake->socket;
        destroy_shakes(shake);
        close(socket);
        return;
    }
    rdmux_turns_charge(&shakes->turns, &shake->source->turn, used_ns);
    set_shake_state(shake, RDMUX_SHAKE_IDLE);
    rdmux_service_call(shakes->fabric, shake->watch);
}

static void *shakes_main(void *argument)
{
    struct rdmux_shakes *shakes = argument;
    pthread_mutex_lock(&shakes->lock);
    while (!shakes->stop) {
        const bool has_turn = rdmux_exit_begin_turn();
        struct rdmux_shake *shake = has_turn ? take_next(shakes) : NULL;
        if (shake != NULL) {
            run_shakes(shakes, shake);
        }
        if (has_turn) {
            rdmux_exit_end_turn();
        }
        if (shake == NULL) { /* until another one comes, or, while the process ends, until stop */
            pthread_cond_wait(&shakes->changed, &shakes->lock);
        }
    }
    pthread_mutex_unlock(&shakes->lock);
    return NULL;
}

void rdmux_shakes_step(struct rdmux_fabric *fabric)
{
    struct rdmux_shakes *shakes = fabric->shakes;
    if (shakes == NULL || shakes->runs) {
        return;
    }
    pthread_mutex_lock(&shakes->lock);
    struct rdmux_shake *shake = take_next(shakes);
    if (shake != NULL) {
        /* Its rdmux_service_call() makes the service run again for other steps. */
        run_shakes(shakes, shake);
    }
    pthread_mutex_unlock(&shakes->lock);
}

/* ----------------------------------------------------------------------------------------- life */

/* NULL: no memory. If no thread can be started, the service does the steps. */
static struct rdmux_shakes *get_shakes(struct rdmux_fabric *fabric)
{
    if (fabric->shakes != NULL) {
        return fabric->shakes;
    }
    struct rdmux_shakes *shakes = rdmux_allocate(fabric, sizeof(*shakes));
    if (shakes == NULL) {
        return NULL;
    }
    shakes->fabric = fabric;
    pthread_mutex_init(&shakes->lock, NULL);
    pthread_cond_init(&shakes->changed, NULL);
    rdmux_turns_init(&shakes->turns);
    fabric->shakes = shakes;
    if (!rdmux_fabric_is_manual(fabric) &&
        (fabric->hooks.flags & RDMUX_FABRIC_NO_WORKER_THREAD) == 0) {
        shakes->runs = rdmux_thread_start(fabric, &shakes->thread, shakes_main, shakes,
                                          "rdmux-tls") == RDMUX_OK;
        if (!shakes->runs) {
            rdmux_log(fabric, RDMUX_LOG_WARN,
                      "listener: the service thread computes TLS handshakes: %s",
                      rdmux_last_error());
        }
    }
    return shakes;
}

void rdmux_shakes_stop(struct rdmux_fabric *fabric)
{
    struct rdmux_shakes *shakes = fabric->shakes;
    if (shakes == NULL) {
        return;
    }
    if (shakes->runs) {
        pthread_mutex_lock(&shakes->lock);
        shakes->stop = true;
        pthread_cond_signal(&shakes->changed);
        pthread_mutex_unlock(&shakes->lock);
        pthread_join(shakes->thread, NULL);
    }
    assert(rdmux_list_empty(&shakes->turns.waiting));
    pthread_mutex_destroy(&shakes->lock);
    pthread_cond_destroy(&shakes->changed);
    rdmux_release(fabric, shakes);
    fabric->shakes = NULL;
}

struct rdmux_shake *rdmux_shake_begin(struct rdmux_fabric *fabric, int socket,
                                      const uint8_t hello[RDMUX_HELLO_SIZE],
                                      struct rdmux_watch *watch)
{
    struct rdmux_shake *shake = rdmux_allocate(fabric, sizeof(*shake));
    if (shake != NULL) {
        shake->fabric = fabric;
        shake->socket = socket;
        shake->watch = watch;
        memcpy(shake->hello, hello, RDMUX_HELLO_SIZE);
        rdmux_list_init(&shake->link);
    }
    return shake;
}

bool rdmux_shake_queue(struct rdmux_shake *shake, struct rdmux_shake_source *source)
{
    struct rdmux_shakes *shakes = get_shakes(shake->fabric);
    if (shakes == NULL) {
        return false;
    }
    pthread_mutex_lock(&shakes->lock);
    shake->source = source;
    set_shake_state(shake, RDMUX_SHAKE_QUEUED);
    rdmux_list_append(&source->steps, &shake->link);
    rdmux_turns_enter(&shakes->turns, &source->turn);
    pthread_cond_signal(&shakes->changed);
    pthread_mutex_unlock(&shakes->lock);
    if (!shakes->runs) {
        rdmux_service_wake(shake->fabric);
    }
    return true;
}

bool rdmux_shake_end(struct rdmux_shake *shake, struct rdmux_tls **tls)
{
    struct rdmux_shakes *shakes = shake->fabric->shakes;
    bool is_ours = true;
    if (shakes != NULL) {
        pthread_mutex_lock(&shakes->lock);
        is_ours = atomic_load(&shake->state) != RDMUX_SHAKE_RUNNING;
        if (atomic_load(&shake->state) == RDMUX_SHAKE_QUEUED) {
            rdmux_list_remove(&shake->link);
            if (rdmux_list_empty(&shake->source->steps)) {
                rdmux_turns_leave(&shake->source->turn);
            }
        }
        if (!is_ours) {
            set_shake_state(shake, RDMUX_SHAKE_ABANDONED);
            (void)shutdown(shake->socket, SHUT_RDWR);
        }
        pthread_mutex_unlock(&shakes->lock);
    }
    if (!is_ours) {
        return false;
    }
    if (tls != NULL) {
        *tls = shake->tls;
        shake->tls = NULL;
    }
    destroy_shakes(shake);
    return true;
}
