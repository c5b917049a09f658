import ChatDomain
import Crypto
import Foundation

/// The content of one row of a file.
enum ImportRow: Equatable {
    case member(JoinRequest)
    case push(WaitingPush)
    case device(DeviceRecord)
    /// A push that the other server has already sent.
    case sent
    case wrong(WrongRow)
}

/// A row that cannot be imported: its line and the rule that it breaks.
struct WrongRow: Equatable, CustomStringConvertible {
    let line: Int
    let text: String

    var description: String { "line \(line): \(text)" }
}

/// The rows of a file, one after the other.
protocol ImportRows {
    /// The next row. `nil` at the end.
    ///
    /// - Throws: ``UnreadableFile``.
    mutating func next() throws -> ImportRow?
}

/// The tables of the PushChat tutorial's server (`api.sql`, `push.sql`), in a dump of its database.
struct TutorialDump: ImportRows {
    private static let tables = [
        "active_users": ["udid", "device_token", "nickname", "secret_code", "ip_address"],
        "push_queue": ["message_id", "device_token", "payload", "time_queued", "time_sent"],
    ]
    /// The maximum size of an address in bytes: the longest IPv6 address.
    private static let maxAddressSize = 45

    private var dump: MySQLDump
    private let app: AppName

    init(_ bytes: ByteReader, app: AppName) {
        dump = MySQLDump(bytes, tables: Self.tables)
        self.app = app
    }

    mutating func next() throws -> ImportRow? {
        guard let row = try dump.next() else { return nil }
        do throws(ChatError) {
            return try row.table == "active_users" ? member(row) : push(row)
        } catch {
            return .wrong(WrongRow(line: row.line, text: "\(row.table), row \(row.number): \(error.message)"))
        }
    }

    private func member(_ row: MySQLDump.Row) throws(ChatError) -> ImportRow {
        // Later editions of the tutorial's app call this column user_id.
        let name = row.values["udid"] == nil ? "user_id" : "udid"
        let text = try self.text(row, "device_token")
        let token = try text == "0" ? nil : DeviceToken(parsing: text, field: "device_token")
        let address = try? self.text(row, "ip_address")
        return .member(
            JoinRequest(
                member: try MemberID(parsing: self.text(row, name), field: name), app: app, token: token,
                nickname: try Nickname(parsing: self.text(row, "nickname"), field: "nickname"),
                code: try SecretCode(parsing: self.text(row, "secret_code"), field: "secret_code"),
                client: ClientInfo(
                    address: address.flatMap { (1...Self.maxAddressSize).contains($0.utf8.count) ? $0 : nil })))
    }

    private func push(_ row: MySQLDump.Row) throws(ChatError) -> ImportRow {
        // The column is NULL until the push is sent.
        if case .some(.some(_)) = row.values["time_sent"] { return .sent }
        let payload = try text(row, "payload")
        guard (try? JSONValue(parsing: payload))?.object != nil else {
            throw .invalid("payload", "must be a JSON object")
        }
        return .push(
            WaitingPush(
                number: try text(row, "message_id"),
                token: try DeviceToken(parsing: text(row, "device_token"), field: "device_token"), payload: payload,
                queuedAt: (try? text(row, "time_queued")).flatMap(Timestamp.init(calendar:))))
    }

    private func text(_ row: MySQLDump.Row, _ column: String) throws(ChatError) -> String {
        guard let value = row.values[column], let value else {
            throw ChatError(.missingField, "Missing \(column)", field: column)
        }
        guard let text = String(validating: value, as: UTF8.self) else { throw .invalid(column, "must be UTF-8") }
        return text
    }
}

/// Devices as values separated by commas. The first row names the columns: `token`, and any of `app` and
/// ``DeviceRecord/Column``.
struct DeviceTable: ImportRows {
    /// The columns in the order of an export.
    static let names = ["token", "app"] + DeviceRecord.Column.allCases.map(\.rawValue)

    /// The columns that the file has.
    let columns: Set<DeviceRecord.Column>
    private let names: [String]
    private var csv: CSVReader
    private let resolve: (String?) throws(ChatError) -> AppName

    /// Reads the row of names.
    ///
    /// - Parameter resolve: Returns the app for a name. The name is `nil` if a row has none.
    /// - Throws: ``UnreadableFile``.
    init(_ bytes: ByteReader, resolve: @escaping (String?) throws(ChatError) -> AppName) throws {
        var csv = CSVReader(bytes)
        guard let head = try csv.next() else { throw UnreadableFile(line: 1, text: "the file is empty") }
        var names = (head.fields ?? []).map { FieldText.trimmed($0).lowercased() }
        // Remove the byte order mark that Excel writes.
        if let first = names.first, first.hasPrefix("\u{FEFF}") { names[0] = String(first.dropFirst()) }
        if let unknown = names.first(where: { !Self.names.contains($0) }) {
            throw UnreadableFile(
                line: head.line,
                text: "the first row must name columns, but \(JSONValue.string(unknown)) is not one of "
                    + Self.names.joined(separator: ", "))
        }
        guard names.contains("token"), Set(names).count == names.count else {
            throw UnreadableFile(
                line: head.line, text: "the first row must name the column token, and each column once")
        }
        columns = Set(names.compactMap(DeviceRecord.Column.init(rawValue:)))
        guard columns.contains(.deactivated) == columns.contains(.reason) else {
            throw UnreadableFile(
                line: head.line, text: "the columns deactivated_at and deactivated_reason require each other")
        }
        (self.names, self.csv, self.resolve) = (names, csv, resolve)
    }

    mutating func next() throws -> ImportRow? {
        guard let record = try csv.next() else { return nil }
        guard let fields = record.fields else { return .wrong(WrongRow(line: record.line, text: "must be UTF-8")) }
        guard fields.count == names.count else {
            return .wrong(
                WrongRow(line: record.line, text: "has \(fields.count) values, but the first row names \(names.count)"))
        }
        do throws(ChatError) {
            return .device(try device(Dictionary(zip(names, fields.map(SpreadsheetMark.removed))) { $1 }))
        } catch {
            return .wrong(WrongRow(line: record.line, text: error.message))
        }
    }

    private func device(_ fields: [String: String]) throws(ChatError) -> DeviceRecord {
        func text(_ column: DeviceRecord.Column) -> String? {
            fields[column.rawValue].flatMap { FieldText.trimmed($0).isEmpty ? nil : $0 }
        }
        func time(_ column: DeviceRecord.Column) throws(ChatError) -> Timestamp? {
            guard let text = text(column) else { return nil }
            // Read the form of exports without the regular expression that reads every form.
            if let time = Timestamp(sqlText: text), text == time.rfc3339 || text == time.sqlText { return time }
            guard let time = Timestamp(rfc3339: text) ?? Timestamp(calendar: text) else {
                throw .invalid(column.rawValue, "must be a time like 2026-12-24T18:00:00Z")
            }
            return time
        }
        let app = try resolve(fields["app"].flatMap { $0.isEmpty ? nil : $0 })
        guard app != .web else { throw .invalid("app", "must not be \(AppName.web): browsers subscribe by themselves") }
        var record = DeviceRecord(token: try DeviceToken(parsing: fields["token"] ?? ""), app: app)
        if let user = text(.user) { record.user = try UserReference(parsing: user) }
        record.clientInfo = try DeviceNote.text(text(.clientInfo) ?? "", field: "client_info")
        record.serverInfo = try DeviceNote.text(text(.serverInfo) ?? "", field: "server_info")
        for tag in Self.tags(text(.tags) ?? "") { record.tags.insert(try Tag(parsing: tag)) }
        guard record.tags.count <= Tag.most else { throw .invalid("tags", "must be at most \(Tag.most)") }
        record.client = ClientInfo(
            appVersion: try ClientInfo.text(text(.appVersion), field: "app_version"),
            osVersion: try ClientInfo.text(text(.osVersion), field: "os_version"),
            deviceModel: try ClientInfo.text(text(.deviceModel), field: "device_model"))
        (record.createdAt, record.registeredAt) = (try time(.created), try time(.registered))
        (record.seenAt, record.deactivatedAt) = (try time(.seen), try time(.deactivated))
        record.deactivatedReason = try ClientInfo.text(text(.reason), field: DeviceRecord.Column.reason.rawValue)
        guard (record.deactivatedAt == nil) == (record.deactivatedReason == nil) else {
            throw .invalid("deactivated_at", "must be given together with deactivated_reason")
        }
        return record
    }

    // MARK: - Tags in one value

    /// Splits a text at semicolons. A backslash escapes a semicolon or a backslash in a tag.
    private static func tags(_ text: String) -> [String] {
        var (tags, isEscaped): ([String], Bool) = ([""], false)
        for character in text.unicodeScalars {
            if !isEscaped, character == "\\" {
                isEscaped = true
            } else if !isEscaped, character == ";" {
                tags.append("")
            } else {
                tags[tags.count - 1].unicodeScalars.append(character)
                isEscaped = false
            }
        }
        return tags.filter { !FieldText.trimmed($0).isEmpty }
    }

    /// Returns the line of a device with all columns of ``names``.
    static func line(_ device: Device) -> String {
        let tags = device.tags.map { CSVReader.text($0.text, putting: "\\", before: ["\\", ";"]) }
        let values = [
            device.token.description, device.app.text, device.user?.text ?? "", device.clientInfo ?? "",
            device.serverInfo ?? "", tags.joined(separator: ";"), device.client.appVersion ?? "",
            device.client.osVersion ?? "", device.client.deviceModel ?? "", device.createdAt.rfc3339,
            device.registeredAt.rfc3339, device.seenAt?.rfc3339 ?? "", device.deactivatedAt?.rfc3339 ?? "",
            device.deactivatedReason ?? "",
        ]
        return CSVReader.line(values.map(SpreadsheetMark.added))
    }
}

/// Puts an apostrophe before a value that a spreadsheet would run as a formula. Clients choose the values, and an
/// operator opens the table.
///
/// A value that already has apostrophes before a formula gets one more, so that removing the mark restores every value.
enum SpreadsheetMark {
    private static let mark = Unicode.Scalar("'")
    private static let formulas: Set<Unicode.Scalar> = ["=", "+", "-", "@", "\t", "\r"]

    static func added(_ value: String) -> String { isFormula(value) ? "'" + value : value }

    static func removed(_ value: String) -> String {
        value.unicodeScalars.first == mark && isFormula(value) ? String(value.unicodeScalars.dropFirst()) : value
    }

    /// Whether a value begins with a formula, possibly after apostrophes.
    private static func isFormula(_ value: String) -> Bool {
        value.unicodeScalars.first { $0 != mark }.map(formulas.contains) ?? false
    }
}

extension Timestamp {
    /// Reads the form of databases, `2026-05-07 21:57:29` with or without a fraction. `nil` for times that are not in
    /// the calendar, such as MySQL's zero date.
    fileprivate init?(calendar text: String) {
        guard let time = Timestamp(sqlText: text), time.sqlText.prefix(19) == text.prefix(19) else { return nil }
        self = time
    }
}

extension WaitingPush {
    /// Creates a push whose id is derived from its content, so that a second import recognizes the push.
    /// - Parameter number: The push's number in the other server's queue.
    init(number: String, token: DeviceToken, payload: String, queuedAt: Timestamp?) {
        self.init(
            id: Self.id("\(number)\n\(token)\n\(payload)"), token: token, payload: payload, queuedAt: queuedAt)
    }

    /// A UUID made from a hash of the text.
    private static func id(_ text: String) -> String {
        var bytes = Array(SHA256.hash(data: Data(text.utf8)).prefix(16))
        bytes[6] = bytes[6] & 0x0F | 0x80
        bytes[8] = bytes[8] & 0x3F | 0x80
        let digits = Hex.text(bytes)
        var parts: [Substring] = []
        var rest = digits[...]
        for length in [8, 4, 4, 4, 12] {
            parts.append(rest.prefix(length))
            rest = rest.dropFirst(length)
        }
        return parts.joined(separator: "-")
    }
}
