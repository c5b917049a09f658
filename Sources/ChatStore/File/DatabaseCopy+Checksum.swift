import Crypto
import Foundation

/// The checksums of copies. SQLite's own check notices neither a changed text nor most damage within a row.
extension DatabaseCopy {
    /// The number of bytes to read at a time.
    private static let chunk = 1 << 20

    /// The file with the checksum of a copy, in the format of `sha256sum`.
    static func checksumFile(of copy: String) -> String { copy + ".sha256" }

    /// Writes the checksum of a draft, under the name that the draft will get.
    static func writeChecksum(of draft: String, as copy: String) throws {
        let file = checksumFile(of: copy)
        let line = "\(try sha256(of: draft))  \((copy as NSString).lastPathComponent)\n"
        let checksumDraft = "\(draft.dropLast(".part".count)).sha256.part"
        let descriptor = Foundation.open(checksumDraft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw DatabaseFile.unusable("\(file) cannot be written") }
        defer { unlink(checksumDraft) }
        do {
            let handle = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
            try handle.write(contentsOf: Data(line.utf8))
            try handle.synchronize()
        } catch {
            throw DatabaseFile.Unusable(description: "\(file) cannot be written: \(error.localizedDescription)")
        }
        guard rename(checksumDraft, file) == 0 else { throw DatabaseFile.unusable("\(file) cannot be created") }
    }

    /// Compares a copy with its checksum.
    ///
    /// - Returns: Whether the copy has a checksum.
    /// - Throws: ``DatabaseFile/Unusable`` if the two differ.
    static func requireUnchanged(_ copy: String) throws -> Bool {
        let file = checksumFile(of: copy)
        guard access(file, F_OK) == 0 else { return false }
        let line: String
        do {
            line = try String(contentsOfFile: file, encoding: .utf8)
        } catch {
            throw DatabaseFile.Unusable(description: "\(file) cannot be read: \(error.localizedDescription)")
        }
        guard line.split(separator: " ").first.map(String.init) == (try sha256(of: copy)) else {
            throw DatabaseFile.Unusable(
                description: """
                    \(copy) has changed since it was made: it differs from its checksum in \(file). Use another copy. \
                    If you changed this one, delete that file
                    """)
        }
        return true
    }

    private static func sha256(of file: String) throws -> String {
        guard let handle = FileHandle(forReadingAtPath: file) else {
            throw DatabaseFile.unusable("\(file) cannot be read")
        }
        defer { try? handle.close() }
        var hash = SHA256()
        do {
            while let bytes = try handle.read(upToCount: chunk), !bytes.isEmpty { hash.update(data: bytes) }
        } catch {
            throw DatabaseFile.Unusable(description: "\(file) cannot be read: \(error.localizedDescription)")
        }
        return hash.finalize().map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
}
