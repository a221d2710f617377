/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A model of failover (docs/NEGOTIATION.md) for spin(1): a sender, a receiver, and between them a
 * path and a control channel. Path and channel may fail at any moment, FAULTS times in all, also
 * during the recovery from an earlier failure. run.sh lists the builds that must hold, and those
 * that must fail.
 *
 * Data flows one way; the other direction has its own numbers and works the same. CONNECTOR says
 * which side dials: 0 the sender, 1 the receiver.
 *
 *   A path        carries requests in order. Once it is broken, either side may notice at any time.
 *                 Until the receiver cuts, requests in flight may still arrive; after it they are
 *                 lost.
 *   The device    of the receiver takes and acknowledges messages before the library takes them. It
 *                 may fail with all messages that it holds.
 *   A channel     carries frames in order. Once it is lost, frames in flight may or may not be
 *                 read, and new frames are dropped. The connector dials the next channel.
 *   The attempts  of the handshake are only COMMIT and CONFIRM here; tests/unit/test_handshake*.c
 *                 walk through the rest.
 *
 * Each of these definitions leaves out a rule, and the build must fail: WITHOUT_CUT,
 * WITHOUT_COUNTS, COUNTS_RESTART, DEVICE_IS_TRUSTED, WRITES_AGAIN, ATOMICS_AGAIN,
 * MOVE_IS_SAID_ONCE.
 *
 * Checked at each step: a message is received once and in order, and none is skipped; the writes
 * before it are in place, and none of them lands again; no write lands that is older than a
 * completed one; no atomic is executed twice. Checked when no event is left: each request has
 * ended, both sides use the same path, requests that ended well have taken effect, and the memory
 * has the last write.
 */

#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef CONNECTOR
#define CONNECTOR 0
#endif
#ifndef PROGRAM
#define PROGRAM 1
#endif

#define SENDER 0
#define RECEIVER 1

/* The kinds of requests, and the order in which the sender posts them. */
#define SEND 1
#define ONCE 2 /* a send with NO_REPLAY */
#define WRITE 3
#define ATOMIC 4
#define IS_MESSAGE(kind) ((kind) <= ONCE)

#define ONE_OF(i, a, b, c, d, e) \
    (((i) == 1) * a + ((i) == 2) * b + ((i) == 3) * c + ((i) == 4) * d + ((i) == 5) * e)
#define REQUESTS 5
#if PROGRAM == 1
#define KIND(i) ONE_OF(i, WRITE, SEND, ATOMIC, SEND, WRITE)
#elif PROGRAM == 2
#define KIND(i) ONE_OF(i, SEND, ONCE, WRITE, SEND, WRITE)
#else
#define KIND(i) ONE_OF(i, WRITE, WRITE, ATOMIC, SEND, ONCE)
#endif

/* The outcomes of a request. */
#define OPEN 0
#define DONE 1
#define IN_DOUBT 2

mtype = { RECEIVED, RESUMED, MOVE, COMMIT, CONFIRM };

/* -------------------------------------------------------------------------------- the state */

/* Frames: type, epoch, messages received, "this side uses the path of this epoch". */
#define LINE(channel, reader) line[2 * (channel) + (reader)]
chan line[2 * (FAULTS + 1)] = [6] of { mtype, byte, byte, bool };
bool is_lost[FAULTS + 1];

chan path = [REQUESTS] of { byte, byte }; /* kind and request, in flight before the cut */
chan arrived = [REQUESTS] of { byte };    /* messages that the device holds for the library */
bool is_open = true;                      /* the receiver's side of the path */
bool is_broken;                           /* the current path */
byte reached;                             /* the last request that the path delivered */
byte faults;

/* The state of each side. */
byte epoch[2] = 1;
bool works[2] = true; /* has a path that both sides have agreed on */
bool has_heard[2];    /* has read the peer's MOVE of this epoch */
bool is_greeting[2];  /* has sent RESUMED on this channel, and not read the peer's yet */
byte channel[2];

/* The state of the sender. */
byte next = 1;            /* the next request to post */
byte sent;                /* the number of the last message posted */
byte number[REQUESTS + 1];
byte outcome[REQUESTS + 1];

/* The state of the receiver. */
byte count; /* messages received */
byte told;  /* the count last sent to the sender */

/* The history, for the assertions alone. */
byte memory; /* the write that landed last */
byte latest; /* the message that was received last */
byte newest; /* the newest completed write */
bool is_received[REQUESTS + 1];
byte executed[REQUESTS + 1];

/* Sends a frame; a lost channel drops it. */
inline say(who, frame, n, flag)
{
    if
    :: !is_lost[channel[who]] -> LINE(channel[who], 1 - who) ! frame, epoch[who], n, flag
    :: else
    fi
}

/* ---------------------------------------------------------------------------------- the program */

inline land(what)
{
    assert(what > latest);  /* else a program that has the message and uses the memory loses bytes */
    assert(what >= newest); /* else a completed write is overwritten */
    memory = what
}

inline carry_out(what)
{
    executed[what]++;
    assert(executed[what] == 1)
}

inline receive(what)
{
    assert(!is_received[what] && what > latest && outcome[what] != IN_DOUBT);
    i = latest + 1;
    do
    :: i < what ->
        assert(KIND(i) != SEND);
        assert(KIND(i) != ONCE || outcome[i] == IN_DOUBT);
        assert(KIND(i) != WRITE || memory >= i);
        i++
    :: else -> break
    od;
    i = 0;
    is_received[what] = true;
    latest = what;
    count++
}

/* --------------------------------------------------------------------------------- the receiver */

#ifdef WITHOUT_CUT
/* Requests that reach a receiver that closed its path and destroyed neither queue pair nor keys. */
chan late = [REQUESTS] of { byte, byte };
#define LEAVE(kind, what)                     \
    if                                        \
    :: nfull(late) -> late ! (kind), what     \
    :: full(late)                             \
    fi

active proctype Late()
{
    byte what;
    do
    :: atomic { late ? WRITE, what -> land(what); what = 0 }
    :: atomic { late ? ATOMIC, what -> carry_out(what); what = 0 }
    :: atomic { late ? SEND, what -> what = 0 }
    :: atomic { late ? ONCE, what -> what = 0 }
    od
}
#else
#define LEAVE(kind, what) skip
#endif

/* After the cut no request of the path lands. The device's messages are taken, or lost with it. */
inline cut_receiver()
{
    do
    :: nempty(arrived) -> arrived ? what; receive(what)
    :: break
    od;
    do
    :: nempty(arrived) -> arrived ? what
    :: empty(arrived) -> break
    od;
    do
    :: path ? kind, what -> LEAVE(kind, what)
    :: empty(path) -> break
    od;
    what = 0;
    kind = 0;
    is_open = false
}

/* Delivers requests of the path. A message waits for a receive, which only a working path has. */
active proctype Device()
{
    byte what;
    do
    :: atomic { is_open && path ? [WRITE, what] -> path ? WRITE, what; land(what); reached = what; what = 0 }
    :: atomic { is_open && path ? [ATOMIC, what] -> path ? ATOMIC, what; carry_out(what); reached = what; what = 0 }
    :: atomic { works[RECEIVER] && path ? [SEND, what] -> path ? SEND, what; arrived ! what; reached = what; what = 0 }
    :: atomic { works[RECEIVER] && path ? [ONCE, what] -> path ? ONCE, what; arrived ! what; reached = what; what = 0 }
    od
}

/* The library takes the device's messages, and reports their count to the sender. */
active proctype Library()
{
    byte what, i;
    do
    :: atomic { arrived ? what -> receive(what); what = 0 }
    :: atomic { works[RECEIVER] && !is_greeting[RECEIVER] && told != count ->
        say(RECEIVER, RECEIVED, count, true); told = count }
    od
}

/* ----------------------------------------------------------------------------------- the sender */

inline write_is_done(which)
{
    outcome[which] = DONE;
    if
    :: which > newest -> newest = which
    :: else
    fi
}

/* The receiver has `total` messages, and the writes before them. */
inline confirm(total)
{
    i = REQUESTS;
    found = false;
    do
    :: i > 0 ->
        if
        :: i < next && outcome[i] == OPEN && IS_MESSAGE(KIND(i)) && number[i] <= total ->
            outcome[i] = DONE;
            found = true
        :: i < next && outcome[i] == OPEN && KIND(i) == WRITE && found ->
#ifndef WRITES_AGAIN
            write_is_done(i)
#endif
        :: else
        fi;
        i--
    :: else -> break
    od;
    found = false
}

/* Both sides have cut. Posts unconfirmed requests again, oldest first, unless they may not be. */
inline settle(total)
{
#ifdef WITHOUT_COUNTS
    total = 0;
#endif
    confirm(total);
    i = 1;
    do
    :: i <= REQUESTS ->
        if
        :: i < next && outcome[i] == OPEN && (KIND(i) == ONCE || KIND(i) == ATOMIC) ->
#ifndef ATOMICS_AGAIN
            outcome[i] = IN_DOUBT
#endif
        :: else
        fi;
        number[i] = 0;
        i++
    :: else -> break
    od;
    i = 0;
    next = 1;
#ifdef COUNTS_RESTART
    sent = 0
#else
    sent = total
#endif
}

/* The flush after a write, or the answer of an atomic, has returned. */
#ifdef DEVICE_IS_TRUSTED
#define HAS_COME_BACK(i) (outcome[i] == OPEN && i < next && i <= reached)
#else
#define HAS_COME_BACK(i) (outcome[i] == OPEN && i < next && i <= reached && !IS_MESSAGE(KIND(i)))
#endif

inline come_back(which)
{
    if
    :: KIND(which) == WRITE ->
        i = 1;
        do
        :: i <= which ->
            if
            :: KIND(i) == WRITE && outcome[i] == OPEN -> write_is_done(i)
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0
    :: else -> outcome[which] = DONE
    fi
}

active proctype Sender()
{
    byte i;
    do
    :: atomic { works[SENDER] && next <= REQUESTS ->
        if
        :: outcome[next] == OPEN ->
            if
            :: IS_MESSAGE(KIND(next)) -> sent++; number[next] = sent
            :: else
            fi;
            if
            :: is_open && epoch[SENDER] == epoch[RECEIVER] -> path ! KIND(next), next
            :: else -> LEAVE(KIND(next), next) /* the receiver has already cut this path */
            fi
        :: else
        fi;
        next++ }
    :: atomic { works[SENDER] && HAS_COME_BACK(1) -> come_back(1) }
    :: atomic { works[SENDER] && HAS_COME_BACK(2) -> come_back(2) }
    :: atomic { works[SENDER] && HAS_COME_BACK(3) -> come_back(3) }
    :: atomic { works[SENDER] && HAS_COME_BACK(4) -> come_back(4) }
    :: atomic { works[SENDER] && HAS_COME_BACK(5) -> come_back(5) }
    od
}

/* ---------------------------------------------------------------------------- moving, both sides */

#define COUNT_OF(who) ((who) * count) /* the sender receives nothing */

/* Cuts, then sends MOVE: once for each epoch and channel. */
inline move(to)
{
    if
    :: me == RECEIVER -> cut_receiver()
    :: else
    fi;
    works[me] = false;
    has_heard[me] = false;
    epoch[me] = to;
    say(me, MOVE, COUNT_OF(me), false)
#ifdef COUNTS_RESTART
    ;
    if
    :: me == RECEIVER -> count = 0; told = 0
    :: else
    fi
#endif
}

/* Opens the path of this epoch, a new one without a fault. */
inline open_path()
{
    is_broken = false;
    if
    :: me == RECEIVER -> is_open = true; reached = 0
    :: else
    fi
}

/* This side has sent and read MOVE: both sides have cut. The acceptor opens the next path. */
inline meet(total)
{
    has_heard[me] = true;
    if
    :: me == SENDER -> settle(total)
    :: else -> told = count
    fi;
    if
    :: me != CONNECTOR ->
        open_path();
        say(me, COMMIT, 0, false)
    :: else
    fi
}

inline greet()
{
    is_greeting[me] = true;
    if
    :: me == RECEIVER -> told = count
    :: else
    fi;
    say(me, RESUMED, COUNT_OF(me), works[me])
}

inline take(frame, its_epoch, n, flag)
{
    if
    :: frame == RECEIVED -> confirm(n)
    :: frame == RESUMED ->
        is_greeting[me] = false;
        if
        :: flag && works[me] && its_epoch == epoch[me] ->
            if
            :: me == SENDER -> confirm(n)
            :: else
            fi
        :: else ->
#ifndef MOVE_IS_SAID_ONCE
            if
            :: its_epoch > epoch[me] -> move(its_epoch + 1)
            :: else -> move(epoch[me] + 1)
            fi
#endif
        fi
    :: frame == MOVE && its_epoch > epoch[me] -> move(its_epoch); meet(n)
    :: frame == MOVE && its_epoch == epoch[me] && !has_heard[me] -> meet(n)
    :: frame == COMMIT && its_epoch == epoch[me] ->
        open_path();
        works[me] = true;
        say(me, CONFIRM, 0, false)
    :: frame == CONFIRM && its_epoch == epoch[me] -> works[me] = true
    :: else
    fi
}

proctype Side(bit me)
{
    mtype frame;
    byte its_epoch, n, what, kind, i;
    bool flag, found;
    do
    :: atomic { LINE(channel[me], me) ? frame, its_epoch, n, flag ->
        take(frame, its_epoch, n, flag);
        frame = 0; its_epoch = 0; n = 0; flag = false }
    :: atomic { is_broken && works[me] && !is_greeting[me] -> move(epoch[me] + 1) }
    :: atomic { me == CONNECTOR && is_lost[channel[me]] -> channel[me]++; greet() }
    :: atomic { me != CONNECTOR && channel[me] != channel[1 - me] -> channel[me] = channel[1 - me]; greet() }
    od
}

active proctype Fault()
{
    do
    :: atomic { faults < FAULTS && !is_broken -> is_broken = true; faults++ }
    :: atomic { faults < FAULTS && !is_lost[channel[CONNECTOR]] -> is_lost[channel[CONNECTOR]] = true; faults++ }
    :: break /* no further fault */
    od
}

/* ------------------------------------------------------------------------------------- the end */

inline check_request(j)
{
    assert(outcome[j] != OPEN);
    assert(KIND(j) != SEND || is_received[j]);
    assert(KIND(j) != ONCE || is_received[j] == (outcome[j] == DONE));
    assert(KIND(j) != ATOMIC || outcome[j] == IN_DOUBT || executed[j] == 1);
    assert(KIND(j) != WRITE || (outcome[j] == DONE && memory >= j))
}

init
{
    atomic { run Side(SENDER); run Side(RECEIVER) };
    timeout ->
    d_step {
        assert(works[SENDER] && works[RECEIVER] && epoch[SENDER] == epoch[RECEIVER]);
        check_request(1);
        check_request(2);
        check_request(3);
        check_request(4);
        check_request(5)
    }
end_all:
    false
}
