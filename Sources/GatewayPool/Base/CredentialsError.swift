import Foundation

/// A certificate or key that cannot be used. The description names the file, the reason and the remedy.
package struct CredentialsError: Error, Sendable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) {
        self.description = description
    }

    /// Reads a whole file.
    /// - Parameters:
    ///   - limit: The maximum size in bytes.
    ///   - expected: The content that the file should have, for the error message.
    package static func read(_ file: String, limit: Int, expected: String) throws(CredentialsError) -> [UInt8] {
        guard let handle = FileHandle(forReadingAtPath: file) else {
            throw CredentialsError("\(file) cannot be opened: \(String(cString: strerror(errno)))")
        }
        defer { try? handle.close() }
        guard let data = try? handle.read(upToCount: limit + 1), !data.isEmpty else {
            throw CredentialsError("\(file) is empty or cannot be read; \(expected)")
        }
        guard data.count <= limit else { throw CredentialsError("\(file) has over \(limit) bytes; \(expected)") }
        return Array(data)
    }
}
