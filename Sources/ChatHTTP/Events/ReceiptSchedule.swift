import ChatDomain

/// Selects the rooms whose receipts to read next. A room is due after a change. For a minute after a message, the room
/// is also due every few seconds, because the message's pushes are in progress.
struct ReceiptSchedule: Sendable {
    /// The maximum number of rooms per call of ``take(now:isOpen:)``.
    static let roomsPerRun = 200
    private static let sendingTime = Duration.seconds(60)
    private static let interval = Duration.seconds(5)

    private var due: Set<SecretCode> = []
    /// The time until which a room's pushes may be in progress.
    private var sending: [SecretCode: Duration] = [:]
    private var nextRound = Duration.zero

    mutating func changed(in rooms: some Sequence<SecretCode>) {
        due.formUnion(rooms)
    }

    mutating func posted(in room: SecretCode, at now: Duration) {
        due.insert(room)
        sending[room] = now + Self.sendingTime
    }

    /// Returns the rooms whose receipts are due, and removes them from the schedule.
    ///
    /// - Parameter isOpen: Whether a room has streams.
    mutating func take(now: Duration, isOpen: (SecretCode) -> Bool) -> [SecretCode] {
        // A new round starts only after all rooms of the last one had their turn.
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
