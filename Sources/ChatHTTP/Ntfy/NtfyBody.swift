import ChatDomain
import Hummingbird

/// The text of a message to a topic, and whether the sender also sent a file. The relay keeps no files: an alarm with a
/// picture arrives without it.
struct NtfyBody: Sendable {
    let text: String
    let hasFile: Bool

    init(text: String, hasFile: Bool = false) {
        (self.text, self.hasFile) = (text, hasFile)
    }

    /// Reads the body of a request. It is a file if the sender gives its name beside a message, or if it is not text.
    init(_ request: Request, _ parameters: NtfyParameters) async throws {
        guard request.headers.first(.contentEncoding) == nil else {
            throw ChatError.unsupported("The body must not have a Content-Encoding")
        }
        let (bytes, isWhole) = try await RequestBody.readStart(request, limit: HTTPLimits.body)
        let (name, message) = (parameters[.filename], parameters.message)
        if bytes.isEmpty {
            self.init(text: message ?? "")
        } else if name == nil || message == nil,
            let text = Self.text(bytes, isWhole: isWhole, request.headers.charset)
        {
            self.init(text: text)
        } else {
            self.init(text: message ?? Self.note(ofFile: name), hasFile: true)
        }
    }

    /// The text of a message that is only a file.
    private static func note(ofFile name: String?) -> String {
        "A file was sent, which this relay does not keep" + (name.map { ": \($0)" } ?? "")
    }

    /// Returns the text of a body, or of its start. `nil` if it is not text.
    private static func text(_ bytes: [UInt8], isWhole: Bool, _ charset: Charset) -> String? {
        guard !bytes.contains(0) else { return nil }
        // The start may end within a character, which has up to 4 bytes.
        return (0...(isWhole ? 0 : 3)).lazy.compactMap { charset.text(bytes.dropLast($0)) }.first
    }
}
