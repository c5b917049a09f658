import APNSWire
import Foundation

/// One HTTP/2 connection as the rules see it: who the client is, and which tokens it used.
struct ProviderConnection: Sendable {
    /// The connection's number, from 1.
    let number: Int
    /// What the client showed in TLS; nil: it has to send provider tokens.
    let certificate: ClientCertificate?
    let policy: ProviderPolicy
    var authentication = ProviderAuthentication()
    /// The sandbox stops.
    var isStopping = false
    private var ids: RandomIDs

    init(
        number: Int, certificate: ClientCertificate?, policy: ProviderPolicy,
        seed: UInt64 = .random(in: 0 ... .max)
    ) {
        self.number = number
        self.certificate = certificate
        self.policy = policy
        ids = RandomIDs(seed: seed)
    }

    mutating func newID() -> String { ids.next() }
}

/// Makes UUIDs (version 4, lower case) that look random; a question to the system for each would cost more than the rest
/// of the answer.
struct RandomIDs: Sendable {
    private var state: UInt64
    private static let digits = Array("0123456789abcdef".utf8)

    init(seed: UInt64) {
        state = seed
    }

    mutating func next() -> String {
        var high = word()
        var low = word()
        high = high & ~0xF000 | 0x4000
        low = low & ~(0xC << 60) | 0x8 << 60
        return String(unsafeUninitializedCapacity: 36) { text in
            var place = 0
            for (index, word) in [high, low].enumerated() {
                for digit in 0..<16 {
                    if index == 0 ? digit == 8 || digit == 12 : digit == 0 || digit == 4 {
                        text[place] = UInt8(ascii: "-")
                        place += 1
                    }
                    text[place] = Self.digits[Int(word >> (60 - 4 * UInt64(digit)) & 15)]
                    place += 1
                }
            }
            return place
        }
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    private mutating func word() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return word ^ word >> 31
    }
}
