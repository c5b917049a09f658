import ChatDomain
import Foundation
import Testing

@testable import ChatHTTP
@testable import pushchat

@Suite("Limits in the documentation")
struct LimitsPageTests {
    /// The values of the rows of docs/limits.md, by the row's first cell.
    private let rows: [String: String]

    init() throws {
        let root = URL(filePath: #filePath).appending(path: "../../../..").standardized
        let page = try String(contentsOf: root.appending(path: "docs/limits.md"), encoding: .utf8)
        var rows: [String: String] = [:]
        for line in page.split(separator: "\n") where line.hasPrefix("| ") {
            let cells = line.dropFirst(2).dropLast(2).split(separator: " | ", maxSplits: 1)
            if cells.count == 2 { rows[String(cells[0])] = String(cells[1]) }
        }
        self.rows = rows
    }

    @Test("The page's limits of connections, requests and streams equal the code's")
    func requests() throws {
        try expect("connections", "(`ulimit -Hn`), at most \(count(FileLimit.maxConnections)), but at least ")
        try expect("connections", "but at least \(FileLimit.minConnections). ")
        #expect((1...FileLimit.maxConnections).contains(FileLimit.connections))
        try expect("connections from one address", "\(HTTPLimits.connectionsPerAddress);")
        try expect(
            "time for the first request's head; for a body; without a request", HTTPLimits.firstHeadTime,
            HTTPLimits.requestTime, HTTPLimits.idleTime)
        try expect(
            "time in which a client reads nothing of its responses; of its stream",
            "30; \(seconds(HTTPLimits.streamWriteTime)) seconds")
        try expect(
            "responses of one connection that the client has not read", size(HTTPLimits.responseBuffer.high) + ",")
        try expect("requests of one connection without a response", "\(HTTPLimits.pipelinedRequests)")
        try expect(
            "head of a request; one line of it; header fields", size(HTTPLimits.headers), size(HTTPLimits.headerField),
            "\(HTTPLimits.headerFields)")
        try expect(
            "body, after decompression", size(HTTPLimits.body),
            "\(size(HTTPLimits.adminBody)) under `/v1`, \(size(HTTPLimits.batchBody)) for `/v1/notifications:batch`")
        try expect("fields of a form; a field's name", "\(HTTPLimits.fields)", "\(HTTPLimits.fieldName) bytes")
        try expect("nesting of JSON", "\(JSONValue.maxDepth) levels")
        for row in ["items in one response of a list under `/v1`", "messages in one response"] {
            try expect(row, "\(HTTPLimits.page.upperBound)", "\(HTTPLimits.defaultPage) by default")
        }
        try expect(
            "`Idempotency-Key`; `X-Request-Id`", "\(HTTPLimits.idempotencyKey) characters", "\(HTTPLimits.requestID),")
        try expect(
            "entries of `Forwarded` or `X-Forwarded-For` that the relay reads", "the last \(HTTPLimits.forwardedHops)")
        try expect(
            "a [session token](api.md#sessions); keys that verify it", size(TokenVerifier.maxTokenLength),
            "\(TokenVerifier.maxKeys)")
        try expect(
            "event streams of one member; of one address; in total", "\(HTTPLimits.streamsPerMember)",
            "\(HTTPLimits.streamsPerAddress)", "seven eighths of the connections")
        try expect("rooms of one stream", "\(HTTPLimits.streamRooms)")
        try expect(
            "data from a WebSocket's client; time to answer a ping", size(HTTPLimits.webSocketInput), "60 seconds")
        try expect(
            "tickets for streams", "\(count(HTTPLimits.tickets)) at a time, each for \(seconds(HTTPLimits.ticketTime)) "
        )
    }

    @Test("The page's rates equal the code's")
    func rates() throws {
        let http = Configuration(environment: .production).http
        let perAddress = try #require(http.ratePerAddress)
        let perMember = try #require(http.ratePerMember)
        let joins = try #require(http.joinsPerAddress)
        try expect(
            row("requests from one address"),
            "\(perAddress.count) a second, in bursts up to \(perAddress.burst) (`http.rate_per_address`)")
        try expect(
            row("requests with one udid"),
            "\(perMember.count) a second, in bursts up to \(perMember.burst) (`http.rate_per_member`). "
                + "A search counts as \(HTTPLimits.searchPrice)")
        try expect(
            row("joins from one address"),
            "\(joins.count) an hour, in bursts up to \(joins.burst) (`http.joins_per_address`)")
        try expect(row("joins from one address"), "twenty times")
        #expect(HTTPLimits.joinShares == 20)
        try expect(row("wrong tokens"), "\(burst(HTTPLimits.wrongTokens)) get 401, then one every 6 seconds")
        #expect(HTTPLimits.wrongTokens.perSecond == 1.0 / 6)
        try expect(row("calls without a token"), "\(burst(HTTPLimits.missingTokens)) get 401 or 507, then one a second")
        #expect(HTTPLimits.missingTokens.perSecond == 1)
        try expect(
            row("log lines"),
            "\(burst(HTTPLimits.rejectionLines)) per address, then one a minute; "
                + "\(burst(HTTPLimits.allRejectionLines)) in all, then one a second")
        #expect(HTTPLimits.rejectionLines.perSecond == 1.0 / 60 && HTTPLimits.allRejectionLines.perSecond == 1)
    }

    @Test("The page's limits of rooms, messages, devices and pushes equal the code's")
    func content() throws {
        try expect("members of a room", count(RoomSize.largest))
        #expect(Nickname.longest == SecretCode.longest)
        try expect("name; code", "\(Nickname.longest) bytes each")
        try expect(
            "text of a chat message", "\(count(MessageText.roomyLimit)) bytes",
            "\(MessageText.defaultLimit) if an app uses `binary` (`push.text_limit`, at most "
                + "\(count(MessageText.highestLimit)))")
        try expect(
            row("text of a [program's message]"), "\(count(MessageText.highestLimit)) bytes",
            "\(MessageContent.longestTitle)", "2,000", "\(MessageContent.longestSound)")
        try expect("name of a program's token; of a credential", "\(AccessToken.longestName) bytes each")
        try expect("credentials of a member; of a token", "\(Credential.perMember)", "\(Credential.perToken)")
        try expect("a ban's reason; its end", "\(BanRequest.longestReason) bytes", "10 years ahead")
        try expect("apps; notifications in one call", "\(SettingLimits.apps)", count(HTTPLimits.batch))
        try expect(
            "user of a device; its tags; notes", "\(UserReference.longest) bytes",
            "\(Tag.most) of \(Tag.longest) bytes",
            "\(count(DeviceNote.longest)) bytes each")
        try expect("`appid`; app version; system version; device model", "\(ClientInfo.longest) bytes each")
        try expect(row("`tokens` or `users`"), count(Audience.mostNames), "\(Audience.mostTags)")
        try expect(row("devices that the start of a [Live Activity]"), "\(count(ActivityLimits.devices)) each")
        try expect(row("types of attributes"), "\(ActivityLimits.startTokens), the newest")
        try expect(row("tag of a Live Activity"), "\(ActivityLimits.tag) bytes", "\(ActivityLimits.type) bytes")
        try expect(
            row("the number on the app's icon"), "\(UnreadCount.most)", "\(UnreadCount.rooms)", "\(UnreadCount.window)")
        let configuration = Configuration(environment: .production)
        try expect(
            row("time for which messages are kept"), "30 days (`messages.retention`)",
            "365 days (`moderation.retention`)")
        try expect("time for which a push is kept after its end", "7 days (`queue.retention`)")
        #expect(configuration.messages.retention == .days(30))
        #expect(configuration.moderation.retention == .days(365))
        #expect(configuration.queue.retention == .days(7))
    }

    @Test("The page's limits of files equal the code's")
    func files() throws {
        try expect(row("[an import]"), size(CSVReader.maxRecord), size(MySQLDump.maxValue))
        try expect(
            "the configuration; a value in it; entries of a list", size(SettingLimits.file),
            "\(count(SettingLimits.value)) bytes", "\(SettingLimits.list)")
        try expect(
            row("a certificate file"), "1 MiB", "64 KiB", size(SettingLimits.keyFile),
            "\(count(SettingLimits.secretFile)) bytes")
        try expect(row("[the metrics of the last day]"), "\(count(MetricsHistory.day)) minutes", "1 MiB")
        try expect("a line of the log; a value in it", "\(count(LogRecord.maxLine)) bytes", count(LogRecord.maxValue))
    }

    /// Checks that the row contains the values, in this order and separated by semicolons.
    private func expect(_ row: String, _ values: String...) throws {
        let text = try #require(rows[row], "docs/limits.md has no row \(row)")
        #expect(text.contains(values.joined(separator: "; ")), "\(row)")
    }

    /// Checks that the row contains the times in seconds.
    private func expect(_ row: String, _ times: Duration...) throws {
        try expect(row, times.map { "\(seconds($0))" }.joined(separator: "; ") + " seconds")
    }

    /// Returns the first cell of the row that starts like this.
    private func row(_ start: String) throws -> String {
        try #require(rows.keys.first { $0.hasPrefix(start) }, "docs/limits.md has no row \(start)")
    }

    private func seconds(_ time: Duration) -> Int64 { time.components.seconds }
    private func burst(_ rate: RateLimit) -> Int { rate.burst }
    private func count(_ number: Int) -> String {
        number < 1000 ? "\(number)" : "\(number / 1000),\(String("00\(number % 1000)".suffix(3)))"
    }
    private func size(_ bytes: Int) -> String {
        bytes % (1 << 20) == 0 ? "\(bytes >> 20) MiB" : "\(bytes >> 10) KiB"
    }
}
