/// The sentences that each run checks. A number names a sentence of docs/delivery.md (D, P) or docs/stores.md.
enum Property: Int, CaseIterable {
    // docs/delivery.md

    /// D1, A1
    case durableBefore200
    /// D3, D6, Q1, Q3
    case pendingUntilTheOutcomeIsKnown
    /// D4, D5, D7: a push is sent only if its service has accepted it.
    case everyPushGetsAResponse
    /// D8, Q3, Q12
    case duplicatesAreRare
    /// D9
    case oneBadPushFailsAlone

    // docs/http2-gateway.md

    /// D4, Q15
    case theSameIDAtEachAttempt
    /// RFC 9113: windows, limits and order of streams.
    case thePeersLimitsHold
    /// A service can read each request, and knows its push.
    case theServiceGetsWhatIsQueued

    // docs/binary-gateway.md

    /// A report is stored before the relay reads the next ones.
    case feedbackIsStored
    /// A device that is gone becomes inactive, if it did not register after the report's second.
    case feedbackEndsOlderRegistrations
    /// A device that registered after it stays active.
    case laterRegistrationsStay

    // docs/web-push.md

    /// A service that is down delays no other one.
    case noServiceDelaysAnother

    // docs/stores.md

    /// A1
    case durable
    /// A2
    case aThrowingCallChangesNothing
    /// Q2
    case leasedOnce
    /// Q2
    case onlyLeasedPushesAreWritten
    /// Q3: at once, not by a search of the whole queue.
    case theBacklogIsFound
    /// Q6
    case orderOfALease
    /// D2, R1
    case recipientsAreTheMembersAtThatTime
    /// A4
    case errorsAreChatErrors
    /// A call fails only for a fault, or by a rule.
    case callsSucceed
    /// M2
    case noWaitingPushToARemovedMember
    /// M1
    case bansHold
    /// M3, M4
    case deletedMessagesAreNotSent
    /// K1
    case nothingOlderIsLeased
    /// K2
    case onePushOfAMessageAtATime
    /// K3
    case numbersGrow
    /// K4: also in pushes, and a row never gets another text.
    case theReplacedTextIsGone
    /// K5
    case keysBelongToTheirAuthor
    /// A key ends with its message, and not before.
    case keysEndWithTheirMessage
    /// A change that names a revision fails if the message has a higher one.
    case revisionsHold
    /// K6
    case aRepetitionChangesNothing
    /// K7: docs/updates.md
    case devicesShowTheNewest
    /// K7: a device rings at most as often as asked, apart from pushes in doubt.
    case noRingTooMany
    /// K3, K8, A1
    case aChangeIsNotLost
    /// K9
    case scheduledMessagesArePostedOnce
    /// K9
    case scheduledMessagesWait
    /// K10
    case schedulesEndWithTheirRoom
    /// K10
    case schedulesEndWithTheirToken
    /// N1
    case oneNotificationForEachDevice
    /// N2
    case cancelledNotificationsAreNotSent
    /// O4, Q10
    case countsOfANotification
    /// Q13
    case notBeforeItsTime
    /// Q14, O3
    case dueWithoutDelay
    /// O5
    case aPauseHolds
    /// docs/database.md: another program can insert pushes.
    case theRelaySendsRowsOfOtherPrograms
    /// U3, M5
    case retentionKeepsUnsettledPushes
    /// N3
    case oneProviderToken

    // The whole

    /// SQLite's own check finds nothing.
    case theFileStaysIntact
    /// D6, D7, U2: after the faults, every push ends.
    case nothingWaitsForever
    /// The relay logs an error only for a fault.
    case noErrorWithoutAFault
    /// U1: after any crash or fault, the relay serves calls again.
    case theRelayComesBack
    /// The relay ends only if it is stopped, or for a fault.
    case theRelayRunsOn
}

/// The properties that can be checked only at the end: every push has its outcome, and the relay runs.
struct FinalCheck {
    let world: World
    let rows: StoredRows

    func run() {
        for push in rows.pushes {
            let fate = world.ledger.fate(of: push.id)
            switch push.state {
            case "sent" where fate.accepted == 0:
                world.violate(.everyPushGetsAResponse, "push \(push.id) is sent, and its service has never accepted it")
            case "sent": break
            case "failed" where fate.rejections.contains(push.reason ?? ""): break
            case "cancelled" where fate.accepted > fate.doubts:
                world.violate(.everyPushGetsAResponse, "push \(push.id) is cancelled, and was accepted: \(fate)")
            case _ where world.parts.contains { $0.permits(push) }: break
            default:
                world.violate(
                    push.state == "failed" ? .oneBadPushFailsAlone : .pendingUntilTheOutcomeIsKnown,
                    "push \(push.id) is \(push.state) (\(push.reason ?? "")): \(fate)")
            }
        }
        for (push, fate) in world.ledger.fates.sorted(by: { $0.key < $1.key }) where fate.accepted > 1 + fate.doubts {
            world.violate(.duplicatesAreRare, "push \(push) was accepted \(fate.accepted) times: \(fate)")
        }
        if rows.integrity != ["ok"] { world.violate(.theFileStaysIntact, "\(rows.integrity)") }
    }
}
