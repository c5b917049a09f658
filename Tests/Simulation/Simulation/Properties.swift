/// The sentences of docs/delivery.md and docs/stores.md that each run checks, and a few that hold for the whole.
enum Property: Int, CaseIterable {
    // docs/delivery.md
    case durableBefore200
    case pendingUntilTheOutcomeIsKnown
    case everyPushGetsAResponse
    case atLeastOnce
    case duplicatesAreRare
    case oneBadPushFailsAlone
    case theRelayRetriesWithoutEnd

    // docs/http2-gateway.md
    case theSameIDAtEachAttempt
    case thePeersLimitsHold
    case theServiceGetsWhatIsQueued

    // docs/stores.md
    case durable
    case aThrowingCallChangesNothing
    case leasedOnce
    case orderOfALease
    case recipientsAreTheMembersAtThatTime
    case errorsAreChatErrors
    case noWaitingPushToARemovedMember
    case bansHold
    case deletedMessagesAreNotSent
    case oneNotificationForEachDevice
    case cancelledNotificationsAreNotSent
    case countsOfANotification
    case notBeforeItsTime
    case dueWithoutDelay
    case aPauseHolds
    case theRelaySendsRowsOfOtherPrograms
    case retentionKeepsUnsettledPushes

    // The whole
    case theFileStaysIntact
    case nothingWaitsForever
    case noErrorWithoutAFault
    case theRelayComesBack
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
            case _ where world.parts.contains { $0.permits(push) }: break
            default:
                let end = "\(push.state) (\(push.reason ?? ""))"
                world.violate(
                    push.state == "failed" ? .oneBadPushFailsAlone : .pendingUntilTheOutcomeIsKnown,
                    "push \(push.id) is \(end): \(fate)")
            }
        }
        for (push, fate) in world.ledger.fates.sorted(by: { $0.key < $1.key }) where fate.accepted > 1 + fate.doubts {
            world.violate(.duplicatesAreRare, "push \(push) was accepted \(fate.accepted) times: \(fate)")
        }
        if rows.integrity != ["ok"] { world.violate(.theFileStaysIntact, "\(rows.integrity)") }
    }
}
