import ChatDomain
import Synchronization

/// A stream that is open until this is released, also where an answer is made and never written.
final class EventSubscription: Sendable {
    let stream: EventStream
    private let onRelease: @Sendable () -> Void

    init(stream: EventStream, onRelease: @escaping @Sendable () -> Void) {
        self.stream = stream
        self.onRelease = onRelease
    }

    deinit { onRelease() }
}

/// One client's stream of its room.
final class EventStream: Sendable, Hashable {
    /// Why it ends.
    enum End: Sendable, Equatable {
        /// The member is not in the room any more.
        case left
        /// As ``left``, and not by the member itself.
        case removed
        /// The member's room has this code now; the client has to connect again.
        case moved(SecretCode)
        /// The client is too slow, its session or token has ended, or the process stops: the client has to connect again.
        case reconnect
        /// The client has closed the connection.
        case disconnected
    }

    private struct State {
        /// ``wake()`` was called after the last ``wait()``.
        var isWoken = false
        var waiter: CheckedContinuation<Void, Never>?
        var end: End?
        /// To be told; see ``mostDeleted``.
        var deleted: [MessageID] = []
        /// The last one that was noted, and whether it is still to be told.
        var receipt: (last: Receipt, isNew: Bool)?
        var lastWrite: (began: Duration, isUnderWay: Bool)
    }

    /// The reason for which the client may read the room.
    enum Admission: Sendable, Hashable {
        /// A member, until it leaves the room. With a session, the stream ends when the session does.
        case member(sessionEnd: Timestamp?)
        /// A program, until this token of the relay does not open the room any more.
        case program(secret: String)
    }

    /// The reader; for a program the writer that it posts as.
    let member: MemberID
    let admission: Admission
    /// By which it is counted; nil for this machine's own programs.
    let address: IPAddress?
    let room: SecretCode
    private let clock: MonotonicTime
    private let close: @Sendable () -> Void
    private let state: Mutex<State>

    init(
        member: MemberID, admission: Admission, address: IPAddress?, room: SecretCode,
        clock: MonotonicTime, close: @escaping @Sendable () -> Void
    ) {
        self.member = member
        self.address = address
        self.room = room
        self.admission = admission
        self.clock = clock
        self.close = close
        state = Mutex(State(lastWrite: (clock.now(), false)))
    }

    static func == (left: EventStream, right: EventStream) -> Bool { left === right }

    func hash(into hasher: inout Hasher) {
        hasher.combine(ObjectIdentifier(self))
    }

    var isOfMember: Bool { if case .member = admission { true } else { false } }

    /// Nil while it is open.
    var end: End? { state.withLock { $0.end } }

    /// When the last write began, in ``MonotonicTime``, and whether it is still under way.
    var lastWrite: (began: Duration, isUnderWay: Bool) { state.withLock { $0.lastWrite } }

    /// Messages that were deleted and are still to be told: a stream that nobody reads keeps the newest of them.
    private static let mostDeleted = 256

    func noteDeleted(_ messages: [MessageID]) {
        state.withLock { state in
            state.deleted = (state.deleted + messages).suffix(Self.mostDeleted)
        }
        wake()
    }

    /// One that says nothing yet is not told, and none is told twice.
    func note(_ receipt: Receipt) {
        let isNew = state.withLock { state in
            guard receipt != state.receipt?.last, receipt.reached + receipt.fetched > 0 else { return false }
            state.receipt = (receipt, true)
            return true
        }
        if isNew { wake() }
    }

    func takeReceipt() -> Receipt? {
        state.withLock { state in
            guard let receipt = state.receipt, receipt.isNew else { return nil }
            state.receipt?.isNew = false
            return receipt.last
        }
    }

    /// Nil if there are none.
    func takeDeleted() -> [MessageID]? {
        state.withLock { state in
            defer { state.deleted = [] }
            return state.deleted.isEmpty ? nil : state.deleted
        }
    }

    func wake() {
        let waiter = state.withLock { state in
            state.isWoken = true
            defer { state.waiter = nil }
            return state.waiter
        }
        waiter?.resume()
    }

    /// The first end counts.
    ///
    /// - Parameter closesConnection: whether a write that is under way is aborted, with its connection.
    func end(_ end: End, closesConnection: Bool = false) {
        let isWriting = state.withLock { state in
            state.end = state.end ?? end
            return state.lastWrite.isUnderWay
        }
        if closesConnection, isWriting { close() }
        wake()
    }

    /// Waits for the next ``wake()``; returns at once if there was one since the last wait.
    func wait() async {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isReady = state.withLock { state in
                    if state.isWoken || Task.isCancelled { return true }
                    state.waiter = continuation
                    return false
                }
                if isReady { continuation.resume() }
            }
        } onCancel: {
            wake()
        }
        state.withLock { $0.isWoken = false }
    }

    func beginWrite() {
        state.withLock { $0.lastWrite = (clock.now(), true) }
    }

    func endWrite() {
        state.withLock { $0.lastWrite.isUnderWay = false }
    }
}
