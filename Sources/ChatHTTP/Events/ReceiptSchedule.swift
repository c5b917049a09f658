import ChatDomain

/// Of which rooms the receipts are read next: where something has changed, and for a minute after a message every few seconds,
/// because its pushes are under way.
struct ReceiptSchedule: Sendable {
    /// Rooms at a time.
    static let roomsPerRun = 200
    private static let sendingTime = Duration.seconds(60)
    private static let interval = Duration.seconds(5)

    private var due: Set<SecretCode> = []
    /// Until when a room's pushes may be under way.
    private var sending: [SecretCode: Duration] = [:]
    private var nextRound = Duration.zero

    mutating func changed(in rooms: some Sequence<SecretCode>) {
        due.formUnion(rooms)
    }

    mutating func posted(in room: SecretCode, at now: Duration) {
        due.insert(room)
        sending[room] = now + Self.sendingTime
    }

    /// - Parameter isOpen: whether a room has streams.
    mutating func take(now: Duration, isOpen: (SecretCode) -> Bool) -> [SecretCode] {
        // Not before all others have had their turn.
        if due.isEmpty, now >= nextRound {
            sending = sending.filter { $0.value > now && isOpen($0.key) }
            due.formUnion(sending.keys)
            nextRound = now + Self.interval
        }
        let some = Array(due.prefix(Self.roomsPerRun))
        due.subtract(some)
        return some
    }
}
