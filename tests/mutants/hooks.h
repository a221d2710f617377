/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Included in front of the correct provider's source: its calls to the core go through the
 * mutant. */
#ifndef MUTANT_HOOKS_H
#define MUTANT_HOOKS_H

#include <rdmux/provider.h>

void mutant_done(struct rdmux_provider_ep *ep, struct rdmux_request *request, uint32_t status);
void mutant_resume(struct rdmux_provider_ep *ep);
void mutant_failed(struct rdmux_provider_ep *ep, enum rdmux_status status, const char *text);
struct rdmux_request *mutant_take_receive(struct rdmux_provider_ep *ep);
void mutant_received(struct rdmux_provider_ep *ep, struct rdmux_request *request, uint32_t status,
                     uint32_t opcode, uint64_t length, uint32_t wc_flags, uint32_t imm);
enum rdmux_status mutant_enter(struct rdmux_provider_ep *ep,
                               const uint8_t key[RDMUX_TARGET_KEY_SIZE], uint64_t offset,
                               uint64_t length, uint32_t access, void **addr);
void mutant_leave(struct rdmux_provider_ep *ep);
enum rdmux_status mutant_atomic(struct rdmux_provider_ep *ep,
                                const uint8_t key[RDMUX_TARGET_KEY_SIZE], uint32_t op,
                                uint64_t offset, uint64_t operand, uint64_t expected,
                                uint64_t *old);

#ifdef MUTANT_INSIDE
#define rdmux_provider_done mutant_done
#define rdmux_provider_resume mutant_resume
#define rdmux_provider_failed mutant_failed
#define rdmux_provider_take_receive mutant_take_receive
#define rdmux_provider_received mutant_received
#define rdmux_target_enter mutant_enter
#define rdmux_target_leave mutant_leave
#define rdmux_target_atomic mutant_atomic
#endif

#endif
