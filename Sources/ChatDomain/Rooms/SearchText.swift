import Foundation

/// A text to search for in messages.
///
/// Upper and lower case are alike in every script, and so are an accented letter and its parts. The text may begin and
/// end inside a word. The comparison is the same for both databases, because it does not use theirs.
package struct SearchText: Sendable, Hashable {
    package static let longest = 255

    /// The folded text in UTF-8.
    private let pattern: [UInt8]
    /// For each length of a matching beginning: the length of the next shorter one that it ends with. So a search takes
    /// one step for each byte, whatever the texts are (Knuth, Morris and Pratt).
    private let shorter: [Int]

    package init(parsing text: String, field: String = "text") throws(ChatError) {
        self.init(try FieldText.checked(text, field: field, limit: Self.longest))
    }

    private init(_ text: String) {
        var pattern: [UInt8] = []
        for scalar in text.unicodeScalars { pattern += CaseFolding.shared.folded(scalar) }
        var shorter = [0, 0]
        var length = 0
        for byte in pattern.dropFirst() {
            while length > 0, pattern[length] != byte { length = shorter[length] }
            if pattern[length] == byte { length += 1 }
            shorter.append(length)
        }
        self.pattern = pattern
        self.shorter = shorter
    }

    /// Returns whether a message's text or title contains this text.
    package func isFound(inText text: String, title: String?) -> Bool {
        isFound(in: text) || title.map(isFound(in:)) ?? false
    }

    package func isFound(in text: String) -> Bool {
        var text = text
        return text.withUTF8 { bytes in
            let folding = CaseFolding.shared
            var (length, index) = (0, 0)
            while index < bytes.count {
                let first = bytes[index]
                let isWhole = length == pattern.count
                if first < 0x80 {
                    if isWhole { return true }
                    length = advanced(length, by: CaseFolding.folded(first))
                    index += 1
                    continue
                }
                let width = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4
                let scalar = CaseFolding.scalar(bytes[index..<index + width])
                // An accent belongs to the letter before it: "cafe" is not in "café".
                if isWhole, scalar.properties.canonicalCombiningClass == .notReordered { return true }
                if let folded = folding.range(of: scalar) {
                    for byte in folding.bytes[folded] { length = advanced(length, by: byte) }
                } else {
                    for byte in bytes[index..<index + width] { length = advanced(length, by: byte) }
                }
                index += width
            }
            return length == pattern.count
        }
    }

    /// Returns the length of the pattern's beginning that matches after another byte.
    @inline(__always)
    private func advanced(_ length: Int, by byte: UInt8) -> Int {
        var length = length == pattern.count ? shorter[length] : length
        while length > 0, pattern[length] != byte { length = shorter[length] }
        return pattern[length] == byte ? length + 1 : 0
    }
}

/// The form in which texts are compared: the lower case of the upper case of each scalar, with accents apart.
private struct CaseFolding: Sendable {
    static let shared = CaseFolding()

    /// The blocks of Unicode that have letters with case or accents. Folding changes no other scalars.
    private static let blocks: [ClosedRange<UInt32>] = [
        0x0080...0x2FFF, 0xA640...0xA7FF, 0xAB30...0xABBF, 0xF900...0xFFFF, 0x10400...0x105BF, 0x10C80...0x10CFF,
        0x118A0...0x118DF, 0x16E40...0x16E7F, 0x1E900...0x1E943,
    ]

    /// The folded scalars of all blocks in UTF-8, in the order of the blocks.
    let bytes: [UInt8]
    /// The positions in `bytes` at which the scalars begin, and the end.
    private let starts: [Int]

    private init() {
        var (bytes, starts) = ([UInt8](), [0])
        for value in Self.blocks.joined() {
            // The blocks have no surrogates.
            if let scalar = Unicode.Scalar(value) { bytes += Self.made(scalar) }
            starts.append(bytes.count)
        }
        self.bytes = bytes
        self.starts = starts
    }

    private static func made(_ scalar: Unicode.Scalar) -> [UInt8] {
        let upper = scalar.properties.uppercaseMapping.unicodeScalars
        let folded = upper.map(\.properties.lowercaseMapping).joined()
        return Array(folded.decomposedStringWithCanonicalMapping.utf8)
    }

    /// Returns the position in `bytes` of a scalar's folded form. `nil` for a scalar outside of the blocks.
    func range(of scalar: Unicode.Scalar) -> Range<Int>? {
        var before = 0
        for block in Self.blocks {
            guard scalar.value > block.upperBound else {
                guard scalar.value >= block.lowerBound else { return nil }
                let index = before + Int(scalar.value - block.lowerBound)
                return starts[index]..<starts[index + 1]
            }
            before += block.count
        }
        return nil
    }

    func folded(_ scalar: Unicode.Scalar) -> [UInt8] {
        if scalar.isASCII { return [Self.folded(UInt8(scalar.value))] }
        return range(of: scalar).map { Array(bytes[$0]) } ?? Array(String(scalar).utf8)
    }

    @inline(__always)
    static func folded(_ byte: UInt8) -> UInt8 {
        UInt8(ascii: "A") <= byte && byte <= UInt8(ascii: "Z") ? byte | 0x20 : byte
    }

    /// Decodes the bytes of one scalar that is not ASCII.
    @inline(__always)
    static func scalar(_ bytes: Slice<UnsafeBufferPointer<UInt8>>) -> Unicode.Scalar {
        let first = bytes[bytes.startIndex]
        var value = UInt32(first) & (first < 0xE0 ? 0x1F : first < 0xF0 ? 0x0F : 0x07)
        for byte in bytes.dropFirst() { value = value << 6 | UInt32(byte & 0x3F) }
        return Unicode.Scalar(value) ?? "\u{FFFD}"
    }
}
