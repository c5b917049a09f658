import ChatDomain
import Foundation

/// The file that keeps a member's udid between runs of `pushchat chat`, for each relay, room and name. Anyone who can
/// read the file can act as the member, so it has mode 0600 and is in the user's own folder.
struct MemberFile {
    let folder: String
    /// The relay's URL, or the one that `pushchat dev` has by default. Each relay gets a different udid.
    let relay: String
    let code: SecretCode
    let name: Nickname

    /// Returns the folder according to the XDG Base Directory Specification. `nil` if neither variable is an absolute
    /// path.
    static func folder(_ environment: [String: String]) -> String? {
        if let state = environment["XDG_STATE_HOME"], state.hasPrefix("/") { return state + "/pushchat" }
        return environment["HOME"].flatMap { $0.hasPrefix("/") ? $0 + "/.local/state/pushchat" : nil }
    }

    /// The path contains a hash (FNV-1a, 64 bits), because names and codes may contain characters that a path cannot.
    var path: String {
        let bytes = [relay, code.text, name.text].joined(separator: "\0").utf8
        let hash = bytes.reduce(0xCBF2_9CE4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        return "\(folder)/member-\(String(hash, radix: 16)).json"
    }

    /// Returns the udid in the file. Creates the file if it does not exist.
    ///
    /// - Throws: A ``Failure`` if the file cannot be read or created.
    func udid() throws -> MemberID {
        if let udid = try read() { return udid }
        let made = MemberID(stored: Hex.text((0..<20).map { _ in UInt8.random(in: 0...255) }))
        try write(made)
        // Read the file again: another process may have created it first, and the first file stays.
        guard let udid = try read() else { throw Failure("\(path) was deleted") }
        return udid
    }

    private func read() throws -> MemberID? {
        let text: String
        do throws(ReadableFile.Problem) {
            text = try ReadableFile.text(path, limit: 1 << 16)
        } catch {
            if error.kind == .missing { return nil }
            throw Failure("the member's udid is in \(path), \(error)")
        }
        let json = try? JSONValue(parsing: text).object
        guard let json, json["relay"]?.text == relay, json["room"]?.text == code.text, json["name"]?.text == name.text,
            let udid = json["udid"]?.text, let member = try? MemberID(parsing: udid)
        else { throw Failure("\(path) has no udid of this member: delete it, or give --udid") }
        return member
    }

    /// Creates the file atomically, unless it exists.
    private func write(_ udid: MemberID) throws {
        let json: JSONObject = [
            "relay": .string(relay), "room": .string(code.text), "name": .string(name.text), "udid": .string(udid.text),
        ]
        do {
            try PrivateFile.createFolder(folder)
        } catch {
            throw Failure("the member's udid cannot be kept in \(folder): give --udid, or another XDG_STATE_HOME")
        }
        do {
            try PrivateFile.create(path, JSONValue.object(json).description + "\n")
        } catch  where error.number != EEXIST {
            throw Failure("\(path): \(error): give --udid, or another XDG_STATE_HOME")
        } catch {
            // Another process has created it.
        }
    }
}
