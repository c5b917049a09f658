import ChatDomain
import ChatStore
import Testing

@testable import pushchat

@Suite("Rows of imports")
struct ImportRowsTests {
    private static let udid = String(repeating: "a", count: 40)
    private static let token = String(repeating: "c", count: 64)

    private func dump(_ statements: String) throws -> [ImportRow] {
        var rows = TutorialDump(ByteReader(statements), app: AppName("chat"))
        var all: [ImportRow] = []
        while let row = try rows.next() { all.append(row) }
        return all
    }

    @Test("The tutorial's tables give members, pending pushes and sent pushes")
    func tutorial() throws {
        let rows = try dump(
            """
            INSERT INTO active_users VALUES ('\(Self.udid)','\(Self.token)',' Ann ','tea','1.2.3.4');
            INSERT INTO active_users (user_id,device_token,nickname,secret_code) VALUES ('\(Self.udid.prefix(32))','0','Bob','tea');
            INSERT INTO push_queue VALUES (7,'\(Self.token)','{"aps":{}}','2013-01-02 03:04:05',NULL),(8,'\(Self.token)','{}','2013-01-02','2013-01-03'),
              (9,'\(Self.token)','{}','0000-00-00 00:00:00',NULL);
            """)
        #expect(
            rows == [
                .member(
                    JoinRequest(
                        member: try MemberID(parsing: Self.udid), app: AppName("chat"),
                        token: try DeviceToken(parsing: Self.token), nickname: try Nickname(parsing: "Ann"),
                        code: try SecretCode(parsing: "tea"), client: ClientInfo(address: "1.2.3.4"))),
                .member(
                    JoinRequest(
                        member: try MemberID(parsing: String(Self.udid.prefix(32))), app: AppName("chat"), token: nil,
                        nickname: try Nickname(parsing: "Bob"), code: try SecretCode(parsing: "tea"))),
                .push(
                    WaitingPush(
                        number: "7", token: try DeviceToken(parsing: Self.token), payload: #"{"aps":{}}"#,
                        queuedAt: Timestamp(sqlText: "2013-01-02 03:04:05"))),
                .sent,
                // MySQL's zero date means no date.
                .push(
                    WaitingPush(
                        number: "9", token: try DeviceToken(parsing: Self.token), payload: "{}", queuedAt: nil)),
            ])
    }

    @Test(
        "The error names a wrong row by its line and the rule",
        arguments: [
            ("active_users VALUES ('x','0','Ann','tea','')", "active_users, row 1: Invalid udid: must be 32 or 40"),
            (
                "active_users VALUES ('\(udid)','0','Ann','tea',''),('\(udid)','c0','Ann','tea','')",
                "active_users, row 2: Invalid device_token: must have 64"
            ),
            (
                "active_users VALUES ('\(udid)','0','','tea','')",
                "active_users, row 1: Invalid nickname: must not be empty"
            ),
            ("active_users VALUES ('\(udid)','0','A',NULL,'')", "active_users, row 1: Missing secret_code"),
            (
                "active_users VALUES ('\(udid)','0',0xFF,'tea','')",
                "active_users, row 1: Invalid nickname: must be UTF-8"
            ),
            (
                "push_queue VALUES (1,'\(token)','[1]',NULL,NULL)",
                "push_queue, row 1: Invalid payload: must be a JSON object"
            ),
        ])
    func wrong(rows: String, expected: String) throws {
        guard case .wrong(let wrong) = try dump("-- a comment\nINSERT INTO \(rows);").last else {
            Issue.record("not wrong")
            return
        }
        #expect(wrong.line == 2)
        #expect(wrong.text.hasPrefix(expected), "\(wrong.text)")
    }

    // MARK: - Devices

    private func table(_ text: String) throws -> [ImportRow] {
        var rows = try DeviceTable(ByteReader(text, pieces: 3)) { name throws(ChatError) in
            guard name != "none" else { throw .invalid("app", "names no app") }
            return AppName(name ?? "chat")
        }
        var all: [ImportRow] = []
        while let row = try rows.next() { all.append(row) }
        return all
    }

    @Test("An export is read again without changes")
    func roundTrip() throws {
        let time = try #require(Timestamp(rfc3339: "2026-05-07T21:57:29.123Z"))
        let device = Device(
            id: 1, token: try DeviceToken(parsing: Self.token), app: AppName("news"),
            user: UserReference(stored: "Ann, \"the\"\u{308} one"), clientInfo: "a\nb", serverInfo: "ü,;",
            client: ClientInfo(appVersion: "1.0", osVersion: nil, deviceModel: "iPhone,15"),
            tags: [Tag(stored: "a;\u{308}b"), Tag(stored: "c\\"), Tag(stored: "\u{308}d e")], createdAt: time,
            registeredAt: time,
            seenAt: nil, deactivatedAt: time, deactivatedReason: "Unregistered")
        var expected = DeviceRecord(token: device.token, app: device.app)
        (expected.user, expected.clientInfo, expected.serverInfo) = (device.user, device.clientInfo, device.serverInfo)
        (expected.client, expected.tags) = (device.client, Set(device.tags))
        (expected.createdAt, expected.registeredAt) = (time, time)
        (expected.deactivatedAt, expected.deactivatedReason) = (time, "Unregistered")
        let text = CSVReader.line(DeviceTable.names) + DeviceTable.line(device)
        #expect(try table(text) == [.device(expected)])
    }

    @Test(
        "An export marks values that a spreadsheet would run with an apostrophe, which an import removes",
        arguments: [
            ("=1+1", "'=1+1"), ("+1", "'+1"), ("-x", "'-x"), ("@SUM(1)", "'@SUM(1)"), ("\t=1", "'\t=1"),
            ("\r=1", "'\r=1"),
            ("'=1", "''=1"), ("''=1", "'''=1"), ("'-", "''-"), ("=\u{308}1", "'=\u{308}1"),
            ("'it", "'it"), ("''", "''"), ("a=1", "a=1"), ("", ""),
        ])
    func spreadsheets(value: String, cell: String) throws {
        #expect(Array(SpreadsheetMark.added(value).utf8) == Array(cell.utf8))
        #expect(Array(SpreadsheetMark.removed(cell).utf8) == Array(value.utf8))
    }

    @Test("An export, an import and an export give the same bytes, also for values that a spreadsheet would run")
    func spreadsheetRoundTrip() throws {
        let time = try #require(Timestamp(rfc3339: "2026-05-07T21:57:29.123Z"))
        func line(_ record: DeviceRecord) -> String {
            DeviceTable.line(
                Device(
                    id: 1, token: record.token, app: record.app, user: record.user, clientInfo: record.clientInfo,
                    serverInfo: record.serverInfo, client: record.client,
                    tags: record.tags.sorted { $0.text < $1.text },
                    createdAt: time, registeredAt: time, seenAt: nil, deactivatedAt: nil, deactivatedReason: nil))
        }
        var record = DeviceRecord(token: try DeviceToken(parsing: Self.token), app: AppName("news"))
        (record.user, record.clientInfo, record.serverInfo) = (UserReference(stored: "=cmd|' /C calc'!A0"), "'@x", "-1")
        record.client = ClientInfo(appVersion: "+1", osVersion: "''=", deviceModel: "'phone")
        record.tags = [Tag(stored: "=a"), Tag(stored: "@b;c")]
        let exported = line(record)
        #expect(exported.contains(",'=cmd|' /C calc'!A0,''@x,'-1,'=a;@b\\;c,'+1,'''=,'phone,"))
        guard case .device(let read) = try table(CSVReader.line(DeviceTable.names) + exported).first else {
            Issue.record("the row is not a device")
            return
        }
        #expect(line(read) == exported)
    }

    @Test("A list of tokens suffices, also with a UTF-8 mark, Windows line ends and empty lines")
    func tokens() throws {
        let record = DeviceRecord(token: try DeviceToken(parsing: Self.token), app: AppName("chat"))
        #expect(
            try table("\u{FEFF}Token\r\n\(Self.token)\r\n\r\n\"\(Self.token)\"") == [.device(record), .device(record)])
    }

    @Test(
        "The error names a wrong row by its line and the rule",
        arguments: [
            ("token,tags", "c0,", "Invalid token: must have 64"),
            ("token,app", "\(token),none", "Invalid app: names no app"),
            ("token,app", "\(token),webpush", "Invalid app: must not be webpush"),
            ("token", "\(token),1", "has 2 values"),
            ("token,registered_at", "\(token),yesterday", "Invalid registered_at: must be a time like"),
            ("token,registered_at", "\(token),2026-02-30 00:00:00", "Invalid registered_at: must be a time like"),
            (
                "token,deactivated_at,deactivated_reason",
                "\(token),2026-05-07T21:57:29Z,\(String(repeating: "x", count: 256))",
                "Invalid deactivated_reason: must have at most 255"
            ),
            (
                "token,deactivated_at,deactivated_reason", "\(token),2026-05-07T21:57:29Z,",
                "Invalid deactivated_at: must be given together with"
            ),
        ])
    func wrongDevice(head: String, row: String, expected: String) throws {
        guard case .wrong(let wrong) = try table("\(head)\n\(row)\n").last else {
            Issue.record("not wrong")
            return
        }
        #expect(wrong.line == 2)
        #expect(wrong.text.hasPrefix(expected), "\(wrong.text)")
    }

    @Test(
        "A file that is no table of devices is refused as a whole",
        arguments: [
            ("", 1), ("name,token\n", 1), ("app\n", 1), ("token,token\n", 1), ("token,deactivated_at\n", 1),
            ("token\n\"abc\n", 2), ("token\n\"a\"b\n", 2),
        ])
    func noTable(text: String, line: Int) throws {
        let error = #expect(throws: UnreadableFile.self) { try table(text) }
        #expect(error?.line == line)
    }

    @Test("A record has a size limit, also if it consists of commas", arguments: ["\"a\n", "a", ","])
    func limit(text: String) {
        #expect(throws: UnreadableFile.self) {
            try table("token\n" + text + String(repeating: String(text.suffix(1)), count: CSVReader.maxRecord))
        }
    }
}
