import ChatDomain

/// The world's knowledge of each push: how often the relay wrote it, and how its service decided.
final class Ledger: @unchecked Sendable {
    struct Fate {
        /// The number of times that the relay wrote the push.
        var written = 0
        /// The number of times that the service accepted the push.
        var accepted = 0
        /// The number of times that the relay could not know whether the service had accepted the push.
        var doubts = 0
        /// Whether the relay has written the push, and has not recorded an outcome since.
        var isOpen = false
        /// Whether ``doubts`` includes the relay's last death, and no request of that life has taken this doubt.
        var hasDeathsDoubt = false
        /// The reasons for which the service has rejected the push for good.
        var rejections: Set<String> = []
    }

    private(set) var fates: [Int64: Fate] = [:]
    /// Called for each push that a service accepts.
    var onAcceptance: (Int64) -> Void = { _ in }
    /// The tokens that a service has reported as gone.
    var unregistered: Set<String> = []

    func fate(of push: Int64) -> Fate { fates[push] ?? Fate() }

    /// Whether a push has failed without a request because its device is gone.
    func isGone(_ push: StoredRows.Push) -> Bool {
        push.state == "failed" && push.reason == PushLifeCycle.deviceInactive && unregistered.contains(push.token)
    }

    func wrote(_ push: Int64) { change(push) { ($0.written, $0.isOpen) = ($0.written + 1, true) } }
    func accepted(_ push: Int64) {
        change(push) { $0.accepted += 1 }
        onAcceptance(push)
    }
    func rejected(_ push: Int64, _ reason: String) { change(push) { $0.rejections.insert(reason) } }
    /// A connection ended before the relay had read a response.
    ///
    /// - Parameter afterDeath: Whether the relay had died. The death counts for one request of the push. The relay has given
    ///   up any other before.
    func doubted(_ push: Int64, afterDeath: Bool = false) {
        change(push) { fate in
            if afterDeath, fate.hasDeathsDoubt { fate.hasDeathsDoubt = false } else { fate.doubts += 1 }
        }
    }
    /// The relay has the outcome on disk.
    func recorded(_ pushes: some Sequence<Int64>) {
        for push in pushes where fates[push] != nil { change(push) { $0.isOpen = false } }
    }

    /// The relay cannot know the outcome of pushes that it has written.
    func doubtAllOpen() { for (push, fate) in fates where fate.isOpen { fates[push]?.doubts += 1 } }

    func relayDied() {
        doubtAllOpen()
        for push in fates.keys { change(push) { ($0.hasDeathsDoubt, $0.isOpen) = ($0.isOpen, false) } }
    }

    private func change(_ push: Int64, _ change: (inout Fate) -> Void) { change(&fates[push, default: Fate()]) }
}
