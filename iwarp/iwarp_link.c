/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "iwarp/iwarp_link.h"

#include <assert.h>
#include <stdbool.h>

/* A stage ignores the events that it does not list, except those that end every stage. */
static const struct link_rule {
    enum iwarp_stage stage;
    enum iwarp_event event;
    enum iwarp_stage next;
    enum iwarp_action action;
} rules[] = {
    /* clang-format off */
    { IWARP_STAGE_NEW,             IWARP_EVENT_DIAL,           IWARP_STAGE_FINDING_ADDRESS, IWARP_ACTION_FIND_ADDRESS },
    { IWARP_STAGE_FINDING_ADDRESS, IWARP_EVENT_ADDRESS_FOUND,  IWARP_STAGE_FINDING_ROUTE,   IWARP_ACTION_FIND_ROUTE },
    { IWARP_STAGE_FINDING_ROUTE,   IWARP_EVENT_ROUTE_FOUND,    IWARP_STAGE_CONNECTING,      IWARP_ACTION_CONNECT },
    { IWARP_STAGE_FINDING_ROUTE,   IWARP_EVENT_ROUTE_FAILED,   IWARP_STAGE_OVER,            IWARP_ACTION_FAIL },
    { IWARP_STAGE_CONNECTING,      IWARP_EVENT_ESTABLISHED,    IWARP_STAGE_UP,              IWARP_ACTION_TELL_UP },
    { IWARP_STAGE_CONNECTING,      IWARP_EVENT_REFUSED,        IWARP_STAGE_OVER,            IWARP_ACTION_FAIL },
    { IWARP_STAGE_CONNECTING,      IWARP_EVENT_UNREACHABLE,    IWARP_STAGE_OVER,            IWARP_ACTION_FAIL },
    { IWARP_STAGE_CONNECTING,      IWARP_EVENT_DISCONNECTED,   IWARP_STAGE_OVER,            IWARP_ACTION_FAIL },
    { IWARP_STAGE_NEW,             IWARP_EVENT_AWAIT,          IWARP_STAGE_AWAITED,         IWARP_ACTION_NONE },
    { IWARP_STAGE_AWAITED,         IWARP_EVENT_REQUESTED,      IWARP_STAGE_ACCEPTING,       IWARP_ACTION_ACCEPT },
    { IWARP_STAGE_ACCEPTING,       IWARP_EVENT_ESTABLISHED,    IWARP_STAGE_UP,              IWARP_ACTION_TELL_UP },
    { IWARP_STAGE_ACCEPTING,       IWARP_EVENT_UNREACHABLE,    IWARP_STAGE_OVER,            IWARP_ACTION_FAIL },
    { IWARP_STAGE_ACCEPTING,       IWARP_EVENT_REFUSED,        IWARP_STAGE_OVER,            IWARP_ACTION_FAIL },
    { IWARP_STAGE_ACCEPTING,       IWARP_EVENT_DISCONNECTED,   IWARP_STAGE_OVER,            IWARP_ACTION_FAIL },
    { IWARP_STAGE_UP,              IWARP_EVENT_DISCONNECTED,   IWARP_STAGE_OVER,            IWARP_ACTION_TELL_END },
    { IWARP_STAGE_UP,              IWARP_EVENT_DEVICE_REMOVED, IWARP_STAGE_OVER,            IWARP_ACTION_TELL_END },
    /* clang-format on */
};

enum { RULE_COUNT = sizeof(rules) / sizeof(rules[0]) };

/* Failures after which the connection is tried again from the beginning. */
static bool is_worth_another_try(enum iwarp_stage stage, enum iwarp_event event)
{
    return (stage == IWARP_STAGE_FINDING_ADDRESS && event == IWARP_EVENT_ADDRESS_FAILED) ||
           (stage == IWARP_STAGE_CONNECTING && event == IWARP_EVENT_PORT_TAKEN);
}

static void enter_stage(struct iwarp_link *link, enum iwarp_stage stage)
{
    assert(link->stage != IWARP_STAGE_OVER || stage == IWARP_STAGE_OVER);
    link->stage = stage;
}

void rdmux_iwarp_link_end(struct iwarp_link *link)
{
    enter_stage(link, IWARP_STAGE_OVER);
}

enum iwarp_action rdmux_iwarp_link_step(struct iwarp_link *link, enum iwarp_event event)
{
    if (is_worth_another_try(link->stage, event) && ++link->tries < IWARP_ADDRESS_TRIES) {
        enter_stage(link, IWARP_STAGE_FINDING_ADDRESS);
        return IWARP_ACTION_FIND_ADDRESS;
    }
    for (int i = 0; i < RULE_COUNT; i++) {
        if (rules[i].stage == link->stage && rules[i].event == event) {
            enter_stage(link, rules[i].next);
            return rules[i].action;
        }
    }
    if (event == IWARP_EVENT_REQUESTED) {
        return IWARP_ACTION_REJECT; /* connected already, or not expected */
    }
    bool is_under_way = link->stage != IWARP_STAGE_NEW && link->stage != IWARP_STAGE_UP &&
                        link->stage != IWARP_STAGE_OVER;
    bool ends = event == IWARP_EVENT_CALL_FAILED || event == IWARP_EVENT_DEVICE_REMOVED ||
                event == IWARP_EVENT_ADDRESS_FAILED || event == IWARP_EVENT_PORT_TAKEN;
    if (is_under_way && ends) {
        enter_stage(link, IWARP_STAGE_OVER);
        return IWARP_ACTION_FAIL;
    }
    return IWARP_ACTION_NONE;
}

const char *rdmux_iwarp_stage_text(enum iwarp_stage stage)
{
    static const char *const texts[IWARP_STAGES] = {
        [IWARP_STAGE_NEW] = "nothing",
        [IWARP_STAGE_FINDING_ADDRESS] = "resolving the peer's address",
        [IWARP_STAGE_FINDING_ROUTE] = "finding the route",
        [IWARP_STAGE_CONNECTING] = "connecting",
        [IWARP_STAGE_AWAITED] = "awaiting the peer",
        [IWARP_STAGE_ACCEPTING] = "accepting",
        [IWARP_STAGE_UP] = "connected",
        [IWARP_STAGE_OVER] = "over",
    };
    return stage < IWARP_STAGES ? texts[stage] : "?";
}

const char *rdmux_iwarp_event_text(enum iwarp_event event)
{
    static const char *const texts[IWARP_EVENTS] = {
        [IWARP_EVENT_DIAL] = "dialled",
        [IWARP_EVENT_AWAIT] = "awaited",
        [IWARP_EVENT_ADDRESS_FOUND] = "the address was resolved",
        [IWARP_EVENT_ADDRESS_FAILED] = "the peer's address does not answer, or has no route",
        [IWARP_EVENT_ROUTE_FOUND] = "the route was found",
        [IWARP_EVENT_ROUTE_FAILED] = "there is no route",
        [IWARP_EVENT_REQUESTED] = "asked for",
        [IWARP_EVENT_ESTABLISHED] = "established",
        [IWARP_EVENT_REFUSED] = "refused: nobody listens there, or a firewall rejects it",
        [IWARP_EVENT_UNREACHABLE] = "the peer does not answer",
        [IWARP_EVENT_DISCONNECTED] = "the peer ended it",
        [IWARP_EVENT_DEVICE_REMOVED] = "the device was taken away",
        [IWARP_EVENT_PORT_TAKEN] = "no port of ours is free",
        [IWARP_EVENT_CALL_FAILED] = "a call of the connection manager failed",
    };
    return event < IWARP_EVENTS ? texts[event] : "?";
}
