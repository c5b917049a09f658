import ChatDomain

/// A push to a device in a table.
enum DeliveryCells {
    static let head = ["ID", "STATE", "REASON", "ATTEMPTS", "QUEUED", "SETTLED", "FROM"]

    static func cells(_ delivery: JSONObject) -> [String] {
        let origin =
            delivery["notification"]?.integer.map { "notification \($0)" }
            ?? delivery["message"]?.integer.map { "message \($0)" }
        return [
            delivery["id"]?.integer.map(String.init) ?? "", delivery["state"]?.text ?? "",
            delivery["reason"]?.text ?? "", delivery["attempts"]?.integer.map(String.init) ?? "",
            delivery["queued_at"]?.text ?? "", delivery["settled_at"]?.text ?? "", origin ?? "",
        ]
    }
}
