import ChatDomain
import Foundation
import GRDB

extension APNSIDs {
    static func load(_ db: Database) throws -> APNSIDs {
        let key = try Data.fetchOne(db, sql: "SELECT id_key FROM queue_state")
        return APNSIDs(key: key.map { Array($0) } ?? [UInt8](repeating: 0, count: 16))
    }
}
