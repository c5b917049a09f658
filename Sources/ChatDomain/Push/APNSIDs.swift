/// Derives a push's UUID from its push id. The result is always the same, so the UUID need not be stored.
///
/// No two pushes of one database have the same UUID, because the mixing of the push id is reversible. Databases differ
/// by their random key. The UUID hides nothing and proves nothing: the ids that Apple receives reveal the key. Derive
/// no secret from the key.
package struct APNSIDs: Sendable {
    private let high: UInt64
    private let key: UInt64

    /// Uses the key of a database.
    ///
    /// - Parameter bytes: Sixteen random bytes, the key of the database.
    package init(key bytes: [UInt8]) {
        func number(_ bytes: ArraySlice<UInt8>) -> UInt64 { bytes.reduce(0) { $0 << 8 | UInt64($1) } }
        // Version 4 (RFC 9562 §5.4).
        high = number(bytes.prefix(8)) & ~0xF000 | 0x4000
        key = number(bytes.dropFirst(8).prefix(8))
    }

    /// The UUID of a push, in lower case.
    package func id(of pushID: Int64) -> String {
        // The variant leaves 62 bits. Each step is reversible within them.
        let mask: UInt64 = 1 << 62 - 1
        var bits = (UInt64(bitPattern: pushID) ^ key) & mask
        bits = bits &* 0xBF58_476D_1CE4_E5B9 & mask
        bits ^= bits >> 31
        bits = bits &* 0x94D0_49BB_1331_11EB & mask
        bits ^= bits >> 29
        return Self.text(high, bits | 1 << 63)
    }

    private static func text(_ high: UInt64, _ low: UInt64) -> String {
        String(unsafeUninitializedCapacity: 36) { bytes in
            var place = 0
            for index in 0..<32 {
                if index == 8 || index == 12 || index == 16 || index == 20 {
                    bytes[place] = UInt8(ascii: "-")
                    place += 1
                }
                let number = index < 16 ? high : low
                bytes[place] = Hex.digit(UInt8(truncatingIfNeeded: number >> UInt64(60 - index % 16 * 4)) & 15)
                place += 1
            }
            return place
        }
    }
}
