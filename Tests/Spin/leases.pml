/*
 * The lease of one push, and two relays over PostgreSQL, as in Sources/ChatStorePostgres: RelayHeartbeat (starts, heartbeats),
 * PostgresPushQueue (lease, settle), QueueUpkeep (takeover, releases, the search for unknown leases) and QueueLeases (what a relay
 * remembers). `Tests/Spin/run` checks every order of the steps between which the code waits for the server or another task.
 *
 * A relay may be silent for long at any time, so that the other one ends its start, and may then go on: SILENCES. The response to a
 * COMMIT may be lost: LOSSES. The server then commits the transaction or not, at once or later.
 *
 * Checked: when a relay is given the push, no other one has it (the asserts in Dispatcher), unless its start has ended. No relay is
 * given a push that is settled. The push does not stay leased for ever: the process Settled ends.
 * Assumed: no relay is suspended between the last check and the write to its gateway.
 *
 * Each of these names takes a fix back, and then the check fails:
 *   FORGET_AT_LOOK, NO_WAIT, END_EARLY               fixes of release 0.4.0: 12b4b135, df230f1f, 494e3ed7
 *   ANY_START, RELEASE_LATER, RETURN_ALWAYS, ANY_VERSION   faults that this model has found
 *
 * Not solved: with DUE_AGAIN, an outcome may make the push due again. The check then fails, because a settlement that is repeated
 * after a lost response, or ends after a new start, cannot tell the lease that it belongs to from a newer one of the same relay.
 */
#ifndef SILENCES
#define SILENCES 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#define OTHER (1 - r)

mtype = { none, take, free, settle, again };

/* The database: the push, and the starts, from 1. A transaction that the server has not ended yet locks the push. */
byte lease;
bool sent, isLocked;
/* Whether the push's row has another version than when the relay's search found it. */
bool isChanged[2];
mtype unended = none;
byte unendedStart, unendedRelay;
bool isEnded[3 + SILENCES];
byte starts = 2;

/* What each relay remembers. */
byte start[2];
bool isAlive[2];
bool held[2], returned[2], opensReturned[2], opensSettled[2], isLeasing[2], isSettling[2];
bool isInDoubt[2], isDoubtNew[2], known[2], awaitsLease[2], awaitsSettling[2];
byte watched[2];
/* Leases in flight, by their starts. The settlements of a relay follow in their order. */
chan flight[2] = [2] of { byte };

/* For the check: the start in whose name a relay has the push. */
byte has[2];
byte silences = SILENCES, losses = LOSSES;

inline set(value) { lease = value; isChanged[0] = true; isChanged[1] = true }

inline apply(what, by) {
    if
    :: what == take -> set(by)
    :: (what == free || what == again) && !sent && lease == by -> set(0)
    :: what == settle && !sent && lease == by -> sent = true
    :: else
    fi
}

/* Ends a transaction, and perhaps loses the response. */
inline commit(what, by, isAnswered) {
    if
    :: apply(what, by); isAnswered = true; isLocked = false
    :: losses > 0 -> losses--; isAnswered = false;
        if
        :: apply(what, by); isLocked = false
        :: isLocked = false
        :: what != none -> unended = what; unendedStart = by; unendedRelay = r; isLocked = true
        fi
    fi
}

inline belong() {
    if
    :: watched[r] != start[r] -> watched[r] = start[r]; held[r] = false; returned[r] = false
    :: else
    fi
}

inline doubt() { isInDoubt[r] = true; isDoubtNew[r] = true }

proctype Heartbeat(byte r) {
end: do
    :: atomic { silences > 0 && isAlive[r] -> silences--; isAlive[r] = false }
    :: atomic { !isAlive[r] && !isEnded[start[r]] -> isAlive[r] = true }
    :: atomic { !isAlive[r] && isEnded[start[r]] -> starts++; start[r] = starts; isAlive[r] = true }
    :: atomic { isAlive[r] && !isAlive[OTHER] && !isEnded[start[OTHER]] -> isEnded[start[OTHER]] = true }
    /* The response to a call that leased nothing is lost. */
    :: atomic { losses > 0 && isAlive[r] -> losses--; doubt() }
    od
}

proctype Dispatcher(byte r) {
    byte by; bool isTaken, isAnswered;
end: do
    :: atomic {
            isAlive[r] && (returned[r] || (lease == 0 && !sent)) && nfull(flight[r]) ->
#ifndef FORGET_AT_LOOK
            belong();
#endif
            by = start[r];
            isLeasing[r] = true; opensReturned[r] = returned[r]; returned[r] = false
        };
        atomic {
            !isLocked ->
            isTaken = !sent && !isEnded[by] && (lease == 0 || (opensReturned[r] && lease == by));
            isLocked = true
        };
        atomic {
            if
            :: isTaken -> commit(take, by, isAnswered)
            :: !isTaken && opensReturned[r] -> commit(free, by, isAnswered)
            :: else -> commit(none, by, isAnswered)
            fi
        };
        atomic {
            if
#ifdef ANY_START
            :: isAnswered && isAlive[r] ->
#else
            :: isAnswered && isAlive[r] && start[r] == by ->
#endif
                if
                :: isTaken ->
                    /* The outcome of an earlier attempt, in doubt until now, may have settled it a moment ago. */
                    assert(lease == by && !isEnded[by]);
                    assert(!has[OTHER] || isEnded[has[OTHER]]);
                    assert(!has[r] || isEnded[has[r]]);
                    if
                    :: has[r] = by; held[r] = true; known[r] = true; flight[r]!by
                    :: known[r] = true; returned[r] = true
                    fi
                :: else
                fi
            :: else ->
#if !defined(RETURN_ALWAYS) && !defined(FORGET_AT_LOOK)
                opensReturned[r] = opensReturned[r] && watched[r] == by;
#endif
                returned[r] = returned[r] || opensReturned[r]; doubt()
            fi;
            opensReturned[r] = false; isLeasing[r] = false; awaitsLease[r] = false; isTaken = false
        }
    od
}

proctype Settlements(byte r) {
    byte by; mtype what; bool isAnswered;
end: do
    :: flight[r]?by ->
        what = settle;
#ifdef DUE_AGAIN
        if
        :: skip
        :: what = again
        fi;
#endif
        isAnswered = false;
        do
        :: isAnswered -> break
        :: !isAnswered ->
            atomic { isSettling[r] = true; opensSettled[r] = true; held[r] = false };
            /* From the commit on, the relay does not have it. */
            atomic { !isLocked -> commit(what, start[r], isAnswered); has[r] = (isAnswered && has[r] == by -> 0 : has[r]) };
            atomic {
                held[r] = held[r] || !isAnswered;
                opensSettled[r] = false; isSettling[r] = false; awaitsSettling[r] = false
            }
        od
    od
}

proctype Upkeep(byte r) {
    byte by; bool isFound, isAnswered, isLast;
end: do
    /* takeOver */
    :: atomic {
            !isLocked && !sent && lease && isEnded[lease] -> belong(); set(0)
        }
#ifdef FORGET_AT_LOOK
    :: atomic { watched[r] != start[r] -> belong() }
#endif
    /* releaseReturned */
    :: atomic { returned[r] -> belong(); by = start[r]; isFound = returned[r]; returned[r] = false };
        if
        :: isFound ->
            atomic {
                !isLocked ->
#ifdef RELEASE_LATER
                by = start[r];
#endif
                commit(free, by, isAnswered)
            };
            atomic {
                if
                :: !isAnswered -> doubt()
                :: else
                fi
            }
        :: else
        fi;
        isFound = false; isAnswered = false
    /* releaseOrphans */
    :: atomic {
            isInDoubt[r] -> belong(); by = start[r];
            known[r] = held[r] || returned[r] || opensReturned[r] || opensSettled[r];
            /* Long after the doubt, the server has ended the transaction, and the calls of that time have ended. */
            isLast = (unended == none || unendedRelay != r) && !isLeasing[r] && !isSettling[r];
            isDoubtNew[r] = false;
#ifdef END_EARLY
            isInDoubt[r] = !isLast
#endif
        };
        atomic { isFound = !sent && lease == by; isChanged[r] = false };
        atomic { awaitsLease[r] = isLeasing[r]; awaitsSettling[r] = isSettling[r] };
        if
#ifdef NO_WAIT
        :: true ->
#else
        :: !awaitsLease[r] && !awaitsSettling[r] ->
#endif
            isFound = isFound && !known[r];
            if
            :: isFound ->
                atomic {
                    !isLocked ->
#ifdef ANY_VERSION
                    isChanged[r] = false;
#endif
                    if
                    :: !isChanged[r] -> apply(free, by)
                    :: else
                    fi
                }
            :: else
            fi;
            atomic { isInDoubt[r] = isInDoubt[r] && (!isLast || isDoubtNew[r]) }
        :: skip /* These calls, or others, take too long. */
        fi;
        atomic { isFound = false; isLast = false; awaitsLease[r] = false; awaitsSettling[r] = false }
    od
}

/* Ends transactions whose responses were lost. */
proctype Server() {
end: do
    :: atomic { unended != none -> apply(unended, unendedStart); unended = none; isLocked = false }
    :: atomic { unended != none -> unended = none; isLocked = false }
    od
}

proctype Settled() { sent }

init {
    atomic {
        byte r = 0;
        do
        :: r < 2 ->
            start[r] = r + 1; watched[r] = r + 1; isAlive[r] = true;
            run Heartbeat(r); run Dispatcher(r); run Settlements(r); run Upkeep(r); r++
        :: else -> break
        od;
        run Server(); run Settled()
    }
}
