import ChatDomain
import Crypto
import Foundation
import GRDB

@testable import ChatStore
@testable import TestStores

/// A store over SQLite in a temporary folder, with rows whose ids and secrets the tests choose. Its clock shows
/// ``Sample/time`` until a test advances it.
final class RealStore: Sendable {
    private let fixture: StoreFixture
    let sqlite: SQLiteStores
    var ports: Stores { sqlite.ports }
    var clients: any ClientStore { ports.clients }

    /// - Parameter tokens: The tokens by their secrets.
    init(tokens: [String: AccessToken] = [:], credentialLifetime: Duration? = nil) throws {
        fixture = try StoreFixture()
        fixture.time.now = Sample.time
        sqlite = try fixture.open(credentialLifetime: credentialLifetime)
        for (secret, token) in tokens { try add(token, secret) }
    }

    deinit { try? sqlite.close() }

    func advance(_ duration: Duration) { fixture.advance(duration) }

    /// Runs a statement, and returns its rows as text.
    @discardableResult
    func query(_ sql: String, _ arguments: StatementArguments = []) throws -> [String] {
        try sqlite.database.pool.write { try Row.fetchAll($0, sql: sql, arguments: arguments) }.map { row in
            row.databaseValues.map { "\($0.storage.value ?? "")" }.joined(separator: " ")
        }
    }

    func room(_ code: SecretCode) throws {
        try query(
            """
            INSERT INTO rooms (secret_code, time_created)
            SELECT :code, :time WHERE NOT EXISTS (SELECT 1 FROM rooms WHERE secret_code = :code)
            """, ["code": code.text, "time": Sample.time.sqlText])
    }

    func member(
        _ member: MemberID, id: Int64 = 1, name: String = "Ann", in code: SecretCode, historyFrom: MessageID = 0
    ) throws {
        try room(code)
        try query(
            "INSERT INTO active_users (member_id, udid, nickname, secret_code, history_from) VALUES (?, ?, ?, ?, ?)",
            [id, member.text, name, code.text, historyFrom])
    }

    func add(_ token: AccessToken, _ secret: String) throws {
        try query(
            """
            INSERT INTO api_tokens (token_id, name, hash, scopes, room, audience, hook, time_created)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)
            """,
            [
                token.id, token.name.text, hash(secret), token.grant.storedScopes, token.grant.room?.text,
                token.grant.audience?.json.description, token.grant.hook?.stored, token.createdAt.sqlText,
            ])
    }

    /// - Parameter column: The kind of the owner.
    func credential(
        _ secret: String, id: Int64, name: String = "phone", of column: Owner = .member, _ owner: Int64 = 1
    ) throws {
        try query(
            "INSERT INTO credentials (credential_id, name, hash, \(column), time_created) VALUES (?, ?, ?, ?, ?)",
            [id, name, hash(secret), owner, Sample.time.sqlText])
    }

    enum Owner { case member, token }

    func add(_ message: Message, to code: SecretCode) throws {
        try room(code)
        try query(
            """
            INSERT INTO messages (message_id, secret_code, udid, nickname, text, title, link, priority, time_sent)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            [
                message.id, code.text, message.sender.text, message.nickname, message.text, message.content.title,
                message.content.link, message.content.priority, message.sentAt.sqlText,
            ])
    }

    private func hash(_ secret: String) -> Data { Data(SHA256.hash(data: Data(secret.utf8))) }
}
