import Foundation

/// Reads a file as bytes, with one piece in memory, and counts lines.
struct ByteReader {
    private static let pieceSize = 1 << 16

    private let more: () throws -> [UInt8]
    private var bytes: [UInt8] = []
    private var position = 0
    private(set) var line = 1

    /// Creates a reader.
    /// - Parameter more: Returns the next bytes. Returns no bytes at the end.
    init(_ more: @escaping () throws -> [UInt8]) {
        self.more = more
    }

    init(_ file: FileHandle) {
        self.init { Array(try file.read(upToCount: Self.pieceSize) ?? Data()) }
    }

    /// The next byte, without consuming it. `nil` at the end.
    mutating func peek() throws -> UInt8? {
        if position == bytes.count {
            (bytes, position) = (try more(), 0)
            if bytes.isEmpty { return nil }
        }
        return bytes[position]
    }

    /// The byte after the next one, without consuming either. `nil` if there is none.
    mutating func peekSecond() throws -> UInt8? {
        guard try peek() != nil else { return nil }
        if position + 1 == bytes.count { bytes += try more() }
        return position + 1 < bytes.count ? bytes[position + 1] : nil
    }

    mutating func next() throws -> UInt8? {
        guard let byte = try peek() else { return nil }
        position += 1
        if byte == UInt8(ascii: "\n") { line += 1 }
        return byte
    }

    /// Consumes the next byte if it equals `byte`.
    ///
    /// - Returns: Whether the byte was consumed.
    mutating func skip(_ byte: UInt8) throws -> Bool {
        guard try peek() == byte else { return false }
        _ = try next()
        return true
    }
}

/// The reason why a file cannot be read any further.
struct UnreadableFile: Error, Equatable, CustomStringConvertible {
    let line: Int
    let text: String

    var description: String { "line \(line): \(text)" }
}
