import ChatDomain
import Synchronization

/// One client's stream of its room, as the hub sees it.
final class EventStream: Sendable, Hashable {
    /// Why it ends.
    enum End: Sendable, Equatable {
        /// The member is not in the room any more.
        case left
        /// Too slow, or the process is being stopped: the client comes again.
        case comeAgain
        /// The client has gone.
        case gone
    }

    private struct State {
        /// There may be something to write.
        var isWoken = false
        var waiting: CheckedContinuation<Void, Never>?
        var end: End?
        /// The last time that something was to be written, and whether that is still under way.
        var lastWrite = ContinuousClock.now
        var isWriting = false
    }

    let member: MemberID
    let room: SecretCode
    private let close: @Sendable () -> Void
    private let state = Mutex(State())

    /// - Parameter close: closes the connection, whatever is being written.
    init(member: MemberID, room: SecretCode, close: @escaping @Sendable () -> Void) {
        self.member = member
        self.room = room
        self.close = close
    }

    static func == (left: EventStream, right: EventStream) -> Bool { left === right }

    func hash(into hasher: inout Hasher) {
        hasher.combine(ObjectIdentifier(self))
    }

    var end: End? { state.withLock { $0.end } }

    func wake() {
        let waiting = state.withLock { state in
            state.isWoken = true
            defer { state.waiting = nil }
            return state.waiting
        }
        waiting?.resume()
    }

    /// The first end stands.
    /// - Parameter cutsOff: what is being written is not waited for.
    func end(_ end: End, cutsOff: Bool = false) {
        let isWriting = state.withLock { state in
            if state.end == nil { state.end = end }
            return state.isWriting
        }
        if cutsOff, isWriting { close() }
        wake()
    }

    /// Waits for the next ``wake()``, or returns at once when one has come since the last.
    func wait() async {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isReady = state.withLock { state in
                    if state.isWoken || Task.isCancelled {
                        state.isWoken = false
                        return true
                    }
                    state.waiting = continuation
                    return false
                }
                if isReady { continuation.resume() }
            }
        } onCancel: {
            wake()
        }
        state.withLock { $0.isWoken = false }
    }

    func willWrite() {
        state.withLock { state in
            state.lastWrite = .now
            state.isWriting = true
        }
    }

    func hasWritten() {
        state.withLock { $0.isWriting = false }
    }

    /// Whether a write is under way, and since when there was none that was new.
    var writing: (isUnderWay: Bool, since: ContinuousClock.Instant) {
        state.withLock { ($0.isWriting, $0.lastWrite) }
    }
}
