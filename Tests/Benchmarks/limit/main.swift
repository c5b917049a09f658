import Foundation
import Hummingbird

/// The fields of a posted message.
struct MessageForm: Decodable {
    let cmd: String
    let udid: String
    let text: String
}

// A server that parses the form of a posted message, returns the relay's response, and does nothing else. Prints its
// port.
let router = Router()
router.post("/api.php") { request, context in
    let form = try await URLEncodedFormDecoder().decode(MessageForm.self, from: request, context: context)
    guard form.cmd == "message", !form.udid.isEmpty, !form.text.isEmpty else { throw HTTPError(.badRequest) }
    return "OK\n"
}
let application = Application(
    router: router,
    configuration: .init(address: .hostname("127.0.0.1", port: 0)),
    onServerRunning: { channel in
        // `print` would buffer the port, because standard output is a pipe.
        try? FileHandle.standardOutput.write(contentsOf: Data("\(channel.localAddress?.port ?? 0)\n".utf8))
    })
try await application.runService()
