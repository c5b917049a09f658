import APNSGateway
import APNSWire
import ArgumentParser
import ChatDomain
import Foundation

/// What a notification says and how it is handled, as flags; the fields of the admin API.
struct ContentOptions: ParsableArguments {
    @Option(parsing: .unconditional, help: ArgumentHelp("The text that is shown.", valueName: "text"))
    var alert: String?

    @Option(parsing: .unconditional, help: ArgumentHelp("A title above it.", valueName: "text"))
    var title: String?

    @Option(parsing: .unconditional, help: ArgumentHelp("A subtitle.", valueName: "text"))
    var subtitle: String?

    @Option(
        parsing: .unconditional, help: ArgumentHelp("The number on the app's icon; 0 removes it.", valueName: "number"))
    var badge: Int?

    @Option(help: ArgumentHelp("A sound file in the app, or default.", valueName: "name"))
    var sound: String?

    @Option(help: ArgumentHelp("Apple's category.", valueName: "name"))
    var category: String?

    @Option(help: ArgumentHelp("Apple's thread-id, by which the device groups.", valueName: "name"))
    var threadID: String?

    @Flag(help: "Wake the app in the background.")
    var contentAvailable = false

    @Flag(help: "Let the app's service extension change it first.")
    var mutableContent = false

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "An object whose members go beside aps: JSON, @FILE, or - for standard input.", valueName: "json"))
    var custom: String?

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("The whole payload instead: JSON, @FILE, or - for standard input.", valueName: "json"))
    var payload: String?

    @Option(
        help: ArgumentHelp(
            "Not worth sending after this: a duration like 1h, a time, or 0 for one attempt.", valueName: "when"))
    var expires: String?

    @Option(
        help: ArgumentHelp(
            "Not before this: a duration like 10m, or a time like 2026-12-24T18:00:00Z.", valueName: "when"))
    var notBefore: String?

    @Option(help: ArgumentHelp("10, 5 or 1.", valueName: "number"), completion: .list(["10", "5", "1"]))
    var priority: Int?

    @Option(help: ArgumentHelp("Of notifications with the same, the device shows the last.", valueName: "id"))
    var collapseID: String?

    @Option(
        help: ArgumentHelp("As Apple spells it; found from the content unless given.", valueName: "type"),
        completion: .list(PushType.allCases.map(\.rawValue)))
    var pushType: String?

    /// The fields of `POST /v1/notifications`, checked as the relay checks them.
    /// - Parameter input: standard input, read at most once.
    func fields(now: Timestamp, input: () throws -> [UInt8]) throws -> JSONObject {
        var fields = JSONObject()
        if title != nil || subtitle != nil {
            var object = JSONObject()
            if let title { object["title"] = .string(title) }
            if let subtitle { object["subtitle"] = .string(subtitle) }
            if let alert { object["body"] = .string(alert) }
            fields["alert"] = .object(object)
        } else if let alert {
            fields["alert"] = .string(alert)
        }
        if let badge { fields["badge"] = .number(badge) }
        if let sound { fields["sound"] = .string(sound) }
        if let category { fields["category"] = .string(category) }
        if let threadID { fields["thread_id"] = .string(threadID) }
        if contentAvailable { fields["content_available"] = .bool(true) }
        if mutableContent { fields["mutable_content"] = .bool(true) }
        if let custom { fields["custom"] = try Self.json(custom, "--custom", input) }
        if let payload { fields["payload"] = try Self.json(payload, "--payload", input) }
        if let expires { fields["expiration"] = try Self.moment(expires, "--expires", now) }
        if let notBefore { fields["not_before"] = try Self.moment(notBefore, "--not-before", now) }
        if let priority { fields["priority"] = .number(priority) }
        if let collapseID { fields["collapse_id"] = .string(collapseID) }
        if let pushType { fields["push_type"] = .string(pushType) }
        do throws(ChatError) {
            _ = try APNSFormat.composed(NotificationContent(fields, now: now))
        } catch {
            throw ValidationError(error.message)
        }
        return fields
    }

    /// Bytes of a file with a payload: far more than any gateway takes.
    private static let largestFile = 1 << 20

    private static func json(_ text: String, _ flag: String, _ input: () throws -> [UInt8]) throws -> JSONValue {
        let bytes: [UInt8]
        if text == "-" {
            bytes = try input()
        } else if text.hasPrefix("@") {
            let path = String(text.dropFirst())
            do throws(ReadableFile.Problem) {
                bytes = try ReadableFile.read(path, limit: largestFile)
            } catch {
                throw ValidationError("\(flag) names \(path), \(error.message)")
            }
        } else {
            bytes = Array(text.utf8)
        }
        do throws(JSONValue.Malformed) {
            return try JSONValue(parsing: bytes)
        } catch {
            throw ValidationError("\(flag) is no JSON: \(error)")
        }
    }

    private static let longest = Duration.seconds(3650 * 86_400)

    /// Whether a flag counts from now, so that it means another time with every run.
    var isRelative: Bool { [expires, notBefore].contains { $0.flatMap(DurationText.duration) != nil } }

    /// UNIX seconds.
    private static func moment(_ text: String, _ flag: String, _ now: Timestamp) throws -> JSONValue {
        if text == "0" { return .number(0) }
        if let duration = DurationText.duration(text) {
            guard duration <= longest else { throw ValidationError("\(flag) \(text): must be at most ten years") }
            // Rounded up: at least as long as was said.
            return .number((now + duration).seconds + 1)
        }
        if let time = Timestamp(rfc3339: text) { return .number(time.seconds) }
        throw ValidationError("\(flag) \(text): must be a duration like 1h, or a time like 2026-12-24T18:00:00Z")
    }
}
