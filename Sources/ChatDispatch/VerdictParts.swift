import ChatDomain

extension [Verdict] {
    /// The verdicts in their order, cut into parts about so many entries each: what is written down in one transaction, for
    /// which a message's answer may have to wait.
    func parts(of size: UInt32) -> [[Verdict]] {
        var parts: [[Verdict]] = [[]]
        var room = size
        for verdict in self {
            var next = verdict.identifiers.lowerBound
            while true {
                let end = verdict.identifiers.upperBound
                let last = end - next < room ? end : next + room - 1
                parts[parts.count - 1].append(
                    Verdict(
                        connection: verdict.connection, identifiers: next...last, outcome: verdict.outcome,
                        overrulesSilence: verdict.overrulesSilence))
                room -= last - next + 1
                if room == 0 {
                    parts.append([])
                    room = size
                }
                if last == end { break }
                next = last + 1
            }
        }
        return parts.filter { !$0.isEmpty }
    }
}
