import ChatDomain
import Synchronization

/// Keeps a stream open until it is released, even if its response is never written.
final class EventSubscription: Sendable {
    let stream: EventStream
    private let onRelease: @Sendable () -> Void

    init(stream: EventStream, onRelease: @escaping @Sendable () -> Void) {
        self.stream = stream
        self.onRelease = onRelease
    }

    deinit { onRelease() }
}

/// One client's event stream of a room, or of several rooms and topics.
final class EventStream: Sendable, Hashable {
    /// The reason for the end of a stream.
    enum End: Sendable, Equatable {
        /// The member has left the room.
        case left
        /// The member was removed from the room.
        case removed
        /// The room has this new code. The client must reconnect.
        case moved(SecretCode)
        /// The client is too slow, its session or token has ended, or the process is stopping. The client must
        /// reconnect.
        case reconnect
        /// The client closed the connection.
        case disconnected
    }

    private struct State {
        /// Whether ``wake()`` was called after the last ``wait()``.
        var isWoken = false
        var waiter: CheckedContinuation<Void, Never>?
        var end: End?
        /// The last receipt, and whether it has not been written.
        var receipt: (last: Receipt, isNew: Bool)?
        var lastWrite: (began: Duration, isInProgress: Bool)
        /// The time of the first ping since the client's last sign of life. `nil` if there was none.
        var pinged: Duration?
    }

    /// The client's right to read the rooms.
    enum Admission: Sendable, Hashable {
        /// A member, until it leaves the room. With a session, the stream ends at the end of the session.
        case member(sessionEnd: Timestamp?)
        /// A program or another app, as long as this token or credential of the relay grants access to all rooms.
        case program(secret: String)
    }

    /// The reader. For a program, the id under which it posts.
    let member: MemberID
    let admission: Admission
    /// The address that the stream counts for. `nil` for programs on this machine.
    let address: IPAddress?
    let sources: [StreamSource]
    /// For each source, ``StreamStart/historyFrom``.
    private let histories: [MessageID]
    /// All messages and changes up to this one were stored when the stream was opened.
    let start: MessageID
    /// The time without an event after which the stream writes a heartbeat.
    let heartbeat: Duration
    private let clock: MonotonicTime
    private let close: @Sendable () -> Void
    private let state: Mutex<State>

    init(
        member: MemberID, admission: Admission, address: IPAddress?, sources: [StreamSource],
        histories: [MessageID], start: MessageID, heartbeat: Duration, clock: MonotonicTime,
        close: @escaping @Sendable () -> Void
    ) {
        self.member = member
        self.address = address
        self.sources = sources
        self.histories = histories
        self.start = start
        self.heartbeat = heartbeat
        self.admission = admission
        self.clock = clock
        self.close = close
        state = Mutex(State(lastWrite: (clock.now(), false)))
    }

    static func == (left: EventStream, right: EventStream) -> Bool { left === right }

    func hash(into hasher: inout Hasher) {
        hasher.combine(ObjectIdentifier(self))
    }

    var hasSeveralSources: Bool { sources.count > 1 }
    /// The rooms among the sources.
    var rooms: some Sequence<SecretCode> { sources.lazy.compactMap(\.room) }
    /// The topics of UnifiedPush among the sources.
    var topics: some Sequence<UnifiedPushTopic> { sources.lazy.compactMap(\.topic) }

    /// Whether the caller may read all sources.
    ///
    /// - Parameters:
    ///   - caller: `nil` if the caller's token or credential has ended.
    ///   - owned: The topics that the caller owns.
    func isOpen(to caller: Caller?, owning owned: Set<UnifiedPushTopic>) -> Bool {
        guard let caller else { return false }
        return sources.allSatisfy { source in
            switch source {
            case .room(let code): caller.reads(code)
            case .topic(let topic): owned.contains(topic)
            }
        }
    }

    /// Whether the reader may read an event. Streams begin after the messages that the reader may not read, but these may
    /// change later.
    func mayRead(_ event: RoomEvent) -> Bool {
        guard !event.isMessage, let source = sources.firstIndex(of: event.source) else { return true }
        return event.messageID > histories[source]
    }

    var isOfMember: Bool { if case .member = admission { true } else { false } }

    /// The reason for the end. `nil` while the stream is open.
    var end: End? { state.withLock { $0.end } }

    /// The start of the last write, in ``MonotonicTime``, and whether it is still in progress.
    var lastWrite: (began: Duration, isInProgress: Bool) { state.withLock { $0.lastWrite } }

    /// Stores a receipt to write. Ignores an empty receipt and one equal to the last.
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

    func wake() {
        let waiter = state.withLock { state in
            state.isWoken = true
            defer { state.waiter = nil }
            return state.waiter
        }
        waiter?.resume()
    }

    /// Ends the stream. Only the first reason counts.
    ///
    /// - Parameter closesConnection: Whether to abort a write in progress and close its connection.
    func end(_ end: End, closesConnection: Bool = false) {
        let isWriting = state.withLock { state in
            state.end = state.end ?? end
            return state.lastWrite.isInProgress
        }
        if closesConnection, isWriting { close() }
        wake()
    }

    /// Waits for the next ``wake()``. Returns at once if ``wake()`` was called after the last wait.
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

    /// The stream sends a ping, which the client must answer.
    func willPing() {
        state.withLock { $0.pinged = $0.pinged ?? clock.now() }
    }

    /// The client has sent something over its WebSocket.
    func heard() {
        state.withLock { $0.pinged = nil }
    }

    /// Whether the client has left a ping unanswered for too long.
    func isDead(at now: Duration) -> Bool {
        state.withLock { $0.pinged.map { now - $0 >= WebSocket.pongTime } ?? false }
    }

    func beginWrite() {
        state.withLock { $0.lastWrite = (clock.now(), true) }
    }

    func endWrite() {
        state.withLock { $0.lastWrite.isInProgress = false }
    }
}
