import ChatDomain
import GRDB

/// A part of an audience that is worked through from one place to the next: the devices of a user, of a tag, of a room, all
/// of them, or those with a token.
enum AudienceItem: Sendable, Hashable {
    case token(String)
    case user(String)
    case tag(String)
    case room(String)
    case all

    static func items(of audience: Audience) -> [AudienceItem] {
        switch audience {
        case .tokens(let tokens): tokens.map { .token($0.description) }
        case .users(let users): users.map { .user($0.text) }
        case .tags(let tags): tags.map { .tag($0.text) }
        case .room(let code): [.room(code.text)]
        case .all: [.all]
        }
    }

    /// What its SQL calls `:item`.
    var value: String? {
        switch self {
        case .token(let text), .user(let text), .tag(let text), .room(let text): text
        case .all: nil
        }
    }

    /// The places of the next `:budget` candidates after `:after` and up to `:until`, in order: device ids, member ids in a
    /// room. Nil for a token, which is one step.
    func places(ofOneApp: Bool) -> String? {
        let range = "device_id > :after AND device_id <= :until"
        let end = "ORDER BY device_id LIMIT :budget"
        switch self {
        case .token: return nil
        case .user:
            return """
                SELECT device_id AS place FROM devices INDEXED BY devices_user
                WHERE user_reference = :item AND \(range) \(end)
                """
        case .tag: return "SELECT device_id AS place FROM device_tags WHERE tag = :item AND \(range) \(end)"
        case .room:
            return """
                SELECT member_id AS place FROM active_users
                WHERE secret_code = :item AND member_id > :after AND member_id <= :until
                ORDER BY member_id LIMIT :budget
                """
        case .all where ofOneApp:
            return "SELECT device_id AS place FROM devices INDEXED BY devices_app WHERE app = :app AND \(range) \(end)"
        case .all: return "SELECT device_id AS place FROM devices WHERE \(range) \(end)"
        }
    }

    /// `FROM … WHERE …` for the devices `d` after `:after` and up to `:upTo`, of `:app` if that is asked for. The inactive are
    /// left out, but not where they were named by their token.
    func devices(ofOneApp: Bool) -> String {
        let range = "d.device_id > :after AND d.device_id <= :upTo AND d.time_deactivated IS NULL"
        let app = ofOneApp ? "AND d.app = :app" : ""
        switch self {
        case .token: return "(SELECT 1) LEFT JOIN devices d ON d.device_token = :item \(app) WHERE TRUE"
        case .user: return "devices d INDEXED BY devices_user WHERE d.user_reference = :item AND \(range) \(app)"
        case .tag:
            return """
                device_tags t CROSS JOIN devices d ON d.device_id = t.device_id
                WHERE t.tag = :item AND t.device_id > :after AND t.device_id <= :upTo AND d.time_deactivated IS NULL \(app)
                """
        case .room:
            return """
                active_users u LEFT JOIN devices d ON d.device_token = u.device_token AND d.app = u.app
                WHERE u.secret_code = :item AND u.member_id > :after AND u.member_id <= :upTo AND u.device_token <> '0'
                    AND d.time_deactivated IS NULL \(ofOneApp ? "AND u.app = :app" : "")
                """
        case .all where ofOneApp: return "devices d INDEXED BY devices_app WHERE d.app = :app AND \(range)"
        case .all: return "devices d WHERE \(range)"
        }
    }

    /// Token and app of the push, and where it stands in the order.
    var columns: (token: String, app: String, place: String) {
        switch self {
        case .token: (":item", Self.current("coalesce(d.app, :app, :defaultApp)"), "d.device_id")
        case .room: ("u.device_token", Self.current("u.app"), "u.member_id")
        case .tag: ("d.device_token", Self.current("d.app"), "t.device_id")
        case .user, .all: ("d.device_token", Self.current("d.app"), "d.device_id")
        }
    }

    /// The name that the configuration has for the app that is called `default` where nothing else was said.
    private static func current(_ app: String) -> String { "iif(\(app) = 'default', :defaultApp, \(app))" }

    /// How many devices there are now, from indexes where there can be many: for the answer to a request that is too large
    /// to be finished with it.
    func count(app: AppName?, _ db: Database) throws -> Int {
        func count(_ sql: String) throws -> Int {
            try Int.fetchOne(
                db.cachedStatement(sql: "SELECT count(*) FROM \(sql)"), arguments: ["item": value, "app": app?.text])
                ?? 0
        }
        let isInactive = "d.time_deactivated IS NOT NULL"
        switch (self, app) {
        case (.token, _): return 1
        case (.all, nil): return try count("devices") - count("devices d WHERE \(isInactive)")
        case (.all, _?):
            return try count("devices INDEXED BY devices_app WHERE app = :app")
                - count("devices d INDEXED BY devices_inactive WHERE \(isInactive) AND d.app = :app")
        case (.tag, nil):
            return try count("device_tags WHERE tag = :item")
                - count(
                    """
                    devices d INDEXED BY devices_inactive CROSS JOIN device_tags t ON t.tag = :item
                    AND t.device_id = d.device_id WHERE \(isInactive)
                    """)
        case (.tag, _?), (.user, _), (.room, _):
            return try Int.fetchOne(
                db.cachedStatement(sql: "SELECT count(*) FROM \(devices(ofOneApp: app != nil))"),
                arguments: ["item": value, "app": app?.text, "after": 0, "upTo": Int64.max]) ?? 0
        }
    }
}
