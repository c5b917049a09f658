import APNSGateway
import ChatDomain
import ChatStore
import FCMGateway
import Foundation
import GRDB
import Logging
import Synchronization
import TestSupport

/// The database file of one test, in a folder that is deleted after the test.
final class StoreFixture: Sendable {
    private let folder: TemporaryFolder
    let time = WallClock(Timestamp(milliseconds: 1_800_000_000_000))

    var directory: URL { folder.url }
    var path: String { directory.appending(path: "pushchat.db").path }

    init() throws {
        folder = try TemporaryFolder()
    }

    func open(
        _ schema: Schema = .current, defaultApp: AppName = .default, namesMessage: Bool = false,
        apps: Set<AppName>? = nil, keepsUsage: @escaping @Sendable () -> Bool = { true },
        credentialLifetime: Duration? = nil
    ) throws -> SQLiteStores {
        try SQLiteStores(
            file: DatabaseFile(path: path, schema: schema),
            settings: {
                StoreSettings(
                    format: { StoreFixture.format(of: $0, namesMessage: namesMessage) },
                    defaultApp: defaultApp, tokenApps: [.installation: StoreFixture.firebaseApp],
                    keepsUsage: keepsUsage(), apps: apps,
                    credentialLifetime: credentialLifetime)
            },
            now: { self.time.now }, logger: .silent)
    }

    /// The app whose chat pushes have all optional fields and the number of unread messages.
    static let http2App = AppName("http2")

    /// An app for Android.
    static let firebaseApp = AppName("android")

    /// An app whose devices can replace and remove notifications.
    static let changingApp = AppName("changing")

    /// The format of an app's pushes. Those of browsers also have the number of unread messages.
    static func format(of app: AppName, namesMessage: Bool) -> any PushFormat {
        if app == firebaseApp { return FCMFormat(.data) }
        if app == changingApp { return ChangingFormat() }
        if app == http2App { return APNSFormat(.http2, payloadLimit: 2048, showsUnread: true) }
        return APNSFormat(
            namesMessage || app == .web ? .http2 : .binary, payloadLimit: 2048, fields: [], showsUnread: app == .web)
    }

    /// Creates the file as the release with this schema version created it.
    func createFile(ofVersion version: Int) throws {
        try EarlierSchema.createFile(at: path, version: version)
    }

    func advance(_ duration: Duration) {
        time.advance(by: duration)
    }

    /// Runs a statement as another process.
    func query(_ sql: String, _ arguments: StatementArguments = []) throws -> [Row] {
        try connection().write { try Row.fetchAll($0, sql: sql, arguments: arguments) }
    }

    /// Opens another process's connection to the file, for tests that query it often.
    func connection() throws -> DatabaseQueue {
        var configuration = GRDB.Configuration()
        configuration.busyMode = .timeout(5)
        return try DatabaseQueue(path: path, configuration: configuration)
    }

    /// Reads one number as another process. It takes no write lock: a test that polls it must not keep the store waiting.
    func value(_ sql: String) throws -> Int {
        try connection().read { try Int.fetchOne($0, sql: sql) } ?? -1
    }

    static func member(_ number: Int) throws -> MemberID {
        let digits = String(number)
        return try MemberID(parsing: String(repeating: "0", count: 40 - digits.count) + digits)
    }

    static func token(_ number: Int) throws -> DeviceToken {
        let digits = String(number)
        return try DeviceToken(parsing: String(repeating: "a", count: 64 - digits.count) + digits)
    }

    static func join(
        _ number: Int, _ code: String = "room", name: String? = nil, token: Int? = nil, tokenless: Bool = false,
        app: String = "default"
    ) throws -> JoinRequest {
        JoinRequest(
            member: try member(number), app: AppName(app), token: tokenless ? nil : try Self.token(token ?? number),
            nickname: try Nickname(parsing: name ?? "name\(number)"), code: try SecretCode(parsing: code),
            client: ClientInfo(
                address: "192.0.2.\(number % 250)", appVersion: "1.0", osVersion: "5.1", deviceModel: "iPhone"))
    }

    static func post(_ number: Int, _ text: String, key: String? = nil) throws -> PostRequest {
        PostRequest(member: try member(number), content: try MessageContent(parsing: text), idempotencyKey: key)
    }

    static func slot(_ connection: Int64 = 1, first: UInt32 = 1, room: Int = 1000, fresh: Bool? = nil) -> ConnectionSlot
    {
        ConnectionSlot(
            connection: ConnectionID(connection), firstIdentifier: first, capacity: room, isFresh: fresh ?? (first == 1)
        )
    }
}
