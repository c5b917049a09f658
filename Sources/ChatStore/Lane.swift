/// In which order the due entries of an app go. As the index push_queue_due has it.
enum Lane: Int64, CaseIterable {
    /// What the chat, other programs and notifications to few send.
    case first = 0
    /// For one of very many.
    case bulk = 1
    /// What a connection ended over, or the gateway sent back.
    case trouble = 2

    /// Of an entry. The column names stand in `push_queue` alone.
    static let sql = "(CASE WHEN unanswered > 0 OR refused > 0 THEN 2 ELSE bulk END)"
}

/// Which lane an app's next lease is for.
struct LaneTurn {
    /// Nil: all of them, in their order.
    var next: Lane?
    /// The lane that had a turn last.
    var last: Lane?

    /// Who may have the next turn, after a lease in order that came as far as a lane.
    func candidates(after lane: Lane?) -> [Lane] {
        let waiting = lane == .first ? [Lane.bulk, .trouble] : [.trouble]
        return last == waiting.first ? waiting.reversed() : waiting
    }
}
