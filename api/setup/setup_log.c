/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The log's lines about a set-up, or about the search for the next path: each step at debug. */
#include "api/core/ep.h"
#include "api/session/setup_state.h"
#include "api/setup/setup.h"
#include "negotiation/explain.h"

#include <stdio.h>
#include <string.h>

enum { WORDS_MAX = 640 };

/* Adds "shm memory", or "tcp". */
static void add_device_path(char *out, size_t size, const char *provider, const char *device)
{
    rdmux_text_add(out, size, "%s%s%s", provider, device[0] != '\0' ? " " : "", device);
}

static void log_step(struct rdmux_ep *ep, const char *words)
{
    rdmux_log_about(ep->fabric, RDMUX_CATEGORY_NEGOTIATION, RDMUX_LOG_DEBUG, "endpoint %llu: %s",
                    (unsigned long long)ep->id, words);
}

void rdmux_setup_log_dial(struct rdmux_ep *ep, const char *address)
{
    rdmux_log_about(ep->fabric, RDMUX_CATEGORY_NEGOTIATION, RDMUX_LOG_DEBUG,
                    "endpoint %llu: dials %s", (unsigned long long)ep->id, address);
}

void rdmux_setup_log_offer(struct rdmux_ep *ep)
{
    char words[WORDS_MAX] = "";
    if (!rdmux_log_wants(ep->fabric, RDMUX_LOG_DEBUG)) {
        return;
    }
    const struct rdmux_offer *offer = ep->setup->offer;
    rdmux_text_add(words, sizeof(words), "%s %s; offers",
                   ep->negotiated.role == RDMUX_ROLE_ACCEPT ? "accepts" : "is connected to",
                   ep->info.peer_address);
    const char *before = " ";
    for (uint32_t i = 0; i < offer->path_count; i++) {
        if (offer->paths[i].path.reason == RDMUX_REASON_USABLE) {
            rdmux_text_add(words, sizeof(words), "%s", before);
            add_device_path(words, sizeof(words), offer->paths[i].provider,
                            offer->paths[i].path.device);
            before = ", ";
        }
    }
    if (before[0] == ' ') {
        rdmux_text_add(words, sizeof(words), " no usable path");
    }
    log_step(ep, words);
}

static void log_ranking(struct rdmux_ep *ep)
{
    char words[WORDS_MAX] = "";
    struct rdmux_candidate *all = rdmux_allocate(ep->fabric, RDMUX_MATCH_MAX * sizeof(*all));
    if (all == NULL) {
        return; /* no line without memory */
    }
    size_t count = rdmux_handshake_candidates(ep->setup->handshake, all, RDMUX_MATCH_MAX);
    const char *before = "ranks ";
    for (size_t i = 0; i < count; i++) {
        if (all[i].rank != 0) {
            rdmux_text_add(words, sizeof(words), "%s", before);
            add_device_path(words, sizeof(words), all[i].provider, all[i].device);
            rdmux_text_add(words, sizeof(words), " (%llu ns%s)", (unsigned long long)all[i].cost_ns,
                           all[i].measured != 0 ? ", measured" : "");
            before = ", ";
        }
    }
    rdmux_release(ep->fabric, all);
    log_step(ep, words);
}

static const char *verb_of(enum rdmux_handshake_action_kind kind)
{
    switch (kind) {
    case RDMUX_ACTION_OPEN:
        return "opens";
    case RDMUX_ACTION_CONNECT:
        return "connects";
    case RDMUX_ACTION_WRITE_PROOF:
        return "writes a proof over";
    case RDMUX_ACTION_CHECK_PROOF:
        return "checks the proof of";
    case RDMUX_ACTION_MEASURE:
        return "measures";
    case RDMUX_ACTION_CLOSE_PATH:
        return "gives up";
    case RDMUX_ACTION_NONE:
    case RDMUX_ACTION_SEND:
    case RDMUX_ACTION_CHOOSE:
    case RDMUX_ACTION_DONE:
    case RDMUX_ACTION_FAIL:
        break;
    }
    return NULL;
}

/* Adds "attempt 2 opens roce mlx5_0". */
static void add_attempt(const struct rdmux_ep *ep, enum rdmux_handshake_action_kind kind,
                        uint32_t number, uint16_t ours, char *out, size_t size)
{
    const struct rdmux_offer *offer = ep->setup->offer;
    rdmux_text_add(out, size, "attempt %u %s ", (unsigned)number, verb_of(kind));
    if (ours < offer->path_count) {
        add_device_path(out, size, offer->paths[ours].provider, offer->paths[ours].path.device);
    }
}

void rdmux_setup_log_action(struct rdmux_ep *ep, const struct rdmux_handshake_action *action)
{
    const struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    char words[WORDS_MAX] = "";
    if (verb_of(action->kind) == NULL || !rdmux_log_wants(ep->fabric, RDMUX_LOG_DEBUG)) {
        return;
    }
    bool opens = action->kind == RDMUX_ACTION_OPEN;
    if (opens && action->attempt == 1) {
        log_ranking(ep);
    }
    add_attempt(ep, action->kind, opens ? action->attempt : attempt->number,
                opens ? action->ours : attempt->ours, words, sizeof(words));
    log_step(ep, words);
}

void rdmux_setup_log_failure(struct rdmux_ep *ep, enum rdmux_handshake_action_kind kind,
                             enum rdmux_status status, const char *text)
{
    const struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    char words[WORDS_MAX] = "";
    if (status == RDMUX_OK || verb_of(kind) == NULL ||
        !rdmux_log_wants(ep->fabric, RDMUX_LOG_DEBUG)) {
        return;
    }
    add_attempt(ep, kind, attempt->number, attempt->ours, words, sizeof(words));
    rdmux_text_add(words, sizeof(words), ": %s: %s", rdmux_status_name(status), text);
    log_step(ep, words);
}

void rdmux_setup_log_verdicts(struct rdmux_ep *ep)
{
    for (size_t i = 0; i < ep->negotiated.candidate_count; i++) {
        const struct rdmux_candidate *candidate = &ep->negotiated.candidates[i];
        char words[WORDS_MAX] = "";
        if (!rdmux_log_wants(ep->fabric, RDMUX_LOG_DEBUG)) {
            return;
        }
        add_device_path(words, sizeof(words), candidate->provider,
                        candidate->device[0] != '\0' ? candidate->device : candidate->peer_device);
        rdmux_text_add(words, sizeof(words), ": %s at %s: %s",
                       rdmux_reason_name((enum rdmux_reason)candidate->reason),
                       rdmux_stage_name((enum rdmux_stage)candidate->stage), candidate->text);
        log_step(ep, words);
    }
}
