import Foundation

/// The source or the destination of a migration.
enum DatabasePlace: Sendable, CustomStringConvertible {
    case file(String)
    case postgres(url: Secret, schema: String?)

    /// The size limit in bytes of a file that contains a URL. Real files are far smaller.
    private static let maxFileSize = 1 << 16

    init(_ text: String, schema: String?) throws {
        var url = text
        if text.hasPrefix("@") {
            let path = String(text.dropFirst())
            do throws(ReadableFile.Problem) {
                url = try ReadableFile.text(path, limit: Self.maxFileSize)
                    .trimmingCharacters(in: .whitespacesAndNewlines)
            } catch {
                throw Failure("\(text) names a file, \(error)")
            }
        }
        if url.hasPrefix("postgres://") || url.hasPrefix("postgresql://") {
            self = .postgres(url: Secret(url), schema: schema)
        } else if text.hasPrefix("@") {
            throw Failure("\(text) names a file without a URL like postgres://relay@db.example.org/pushchat")
        } else {
            self = .file(text)
        }
    }

    var description: String {
        switch self {
        case .file(let path): path
        case .postgres(let url, let schema): Configuration.Database(url: url, schema: schema).description
        }
    }
}
