/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Pairs the acceptor's paths (ours) with the connector's (theirs), judges each pair and sorts them.
 * The code does not depend on which side is which, except for the words in the texts, so the order
 * is the same if the sides swap. */
#include "negotiation/match.h"

#include "negotiation/explain.h"
#include "negotiation/filter.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Both offers, and the matches found so far, sorted. */
struct matching {
    const struct rdmux_offer *ours;
    const struct rdmux_offer *theirs;
    uint64_t expected_size;
    struct rdmux_match *matches;
    size_t count;
};

/* Eligible paths of a lower class rank before those of a higher one, whatever their cost. */
enum path_class {
    CLASS_ORDINARY,
    CLASS_LAST_RESORT,
    CLASS_STAND_IN, /* by another library over a network that rdmux drives itself; not measured */
    CLASS_SOFTWARE, /* an emulated RDMA device that no side named */
};

static const struct rdmux_offer *offer_of(const struct matching *matching, bool ours)
{
    return ours ? matching->ours : matching->theirs;
}

/* Both hosts show the same texts, so the texts do not say "we" and "you". */
static const char *side_name(bool ours)
{
    return ours ? "acceptor" : "connector";
}

static bool is_usable(const struct rdmux_offer_path *path)
{
    return path->path.reason == RDMUX_REASON_USABLE;
}

static bool same_provider(const struct rdmux_offer_path *a, const struct rdmux_offer_path *b)
{
    return strcmp(a->provider, b->provider) == 0;
}

/* The match's path on one side; NULL if it has none there. */
static const struct rdmux_offer_path *path_of(const struct rdmux_offer *offer, uint16_t index)
{
    return index == RDMUX_MATCH_NO_PATH ? NULL : &offer->paths[index];
}

static const struct rdmux_offer_path *any_path_of(const struct matching *matching,
                                                  const struct rdmux_match *match)
{
    const struct rdmux_offer_path *ours = path_of(matching->ours, match->ours);
    return ours != NULL ? ours : path_of(matching->theirs, match->theirs);
}

static const char *reason_text(const struct rdmux_offer_path *path)
{
    return path->path.text[0] != '\0' ? path->path.text
                                      : rdmux_reason_name((enum rdmux_reason)path->path.reason);
}

static void set_text(char text[RDMUX_TEXT_MAX], const char *format, ...) RDMUX_PRINTF(2, 3);
static void set_text(char text[RDMUX_TEXT_MAX], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    if (vsnprintf(text, RDMUX_TEXT_MAX, format, arguments) < 0) {
        text[0] = '\0';
    }
    va_end(arguments);
}

/* ------------------------------------------------------------------------------- cost and class */

/* The smaller of two limits; 0 means no limit. */
static uint64_t smaller_limit(uint64_t a, uint64_t b)
{
    if (a == 0 || b == 0) {
        return a != 0 ? a : b;
    }
    return a < b ? a : b;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Nanoseconds for size bytes at bandwidth bytes per second; the divisor never becomes 0;
 * saturates. */
static uint64_t transfer_ns(uint64_t size, uint64_t bandwidth)
{
    const uint64_t second_ns = UINT64_C(1000000000);
    uint64_t seconds = size / bandwidth;
    uint64_t rest = size % bandwidth;
    while (rest > UINT64_MAX / second_ns) {
        rest >>= 1;
        bandwidth >>= 1;
    }
    uint64_t whole_ns = seconds > UINT64_MAX / second_ns ? UINT64_MAX : seconds * second_ns;
    return add_saturated(whole_ns, rest * second_ns / bandwidth);
}

static uint64_t cost_of(const struct rdmux_local_path *a, const struct rdmux_local_path *b,
                        uint64_t size)
{
    uint64_t latency_ns = a->latency_ns > b->latency_ns ? a->latency_ns : b->latency_ns;
    uint64_t bandwidth = smaller_limit(a->bandwidth, b->bandwidth);
    return bandwidth == 0 ? latency_ns : add_saturated(latency_ns, transfer_ns(size, bandwidth));
}

/* Uses the devices' bandwidth if too few bytes were moved to measure one. */
static uint64_t measured_cost(const struct matching *matching, const struct rdmux_match *match)
{
    const struct rdmux_local_path *ours = &path_of(matching->ours, match->ours)->path;
    const struct rdmux_local_path *theirs = &path_of(matching->theirs, match->theirs)->path;
    uint64_t bandwidth = match->measured.bandwidth;
    if (bandwidth == 0) {
        bandwidth = smaller_limit(ours->bandwidth, theirs->bandwidth);
    }
    return bandwidth == 0 ? match->measured.latency_ns
                          : add_saturated(match->measured.latency_ns,
                                          transfer_ns(matching->expected_size, bandwidth));
}

static bool is_measured(const struct rdmux_match *match)
{
    return match->measured.latency_ns != 0;
}

/* Returns whether the offer names this provider in a filter that does not name tcp, by itself or by
 * "auto". */
static bool insists_on(const struct rdmux_offer *offer, const char *provider)
{
    for (size_t i = 0; i < 2; i++) {
        if (rdmux_filter_names(offer->filter[i], provider) &&
            !rdmux_filter_names(offer->filter[i], "tcp") &&
            !rdmux_filter_names(offer->filter[i], "auto")) {
            return true;
        }
    }
    return false;
}

/* A software path of such a provider is no emulated device, but a stand-in for one of rdmux's own
 * paths. */
static bool is_on_request(const struct rdmux_offer_path *ours, const struct rdmux_offer_path *theirs)
{
    return ((ours->provider_flags | theirs->provider_flags) & RDMUX_PROVIDER_ON_REQUEST) != 0;
}

/* The class of a match with both paths. */
static enum path_class class_of(const struct matching *matching, const struct rdmux_match *match)
{
    const struct rdmux_offer_path *ours = path_of(matching->ours, match->ours);
    const struct rdmux_offer_path *theirs = path_of(matching->theirs, match->theirs);
    bool software = ours->path.software != 0 || theirs->path.software != 0;
    bool insists = insists_on(matching->ours, ours->provider) ||
                   insists_on(matching->theirs, ours->provider);
    if (software && !insists && !is_on_request(ours, theirs)) {
        return CLASS_SOFTWARE;
    }
    if (software && !insists && !is_measured(match)) {
        return CLASS_STAND_IN;
    }
    if (is_measured(match)) {
        return CLASS_ORDINARY;
    }
    bool last_resort = ((ours->provider_flags | theirs->provider_flags) &
                        RDMUX_PROVIDER_LAST_RESORT) != 0;
    return last_resort ? CLASS_LAST_RESORT : CLASS_ORDINARY;
}

/* ---------------------------------------------------------------------------------------- order */

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_bytes(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size)
{
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order != 0 ? order : compare_numbers(a_size, b_size);
}

/* Compares two paths with one device name. */
static int compare_details(const struct rdmux_local_path *a, const struct rdmux_local_path *b)
{
    int order = strcmp(a->address, b->address);
    if (order == 0) {
        order = compare_bytes(a->reach, a->reach_length, b->reach, b->reach_length);
    }
    if (order == 0) {
        order = compare_numbers(a->reason, b->reason);
    }
    return order != 0 ? order : strcmp(a->text, b->text);
}

/* A match without regard to sides: the path with the lower name, then the other. */
struct sides {
    const struct rdmux_local_path *low;
    const struct rdmux_local_path *high;
    uint16_t low_index;
    uint16_t high_index;
};

static struct sides sides_of(const struct matching *matching, const struct rdmux_match *match)
{
    static const struct rdmux_local_path none;
    const struct rdmux_offer_path *ours = path_of(matching->ours, match->ours);
    const struct rdmux_offer_path *theirs = path_of(matching->theirs, match->theirs);
    struct sides sides = {
        .low = ours != NULL ? &ours->path : &none,
        .high = theirs != NULL ? &theirs->path : &none,
        .low_index = match->ours,
        .high_index = match->theirs,
    };
    int order = strcmp(sides.low->device, sides.high->device);
    if (order == 0) {
        order = compare_details(sides.low, sides.high);
    }
    if (order == 0) {
        order = compare_numbers(sides.low_index, sides.high_index);
    }
    if (order > 0) {
        return (struct sides){ sides.high, sides.low, sides.high_index, sides.low_index };
    }
    return sides;
}

static int compare_names(const struct matching *matching, const struct rdmux_match *a,
                         const struct rdmux_match *b)
{
    struct sides x = sides_of(matching, a);
    struct sides y = sides_of(matching, b);
    const int orders[] = {
        strcmp(any_path_of(matching, a)->provider, any_path_of(matching, b)->provider),
        strcmp(x.low->device, y.low->device),
        strcmp(x.high->device, y.high->device),
        compare_details(x.low, y.low),
        compare_details(x.high, y.high),
        compare_numbers(x.low_index, y.low_index),
        compare_numbers(x.high_index, y.high_index),
    };
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        if (orders[i] != 0) {
            return orders[i];
        }
    }
    return 0; /* two pairs that mirror each other in every detail */
}

static bool is_eligible(const struct rdmux_match *match)
{
    return match->rank != 0;
}

/* Eligible matches first, the cheapest of the best class leading; then pairs that were judged; then
 * the rest. */
static bool match_comes_before(const struct matching *matching, const struct rdmux_match *a,
                               const struct rdmux_match *b)
{
    int order = compare_numbers(is_eligible(b), is_eligible(a));
    if (order == 0 && is_eligible(a)) {
        order = compare_numbers(class_of(matching, a), class_of(matching, b));
        if (order == 0) {
            order = compare_numbers(a->cost_ns, b->cost_ns);
        }
    }
    if (order == 0) {
        order = compare_numbers(b->stage, a->stage);
    }
    return (order != 0 ? order : compare_names(matching, a, b)) < 0;
}

/* Inserts in order and keeps the best RDMUX_MATCH_MAX. */
static void insert_match(struct matching *matching, const struct rdmux_match *match)
{
    size_t at = matching->count;
    while (at > 0 && match_comes_before(matching, match, &matching->matches[at - 1])) {
        at--;
    }
    if (at == RDMUX_MATCH_MAX) {
        return;
    }
    size_t last = matching->count < RDMUX_MATCH_MAX ? matching->count++ : RDMUX_MATCH_MAX - 1;
    memmove(&matching->matches[at + 1], &matching->matches[at], (last - at) * sizeof(*match));
    matching->matches[at] = *match;
}

/* ------------------------------------------------------------------------------------- verdicts */

/* Each judge returns false, with reason, text and hint set, if the pair is not eligible. */

static bool filter_allows(const struct matching *matching, bool ours, const char *provider,
                          struct rdmux_match *match)
{
    const struct rdmux_offer *offer = offer_of(matching, ours);
    for (size_t i = 0; i < 2; i++) {
        if (!rdmux_filter_allows(offer->filter[i], provider)) {
            match->reason = RDMUX_REASON_FILTERED;
            set_text(match->text, "the %s's filter \"%s\" leaves %s out", side_name(ours),
                     offer->filter[i], provider);
            set_text(match->hint, "%s: let %s through in RDMUX_PATHS and the paths attributes",
                     side_name(ours), provider);
            return false;
        }
    }
    return true;
}

static const char *reach_hint(enum rdmux_reason reason)
{
    switch (reason) {
    case RDMUX_REASON_OTHER_NAMESPACE:
        return "let both processes share their namespaces (containers: the same pod, or --pid, "
               "--ipc, --network of the host) "
               "and run them as the same user";
    case RDMUX_REASON_NOT_REACHABLE:
        return "give both interfaces addresses of one family in networks with a route between them";
    case RDMUX_REASON_MTU_MISMATCH:
        return "set the same MTU on both interfaces";
    default:
        return "";
    }
}

static bool can_reach(const struct rdmux_offer_path *ours, const struct rdmux_offer_path *theirs,
                      struct rdmux_match *match)
{
    if (ours->reach == NULL) {
        return true;
    }
    enum rdmux_reason reason = ours->reach(ours->path.reach, ours->path.reach_length,
                                           theirs->path.reach, theirs->path.reach_length,
                                           match->text);
    if (reason == RDMUX_REASON_NONE) {
        match->text[0] = '\0';
        return true;
    }
    match->reason = (uint32_t)reason;
    match->text[sizeof(match->text) - 1] = '\0';
    if (match->text[0] == '\0') {
        set_text(match->text, "the acceptor's %s%s%s cannot reach the connector's", ours->provider,
                 ours->path.device[0] != '\0' ? " " : "", ours->path.device);
    }
    set_text(match->hint, "%s", reach_hint(reason));
    return false;
}

static const char *requirer_text(bool ours, bool theirs)
{
    if (ours && theirs) {
        return "both sides require";
    }
    return ours ? "the acceptor requires" : "the connector requires";
}

static bool has_capabilities(const struct matching *matching, struct rdmux_match *match)
{
    const struct rdmux_offer *ours = matching->ours;
    const struct rdmux_offer *theirs = matching->theirs;
    uint64_t missing = (ours->require | theirs->require | ours->require_native |
                        theirs->require_native) &
                       ~(match->native | match->emulated);
    uint64_t not_native = (ours->require_native | theirs->require_native) & ~match->native;
    if (missing == 0 && not_native == 0) {
        return true;
    }
    char list[RDMUX_TEXT_MAX];
    match->reason = RDMUX_REASON_CAPABILITY_MISSING;
    if (missing != 0) {
        rdmux_capability_list(missing, list, sizeof(list));
        set_text(match->text, "lacks %s, which %s",
                 list[0] != '\0' ? list : "a capability unknown here",
                 requirer_text(((ours->require | ours->require_native) & missing) != 0,
                               ((theirs->require | theirs->require_native) & missing) != 0));
        set_text(match->hint, "require less, or use another path");
    } else {
        rdmux_capability_list(not_native, list, sizeof(list));
        set_text(match->text, "emulates %s, which %s natively", list,
                 requirer_text((ours->require_native & not_native) != 0,
                               (theirs->require_native & not_native) != 0));
        set_text(match->hint,
                 "ask with require instead of require_native, and the emulation will do");
    }
    return false;
}

uint64_t rdmux_match_limit(const struct rdmux_offer *ours, const struct rdmux_offer *theirs,
                           const struct rdmux_match *match)
{
    return smaller_limit(path_of(ours, match->ours)->path.max_message,
                         path_of(theirs, match->theirs)->path.max_message);
}

/* Returns the longest message of a direction, on a path without limit. */
static uint64_t wanted_length(const struct rdmux_offer *sender, const struct rdmux_offer *receiver)
{
    return sender->max_send < receiver->max_recv ? sender->max_send : receiver->max_recv;
}

static uint64_t granted_length(const struct rdmux_offer *sender, const struct rdmux_offer *receiver,
                               uint64_t limit)
{
    uint64_t wanted = wanted_length(sender, receiver);
    return sender->send_wish != 0 && limit != 0 && limit < wanted ? limit : wanted;
}

struct rdmux_message_limits rdmux_match_messages(const struct rdmux_offer *ours,
                                                 const struct rdmux_offer *theirs, uint64_t limit)
{
    return (struct rdmux_message_limits){ .send = granted_length(ours, theirs, limit),
                                          .receive = granted_length(theirs, ours, limit) };
}

bool rdmux_match_takes(uint64_t limit, struct rdmux_message_limits messages)
{
    return limit == 0 || (messages.send <= limit && messages.receive <= limit);
}

static void explain_wish(const struct rdmux_offer *sender, const struct rdmux_offer *receiver,
                         const char *side, uint64_t limit, char text[RDMUX_TEXT_MAX])
{
    uint64_t wanted = wanted_length(sender, receiver);
    uint64_t granted = granted_length(sender, receiver, limit);
    if (granted < wanted) {
        rdmux_text_add(text, RDMUX_TEXT_MAX,
                       "; the %s wishes to send messages of %" PRIu64
                       " bytes, this path takes %" PRIu64,
                       side, wanted, granted);
    }
}

void rdmux_match_explain_wishes(const struct rdmux_offer *acceptors,
                                const struct rdmux_offer *connectors, uint64_t limit,
                                char text[RDMUX_TEXT_MAX])
{
    explain_wish(acceptors, connectors, side_name(true), limit, text);
    explain_wish(connectors, acceptors, side_name(false), limit, text);
}

static bool fits_messages(const struct matching *matching, struct rdmux_match *match)
{
    uint64_t limit = rdmux_match_limit(matching->ours, matching->theirs, match);
    const struct rdmux_message_limits messages = rdmux_match_messages(matching->ours,
                                                                      matching->theirs, limit);
    if (rdmux_match_takes(limit, messages)) {
        return true;
    }
    uint64_t wanted = messages.send > messages.receive ? messages.send : messages.receive;
    match->reason = RDMUX_REASON_LIMIT_MISMATCH;
    set_text(match->text, "messages may be %" PRIu64 " bytes long, this path takes %" PRIu64,
             wanted, limit);
    set_text(match->hint,
             "lower max_send or max_recv to %" PRIu64 ", or make max_send a wish "
             "(RDMUX_EP_SEND_WISH)",
             limit);
    return false;
}

/* Each side that requires encryption decides itself which paths it trusts. */
static bool is_secure(const struct matching *matching, const struct rdmux_offer_path *a,
                      const struct rdmux_offer_path *b, struct rdmux_match *match)
{
    bool ours = matching->ours->require_encryption != 0 && a->trusted == 0;
    bool theirs = matching->theirs->require_encryption != 0 && b->trusted == 0;
    uint32_t security = a->path.security < b->path.security ? a->path.security : b->path.security;
    if ((!ours && !theirs) || security >= RDMUX_SECURITY_ENCRYPTED) {
        return true;
    }
    match->reason = RDMUX_REASON_NOT_ENCRYPTED;
    set_text(match->text, "%s encryption, the security of this path is: %s",
             requirer_text(ours, theirs), rdmux_security_name((enum rdmux_security)security));
    set_text(match->hint,
             "%s: name %s in auth.trusted (command: --trusted) if nobody else sees its bytes",
             ours && theirs ? "both sides" : side_name(ours), a->provider);
    return false;
}

/* Judges a pair of usable paths. */
static void judge_pair(struct matching *matching, size_t ours_index, size_t theirs_index)
{
    const struct rdmux_offer_path *ours = &matching->ours->paths[ours_index];
    const struct rdmux_offer_path *theirs = &matching->theirs->paths[theirs_index];
    struct rdmux_match match = {
        .ours = (uint16_t)ours_index,
        .theirs = (uint16_t)theirs_index,
        .reason = RDMUX_REASON_NONE,
        .stage = RDMUX_STAGE_MATCH,
        .native = ours->path.native & theirs->path.native,
    };
    match.emulated = (ours->path.native | ours->path.emulated) &
                     (theirs->path.native | theirs->path.emulated) & ~match.native;
    bool eligible = filter_allows(matching, true, ours->provider, &match) &&
                    filter_allows(matching, false, ours->provider, &match) &&
                    can_reach(ours, theirs, &match) && has_capabilities(matching, &match) &&
                    fits_messages(matching, &match) && is_secure(matching, ours, theirs, &match);
    if (eligible) {
        match.rank = 1; /* the real rank is set when all are sorted */
        match.cost_ns = cost_of(&ours->path, &theirs->path, matching->expected_size);
    }
    insert_match(matching, &match);
}

/* Makes a match of one side's path alone. */
static struct rdmux_match lone_match(const struct rdmux_local_path *path, bool ours, size_t index)
{
    return (struct rdmux_match){
        .ours = ours ? (uint16_t)index : RDMUX_MATCH_NO_PATH,
        .theirs = ours ? RDMUX_MATCH_NO_PATH : (uint16_t)index,
        .reason = RDMUX_REASON_PEER_HAS_NONE,
        .stage = RDMUX_STAGE_MATCH,
        .native = path->native,
        .emulated = path->emulated,
    };
}

/* A usable path whose provider the other side cannot use. */
static void judge_lone(struct matching *matching, bool ours, size_t index)
{
    const struct rdmux_offer *other = offer_of(matching, !ours);
    const struct rdmux_offer_path *path = &offer_of(matching, ours)->paths[index];
    struct rdmux_match match = lone_match(&path->path, ours, index);
    set_text(match.text, "the %s has no usable %s path", side_name(!ours), path->provider);
    for (size_t i = 0; i < other->path_count; i++) {
        if (same_provider(&other->paths[i], path)) {
            rdmux_text_add(match.text, sizeof(match.text), ": %s", reason_text(&other->paths[i]));
            break;
        }
    }
    insert_match(matching, &match);
}

/* Returns whether both sides lack the same thing, so that one entry covers both. */
static bool is_common_lack(const struct rdmux_offer_path *a, const struct rdmux_offer_path *b)
{
    return !is_usable(a) && !is_usable(b) && same_provider(a, b) &&
           a->path.reason == b->path.reason && a->path.device[0] == '\0' &&
           b->path.device[0] == '\0' && strcmp(a->path.text, b->path.text) == 0 &&
           strcmp(a->path.hint, b->path.hint) == 0;
}

/* Index of the first path of the offer with the same lack; path_count if there is none. */
static size_t find_common_lack(const struct rdmux_offer *offer, const struct rdmux_offer_path *path)
{
    size_t i = 0;
    while (i < offer->path_count && !is_common_lack(&offer->paths[i], path)) {
        i++;
    }
    return i;
}

/* Replaces the reasons that an unusable path cannot have: a peer may send any, but must not forge a
 * verdict. */
static uint32_t probe_reason(uint32_t reason)
{
    switch (reason) {
    case RDMUX_REASON_NONE:
    case RDMUX_REASON_CHOSEN:
    case RDMUX_REASON_SLOWER:
        return RDMUX_REASON_NO_DEVICE;
    default:
        return reason;
    }
}

static void judge_unusable(struct matching *matching, bool ours, size_t index)
{
    const struct rdmux_offer *side = offer_of(matching, ours);
    const struct rdmux_offer *other = offer_of(matching, !ours);
    const struct rdmux_offer_path *path = &side->paths[index];
    size_t partner = find_common_lack(other, path);
    bool common = partner < other->path_count;
    if (common && (!ours || find_common_lack(side, path) < index)) {
        return; /* listed already */
    }
    struct rdmux_match match = lone_match(&path->path, ours, index);
    match.theirs = common ? (uint16_t)partner : match.theirs;
    match.reason = probe_reason(path->path.reason);
    match.stage = RDMUX_STAGE_PROBE;
    match.native = 0;
    match.emulated = 0;
    const char *who = common ? "both sides" : side_name(ours);
    set_text(match.text, "%s: %s", who, reason_text(path));
    if (path->path.hint[0] != '\0') {
        set_text(match.hint, "%s: %s", who, path->path.hint);
    }
    insert_match(matching, &match);
}

/* -------------------------------------------------------------------------------------- ranking */

static void add_path_name(const struct matching *matching, const struct rdmux_match *match,
                          char *text, size_t size)
{
    const struct rdmux_offer_path *path = path_of(matching->ours, match->ours);
    rdmux_text_add(text, size, "%s%s%s", path->provider, path->path.device[0] != '\0' ? " " : "",
                   path->path.device);
}

/* Says why an eligible match is not the best one. */
static void explain_slower(const struct matching *matching, struct rdmux_match *match)
{
    const struct rdmux_match *best = &matching->matches[0];
    const enum path_class class = class_of(matching, match);
    const char *provider = path_of(matching->ours, match->ours)->provider;
    match->reason = class == CLASS_SOFTWARE && class_of(matching, best) != CLASS_SOFTWARE
                        ? RDMUX_REASON_SOFTWARE_DEVICE
                        : RDMUX_REASON_SLOWER;
    rdmux_text_add(match->text, sizeof(match->text), "; before it comes ");
    add_path_name(matching, best, match->text, sizeof(match->text));
    if (class == class_of(matching, best)) {
        rdmux_text_add(match->text, sizeof(match->text), " with %" PRIu64 " ns", best->cost_ns);
    } else if (class == CLASS_LAST_RESORT) {
        rdmux_text_add(match->text, sizeof(match->text), ", as %s is the last resort", provider);
    } else if (class == CLASS_STAND_IN) {
        rdmux_text_add(match->text, sizeof(match->text),
                       ", as rdmux drives this network itself and %s was not measured faster",
                       provider);
    } else {
        rdmux_text_add(match->text, sizeof(match->text),
                       ", as this RDMA device is emulated in software");
    }
    if (class > CLASS_LAST_RESORT && class != class_of(matching, best)) {
        set_text(match->hint,
                 "to have it all the same, name %s in the path filter, without tcp and auto%s",
                 provider, class == CLASS_STAND_IN ? "; or let rdmux measure" : "");
    }
}

/* Sets an eligible match's text: its cost, the wishes that it cuts, why it is not the best, and for
 * a provider on request what stands behind it. */
static void explain_rank(const struct matching *matching, struct rdmux_match *match)
{
    const struct rdmux_offer_path *ours = path_of(matching->ours, match->ours);
    const struct rdmux_offer_path *theirs = path_of(matching->theirs, match->theirs);
    set_text(match->text, "%" PRIu64 " ns for %" PRIu64 " bytes%s", match->cost_ns,
             matching->expected_size, is_measured(match) ? ", measured" : "");
    rdmux_match_explain_wishes(matching->ours, matching->theirs,
                               rdmux_match_limit(matching->ours, matching->theirs, match),
                               match->text);
    if (match != &matching->matches[0]) {
        explain_slower(matching, match);
    }
    if (is_on_request(ours, theirs) && ours->path.text[0] != '\0') {
        rdmux_text_add(match->text, sizeof(match->text), "; %s", ours->path.text);
    }
}

static bool has_usable_path(const struct rdmux_offer *offer, const struct rdmux_offer_path *like)
{
    for (size_t i = 0; i < offer->path_count; i++) {
        if (is_usable(&offer->paths[i]) && same_provider(&offer->paths[i], like)) {
            return true;
        }
    }
    return false;
}

/* Lists one side's paths that have no pair. */
static void judge_unpaired(struct matching *matching, bool ours)
{
    const struct rdmux_offer *side = offer_of(matching, ours);
    for (size_t i = 0; i < side->path_count; i++) {
        if (!is_usable(&side->paths[i])) {
            judge_unusable(matching, ours, i);
        } else if (!has_usable_path(offer_of(matching, !ours), &side->paths[i])) {
            judge_lone(matching, ours, i);
        }
    }
}

/* Numbers the eligible matches, which are sorted. */
static void number_matches(struct matching *matching)
{
    for (size_t i = 0; i < matching->count && is_eligible(&matching->matches[i]); i++) {
        matching->matches[i].rank = (uint16_t)(i + 1);
        explain_rank(matching, &matching->matches[i]);
    }
}

size_t rdmux_match_paths(const struct rdmux_offer *ours, const struct rdmux_offer *theirs,
                         uint64_t expected_size, struct rdmux_match *out)
{
    struct matching matching = {
        .ours = ours,
        .theirs = theirs,
        .expected_size = expected_size,
        .matches = out,
    };
    for (size_t i = 0; i < ours->path_count; i++) {
        for (size_t j = 0; j < theirs->path_count; j++) {
            if (is_usable(&ours->paths[i]) && is_usable(&theirs->paths[j]) &&
                same_provider(&ours->paths[i], &theirs->paths[j])) {
                judge_pair(&matching, i, j);
            }
        }
    }
    judge_unpaired(&matching, true);
    judge_unpaired(&matching, false);

    number_matches(&matching);
    return matching.count;
}

size_t rdmux_match_worth_measuring(const struct rdmux_offer *ours, const struct rdmux_offer *theirs,
                                   const struct rdmux_match *matches, size_t count)
{
    const struct matching matching = { .ours = ours, .theirs = theirs };
    size_t worth = 0;
    while (worth < count && is_eligible(&matches[worth]) &&
           class_of(&matching, &matches[worth]) != CLASS_SOFTWARE) {
        worth++;
    }
    return worth > 1 ? worth : 0;
}

void rdmux_match_rank_measured(const struct rdmux_offer *ours, const struct rdmux_offer *theirs,
                               uint64_t expected_size, struct rdmux_match *matches, size_t count)
{
    struct matching matching = {
        .ours = ours,
        .theirs = theirs,
        .expected_size = expected_size,
        .matches = matches,
    };
    for (size_t i = 0; i < count; i++) {
        struct rdmux_match match = matches[i]; /* its place may be overwritten by those before it */
        if (is_eligible(&match)) {
            match.stage = RDMUX_STAGE_MATCH;
            match.reason = RDMUX_REASON_NONE;
            match.hint[0] = '\0';
            match.cost_ns = is_measured(&match) ? measured_cost(&matching, &match) : match.cost_ns;
            match.cost_is_measured = is_measured(&match);
        }
        insert_match(&matching, &match);
    }
    number_matches(&matching);
}
