import ArgumentParser
import ChatDomain
import Foundation
import PushWire

/// `pushchat webpush`
struct WebPush: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "webpush", abstract: "Pushes to browsers.", subcommands: [Key.self])

    /// `pushchat webpush key`
    struct Key: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show, export or replace the key that identifies the relay to browsers' push services.",
            discussion: """
                Without a flag, it prints the public key, which pages use to subscribe. The key is in the database, so a backup
                contains it. A new key makes every subscription invalid: browsers subscribe again when they next open the
                page. A running relay uses a new key only after a restart.
                """)

        @Flag(help: "Print the private key, 32 bytes in base64url, as other servers write it.") var export = false
        @Option(
            // One key in 64 begins with a hyphen, so the next argument is always the value.
            name: .customLong("import"), parsing: .unconditional,
            help: .value(
                "key", "Use this private key from now on, in base64url or PEM: the key, @FILE, or - for standard input."
            ))
        var imported: String?
        @OptionGroup(title: "The database") var options: DatabaseOptions

        func validate() throws {
            if export, imported != nil { throw ValidationError("--export and --import cannot go together") }
        }

        func run() async throws {
            // Parse the key first, so that an invalid key does not create a database.
            let given: VAPIDKey?
            do {
                given = try imported.map { try VAPIDKey(text: Self.text($0)) }
            } catch {
                throw Failure("\(error)")
            }
            let key = try await options.withStores { stores in
                if let given {
                    try await stores.subscriptions.setVAPIDKey(given.text)
                    return given
                }
                return try await VAPIDKey.load(from: stores)
            }
            print(export ? key.text : key.publicText)
        }

        /// The size limit in bytes of a file that contains a key. Real files are far smaller.
        private static let maxFileSize = 1 << 16

        private static func text(_ given: String) throws -> String {
            if given == "-" {
                return String(
                    decoding: try FileHandle.standardInput.readToEnd() ?? Data(), as: UTF8.self)
            }
            guard given.hasPrefix("@") else { return given }
            let path = String(given.dropFirst())
            do throws(ReadableFile.Problem) {
                return String(decoding: try ReadableFile.read(path, limit: maxFileSize), as: UTF8.self)
            } catch {
                throw Failure("--import names \(path), \(error)")
            }
        }
    }
}
