/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Posts of a row, each with the status that the rules require. */
#include "generated_stage.h"

#include <string.h>

static enum rdmux_status post_by_call(struct stage *stage, const struct wanted *wanted,
                                      const struct piece *piece, uint64_t expects, void *context)
{
    struct rdmux_ep *ep = stage->ep;
    void *bytes = piece_bytes(piece);
    struct rdmux_mr *mr = piece->arena->region.mr;
    const size_t length = wanted->length;
    struct rdmux_remote *remote = wanted->remote == REMOTE_KINDS
                                      ? NULL
                                      : stage->remotes[stage->row.values[DIM_ENDPOINT]]
                                                      [wanted->remote][wanted->import];
    const uint32_t flags = wanted->flags;
    if (length == 0) {
        bytes = NULL;
        mr = NULL;
    }
    switch (wanted->op) {
    case RDMUX_OP_SEND:
        return rdmux_send(ep, bytes, length, mr, context, flags);
    case RDMUX_OP_SEND_IMM:
        return rdmux_send_imm(ep, bytes, length, mr, wanted->imm, context, flags);
    case RDMUX_OP_WRITE:
        return rdmux_write(ep, bytes, length, mr, remote, wanted->offset, context, flags);
    case RDMUX_OP_WRITE_IMM:
        return rdmux_write_imm(ep, bytes, length, mr, remote, wanted->offset, wanted->imm, context,
                               flags);
    case RDMUX_OP_READ:
        return rdmux_read(ep, bytes, length, mr, remote, wanted->offset, context, flags);
    case RDMUX_OP_FETCH_ADD:
        return rdmux_fetch_add(ep, bytes, mr, remote, wanted->offset, wanted->operand, context,
                               flags);
    default:
        return rdmux_compare_swap(ep, bytes, mr, remote, wanted->offset, expects, wanted->operand,
                                  context, flags);
    }
}

static enum rdmux_status post_now(struct stage *stage, const struct wanted *wanted,
                                  const struct buffer *buffer, uint64_t expects, void *context)
{
    if (wanted->list == LIST_CALL) {
        return post_by_call(stage, wanted, &buffer->pieces[0], expects, context);
    }
    struct rdmux_sge sges[PIECES_MAX];
    buffer_sges(buffer, sges);
    struct rdmux_wr wr = {
        .op = wanted->op,
        .flags = wanted->flags,
        .context = context,
        .sges = buffer->count == 0 ? NULL : sges,
        .sge_count = (uint32_t)buffer->count,
        .imm = wanted_has_imm(wanted) ? wanted->imm : 0,
        .offset = wanted->offset,
        .operand = wanted_is_atomic(wanted) ? wanted->operand : 0,
        .expected = wanted->op == RDMUX_OP_COMPARE_SWAP ? expects : 0,
    };
    if (wanted->remote < REMOTE_KINDS) {
        wr.remote = stage->remotes[stage->row.values[DIM_ENDPOINT]][wanted->remote][wanted->import];
    }
    enum rdmux_status status = rdmux_post(stage->ep, &wr, 1, NULL);
    memset(sges, 0xff, sizeof(sges)); /* the list is free, the bytes are not */
    memset(&wr, 0xff, sizeof(wr));
    return status;
}

static const char *rule_of_refusal(const struct wanted *wanted, enum rdmux_status status)
{
    if (status == RDMUX_AGAIN) {
        return "1.12";
    }
    if (status == RDMUX_OUT_OF_RANGE) {
        return "6.1";
    }
    if ((wanted->flags & RDMUX_INLINE) != 0) {
        return "1.14";
    }
    if (status == RDMUX_LENGTH) {
        return "5.4";
    }
    if (wanted->length == 0) {
        return (wanted->flags & RDMUX_PLACED) != 0 ? "1.9" : "12.1";
    }
    return wanted->list >= LIST_TWO ? "1.13" : "1.1";
}

static void await_writable(struct stage *stage, const struct wanted *wanted)
{
    stage->writable_due = true;
    while (stage->writable_due) {
        stage_take_some(stage);
        if (stage_is_late(stage)) {
            rule_broken(stage, stage->row.values[DIM_BEFORE] == BEFORE_CROWD ? "1.10" : "13.1",
                        wanted, "its post was refused with AGAIN, and no WRITABLE came");
        }
    }
}

/* Remembers the required result of a read or an atomic. */
static void expect_result(struct stage *stage, struct posted *posted, const uint8_t *bytes)
{
    uint8_t *found = stage->found + stage->found_used;
    memcpy(found, bytes, posted->wanted->length);
    stage->found_used += posted->wanted->length;
    posted->expected = found;
}

void stage_post(struct stage *stage, const struct wanted *wanted)
{
    struct posted *posted = &stage->posted[stage->posted_count];
    void *context = CTX(NUMBERED_FROM + stage->posted_count);
    uint8_t *model = wanted->remote < REMOTE_KINDS ? stage->theirs[wanted->remote] : NULL;
    uint64_t found = 0;
    uint64_t expects = 0;
    *posted = (struct posted){ .wanted = wanted, .buffer = buffer_take(stage, wanted) };
    if (wanted->op == RDMUX_OP_READ || wanted_is_atomic(wanted)) {
        buffer_fill(&posted->buffer, BYTE_ROOM);
    } else {
        buffer_pattern(&posted->buffer, wanted->seed);
    }
    if (wanted->answer == RDMUX_OK && model != NULL) {
        if (wanted->op == RDMUX_OP_READ) {
            expect_result(stage, posted, model + wanted->offset);
        } else if (wanted_apply(wanted, model, &found, &expects) && wanted_is_atomic(wanted)) {
            expect_result(stage, posted, (const uint8_t *)&found);
        }
    }
    STAND(wanted_text(wanted));
    enum rdmux_status status = post_now(stage, wanted, &posted->buffer, expects, context);
    if (wanted->must_be_full && status != RDMUX_AGAIN) {
        rule_broken(stage, "1.12", wanted, "its post on a full queue gave %s, expected AGAIN",
                    rdmux_status_name(status));
    }
    if (status == RDMUX_AGAIN && wanted->may_be_full) {
        if (wanted->must_be_full) { /* refused twice, and still only one WRITABLE */
            status = post_now(stage, wanted, &posted->buffer, expects, context);
            if (status != RDMUX_AGAIN) {
                rule_broken(stage, "1.12", wanted,
                            "its second post on a full queue gave %s, expected AGAIN",
                            rdmux_status_name(status));
            }
        }
        await_writable(stage, wanted);
        status = post_now(stage, wanted, &posted->buffer, expects, context);
        if (status == RDMUX_AGAIN) {
            rule_broken(stage, "13.2", wanted, "its post after WRITABLE gave AGAIN");
        }
    }
    if (status != wanted->answer) {
        rule_broken(stage,
                    wanted->answer == RDMUX_OK ? rule_of_refusal(wanted, status)
                                               : wanted->answer_rule,
                    wanted, "its post gave %s, expected %s%s%s", rdmux_status_name(status),
                    rdmux_status_name(wanted->answer), status == RDMUX_OK ? "" : ": ",
                    status == RDMUX_OK ? "" : rdmux_last_error());
    }
    if (status != RDMUX_OK) {
        buffer_fill(&posted->buffer, BYTE_FREE);
        return;
    }
    if ((wanted->flags & RDMUX_INLINE) != 0) {
        buffer_fill(&posted->buffer, BYTE_INLINE);
    }
    stage->posted_count++;
}
