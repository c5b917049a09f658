import Foundation

/// Counts notifications by device, second for second.
struct DeviceRate: Sendable {
    /// Devices that are counted in a second; more are let pass uncounted.
    static let limit = 100_000

    private var second: Int64 = 0
    private var counts: [[UInt8]: Int] = [:]

    /// Counts one more.
    /// - Returns: how many there have been in this second, this one included.
    mutating func count(_ token: [UInt8], at now: Date) -> Int {
        let current = Int64(now.timeIntervalSince1970.rounded(.down))
        if current != second {
            second = current
            counts.removeAll(keepingCapacity: true)
        }
        guard counts.count < Self.limit || counts[token] != nil else { return 1 }
        counts[token, default: 0] += 1
        return counts[token, default: 0]
    }
}
