import AsyncHTTPClient
import ChatDomain
import Foundation
import NIOCore

/// A member's calls of the chat API. Each is made once, and throws what ``RelayClient/failure(_:)`` reads.
struct MemberCalls: Sendable {
    let relay: RelayClient
    let udid: MemberID

    /// For calls at the end of the process.
    private static let lastTime = TimeAmount.seconds(3)

    func join(_ code: SecretCode, as name: Nickname) async throws {
        _ = try await post(
            "/api.php",
            [
                ("cmd", "join"), ("token", "0"), ("name", name.text), ("code", code.text),
                ("app_version", Pushchat.version), ("device_model", "terminal"),
            ])
    }

    func messages(since: MessageID) async throws -> JSONValue {
        try await post(
            "/api.php", [("cmd", "messages"), ("since", "\(since)"), ("limit", "\(ChatClientState.page)")])
    }

    func post(_ draft: ChatClientState.Draft, isLast: Bool = false) async throws {
        _ = try await post(
            "/api.php", [("cmd", "message"), ("text", draft.text)], headers: ["Idempotency-Key": draft.key],
            within: isLast ? Self.lastTime : RelayClient.timeout)
    }

    func leave() async throws {
        _ = try await post("/api.php", [("cmd", "leave")], within: Self.lastTime)
    }

    /// The stream of the room, from after a message. A ticket stands for the udid in its address, which proxies write into logs.
    func stream(since: MessageID) async throws -> HTTPClientResponse.Body {
        guard let ticket = try await post("/events/ticket", []).object?["ticket"]?.text else { throw relay.isNoRelay }
        let request = relay.request(
            .GET, "/events".adding([("ticket", ticket)]),
            headers: ["Accept": "text/event-stream", "Last-Event-ID": "\(since)"])
        do {
            return try await relay.head(of: request).body
        } catch let refusal as RelayRefusal where refusal.status == 401 {
            // Tickets end, also with the relay's process. The next one says whether the session is good.
            throw CallFailure.lost(relay.base)
        }
    }

    private func post(
        _ path: String, _ fields: [(String, String?)], headers: [String: String] = [:],
        within limit: TimeAmount = RelayClient.timeout
    ) async throws -> JSONValue {
        let headers = headers.merging(
            ["Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"]) { own, _ in own }
        var request = relay.request(.POST, path, headers: headers)
        request.body = .bytes(ByteBuffer(string: String("".adding([("udid", udid.text)] + fields).dropFirst())))
        return try await relay.answer(to: request, within: limit)
    }
}

/// The file that keeps a member's udid from one start of `pushchat chat` to the next, for each relay, room and name. Whoever
/// reads it can act as the member: mode 0600, in a folder of the user's own.
struct MemberFile {
    let folder: String
    /// The relay's URL: a udid is shown to no other relay.
    let relay: String
    let code: SecretCode
    let name: Nickname

    /// The folder by the XDG Base Directory Specification; nil without a home.
    static func folder(_ environment: [String: String]) -> String? {
        if let state = environment["XDG_STATE_HOME"], state.hasPrefix("/") { return state + "/pushchat" }
        return environment["HOME"].flatMap { $0.hasPrefix("/") ? $0 + "/.local/state/pushchat" : nil }
    }

    /// FNV-1a, 64 bits, of whose it is: names and codes may have characters that a path cannot.
    var path: String {
        let bytes = [relay, code.text, name.text].joined(separator: "\0").utf8
        let hash = bytes.reduce(0xCBF2_9CE4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        return "\(folder)/member-\(String(hash, radix: 16)).json"
    }

    /// The udid of the file, which is made if it is not there.
    /// - Throws: a ``Failure`` if it cannot be read or made.
    func udid() throws -> MemberID {
        if let udid = try read() { return udid }
        let made = MemberID(stored: Hex.text((0..<20).map { _ in UInt8.random(in: 0...255) }))
        try write(made)
        // Another process may have been faster: the first file stays.
        guard let udid = try read() else { throw Failure("\(path) was deleted") }
        return udid
    }

    private func read() throws -> MemberID? {
        let text: String
        do throws(ReadableFile.Problem) {
            text = try ReadableFile.text(path, limit: 1 << 16)
        } catch {
            if error.isMissing { return nil }
            throw Failure("the member's udid is in \(path), \(error)")
        }
        let json = try? JSONValue(parsing: text).object
        guard let json, json["relay"]?.text == relay, json["room"]?.text == code.text, json["name"]?.text == name.text,
            let udid = json["udid"]?.text, let member = try? MemberID(parsing: udid)
        else { throw Failure("\(path) has no udid of this member: delete it, or give --udid") }
        return member
    }

    /// Whole, or not at all, and only where there is none.
    private func write(_ udid: MemberID) throws {
        let json: JSONObject = [
            "relay": .string(relay), "room": .string(code.text), "name": .string(name.text), "udid": .string(udid.text),
        ]
        do {
            try FileManager.default.createDirectory(
                atPath: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw Failure("the member's udid cannot be kept in \(folder): give --udid, or another XDG_STATE_HOME")
        }
        var name = Array("\(folder)/.member-XXXXXX".utf8CString)
        // The file is the user's alone from the first moment (mkstemp(3)).
        let descriptor = mkstemp(&name)
        guard descriptor >= 0 else {
            throw Failure("\(folder): \(String(cString: strerror(errno))): give --udid, or another XDG_STATE_HOME")
        }
        defer {
            close(descriptor)
            unlink(name)
        }
        let bytes = Array((JSONValue.object(json).description + "\n").utf8)
        guard Foundation.write(descriptor, bytes, bytes.count) == bytes.count, fsync(descriptor) == 0,
            link(name, path) == 0 || errno == EEXIST
        else { throw Failure("\(path): \(String(cString: strerror(errno)))") }
    }
}
