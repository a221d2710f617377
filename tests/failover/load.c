/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Begin, events and end. */
#include "load_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char create_why[LOAD_TEXT];

const char *load_why(void)
{
    return create_why;
}

struct load *load_create(struct rdmux_fabric *fabric, const struct load_attr *attr)
{
    const size_t arena = (size_t)LOAD_SLOT_SIZE * (LOAD_RING + RECEIVES);
    struct load *load = calloc(1, sizeof(*load));
    if (load == NULL) {
        (void)snprintf(create_why, sizeof(create_why), "no memory");
        return NULL;
    }
    load->attr = *attr;
    load->chance.state = attr->seed * 2 + attr->side;
    load->expected = 1;
    load->first_failure[0] = load->first_failure[1] = STATUS_NONE;
    load->region = aligned_alloc(4096, (sizeof(*load->region) + 4095) / 4096 * 4096);
    load->arena = malloc(arena);
    if (load->region == NULL || load->arena == NULL) {
        (void)snprintf(create_why, sizeof(create_why), "no memory");
        goto free_load;
    }
    memset(load->region, 0, sizeof(*load->region));
    memset(load->arena, SCRIBBLE, arena);
    if (rdmux_mr_register(fabric, load->region, sizeof(*load->region),
                          RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_READ |
                              RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC,
                          &load->region_mr) != RDMUX_OK ||
        rdmux_mr_register(fabric, load->arena, arena,
                          RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK,
                          &load->arena_mr) != RDMUX_OK) {
        (void)snprintf(create_why, sizeof(create_why), "rdmux_mr_register: %s", rdmux_last_error());
        goto free_load;
    }
    return load;

free_load:
    load_free(load);
    return NULL;
}

void load_free(struct load *load)
{
    if (load == NULL) {
        return;
    }
    rdmux_mr_deregister(load->region_mr);
    rdmux_mr_deregister(load->arena_mr);
    free(load->region);
    free(load->arena);
    free(load);
}

void load_set_attr(const struct load *load, struct rdmux_ep_attr *attr)
{
    attr->send_depth = LOAD_DEPTH;
    attr->recv_depth = LOAD_DEPTH;
    attr->max_send_sge = PIECES_MAX;
    attr->max_send = LOAD_SLOT_SIZE;
    attr->max_recv = LOAD_SLOT_SIZE;
    attr->failover = load->attr.has_failover ? RDMUX_FAILOVER_ON : RDMUX_FAILOVER_OFF;
}

struct rdmux_mr *load_region(const struct load *load)
{
    return load->region_mr;
}

void load_begin(struct load *load, struct rdmux_ep *ep, struct rdmux_remote *remote)
{
    load->ep = ep;
    load->remote = remote;
    load_offer_receives(load);
}

/* --------------------------------------------------------------------------------------- events */

void load_take(struct load *load, const struct rdmux_wc *wc)
{
    load->entries++;
    if (load->has_ended) {
        load_wrong(load, &load->errors.broken, "an entry behind DISCONNECTED: %s",
                   rdmux_wc_opcode_name(wc->opcode));
        return;
    }
    switch (wc->opcode) {
    case RDMUX_WC_RECV:
    case RDMUX_WC_RECV_WRITE_IMM:
        load_take_receive(load, wc);
        load_offer_receives(load);
        break;
    case RDMUX_WC_DISCONNECTED:
        load->has_ended = true;
        load->end_status = wc->status;
        break;
    case RDMUX_WC_PATH_CHANGED:
        load->counts.moves++;
        if (!load->attr.has_failover) {
            load_wrong(load, &load->errors.broken, "the path has changed without failover");
        }
        break;
    case RDMUX_WC_WRITABLE:
    case RDMUX_WC_REMOTE_READY:
    case RDMUX_WC_CONNECTED:
        break;
    default:
        load_take_request(load, wc);
    }
}

/* ------------------------------------------------------------------------------------------ end */

bool load_is_done(const struct load *load)
{
    return load->done_is_over && load->peer_is_done && load_is_idle(load);
}

bool load_has_ended(const struct load *load)
{
    return load->has_ended;
}

uint32_t load_end_status(const struct load *load)
{
    return load->end_status;
}

const char *load_state(const struct load *load, char *out, size_t size)
{
    uint32_t kept = 0;
    for (uint32_t slot = 0; slot < LOAD_MAILS; slot++) {
        kept += load->kept[slot].is_kept;
    }
    (void)snprintf(
        out, size,
        "%llu of %llu requests over, the next of kind %d, %llu messages received, %u slots kept, "
        "%llu receives posted, %s%s",
        (unsigned long long)load->done, (unsigned long long)load->posted,
        load->done < load->posted ? (int)load->ring[load->done % LOAD_RING].kind : 0,
        (unsigned long long)load->counts.messages, kept,
        (unsigned long long)(load->receives_posted - load->receives_taken),
        load->has_said_done ? "has said that it is done" : "is not done",
        load->peer_is_done ? ", and so has the peer" : "");
    return out;
}

void load_check_marks(struct load *load)
{
    for (uint32_t slot = 0; slot < LOAD_MAILS; slot++) {
        if (load->kept[slot].is_kept &&
            !load_is_all(load->region->mails[slot], MARK, LOAD_SLOT_SIZE)) {
            load_wrong(load, &load->errors.mismatched,
                       "something was written into slot %u behind the message that named it", slot);
        }
    }
}

void load_check_end(struct load *load)
{
    if (load->signaled != 0 || (load->first_failure[0] != STATUS_NONE && !load_is_idle(load))) {
        load_wrong(load, &load->errors.broken,
                   "the endpoint has ended, and %llu requests have no entry",
                   (unsigned long long)(load->posted - load->done));
    }
    if (load->receives_posted != load->receives_taken) {
        load_wrong(load, &load->errors.broken,
                   "the endpoint has ended, and %llu receives have no entry",
                   (unsigned long long)(load->receives_posted - load->receives_taken));
    }
    for (int i = 0; i < 2; i++) {
        uint32_t first = load->first_failure[i];
        if (first != STATUS_NONE && first != RDMUX_FLUSHED && first != RDMUX_OUTCOME_UNKNOWN &&
            first != load->end_status) {
            load_wrong(load, &load->errors.broken, "the first failure was %s, the end is %s",
                       rdmux_status_name((enum rdmux_status)first),
                       rdmux_status_name((enum rdmux_status)load->end_status));
        }
    }
}

const struct load_errors *load_errors(const struct load *load)
{
    return &load->errors;
}

bool load_is_clean(const struct load *load)
{
    const struct load_errors *errors = &load->errors;
    return errors->lost + errors->doubled + errors->disordered + errors->mismatched +
               errors->broken ==
           0;
}

const struct load_counts *load_counts(const struct load *load)
{
    return &load->counts;
}

const char *load_text(const struct load *load)
{
    return load->why;
}
