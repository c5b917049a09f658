/// The number of the request that wrote a text. The texts of programs' messages contain it, and with them the payloads of
/// their pushes.
struct Marker: Hashable, Sendable, CustomStringConvertible {
    static let prefix = "rev#"
    private static let bytes = Array(prefix.utf8)

    let number: Int

    init(_ number: Int) { self.number = number }

    /// `nil` if the bytes contain no marker.
    init?(in bytes: some Collection<UInt8>) {
        let found: Int? =
            bytes.withContiguousStorageIfAvailable { Self.number(in: $0) } ?? Self.number(in: Array(bytes))
        guard let found else { return nil }
        number = found
    }

    private static func number(in bytes: some RandomAccessCollection<UInt8>) -> Int? {
        var position = bytes.startIndex
        while let start = bytes[position...].firstIndex(of: Self.bytes[0]) {
            let rest = bytes[start...]
            if rest.starts(with: Self.bytes) {
                let digits = rest.dropFirst(Self.bytes.count).prefix {
                    (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0)
                }
                return Int(String(decoding: digits, as: UTF8.self))
            }
            position = bytes.index(after: start)
        }
        return nil
    }

    var text: String { "\(Self.prefix)\(number)." }
    var description: String { text }
}
