import ChatDomain

/// A request that another program sent to the address of a hook, without the token.
package struct HookRequest: Sendable {
    /// The maximum number of bytes of a body. Alertmanager sends all alerts of a group at once.
    package static let bodyLimit = 1 << 20

    /// The values by the names in lower case. Several values of a name are joined by `, `.
    package var headers: [String: String]
    package var query: [String: String]
    /// The fields of a body that is a form (`application/x-www-form-urlencoded` or `multipart/form-data`), without files.
    package var form: [String: String]
    /// The bytes as they arrived: signatures cover them.
    package var body: [UInt8]

    package init(
        headers: [String: String] = [:], query: [String: String] = [:], form: [String: String] = [:], body: [UInt8]
    ) {
        self.headers = headers
        self.query = query
        self.form = form
        self.body = body
    }

    /// Returns the JSON object that the request contains.
    ///
    /// - Parameter field: The field of a form or of the query in which some senders put the JSON.
    func object(in field: String? = nil) throws(HookRefusal) -> JSONObject {
        let isJSON = body.first { !Self.isBlank($0) }.map { [UInt8(ascii: "{"), UInt8(ascii: "["), 0xEF].contains($0) }
        let text = field.flatMap { form[$0] ?? query[$0] }
        return try Self.object(isJSON == true ? body : text.map { Array($0.utf8) } ?? body)
    }

    /// Reads an object as carelessly as most servers do (``JSONValue/init(parsing:isLenient:)``), within the parser's
    /// limit of depth.
    static func object(_ bytes: [UInt8]) throws(HookRefusal) -> JSONObject {
        guard bytes.contains(where: { !isBlank($0) }) else { throw .unreadable("the body is empty") }
        let value: JSONValue
        do throws(JSONValue.Malformed) {
            value = try JSONValue(parsing: bytes, isLenient: true)
        } catch {
            throw .unreadable("the body is not JSON: \(error)")
        }
        guard let object = value.object else { throw .unreadable("the JSON is \(value.kind), and must be an object") }
        return object
    }

    /// Returns the first of the headers that is usable as the id of a delivery.
    func deliveryID(_ names: String...) -> String? {
        names.lazy.compactMap { headers[$0] }.first { (1...128).contains($0.utf8.count) && $0.isVisibleASCII }
    }

    private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || (0x09...0x0D).contains(byte) }
}

/// The reason why a request becomes no message.
package enum HookRefusal: Error, Sendable, Hashable {
    /// The request is fine and has nothing to show, such as a test of the connection.
    case ignored(String)
    /// The body has not the form that the format describes. The text continues "… could not be read: ".
    case unreadable(String)
}

/// Members of foreign JSON. Each path is a list of names, from the outer object to the inner one.
extension JSONObject {
    /// The maximum number of items of a list that formats look at.
    private static let itemLimit = 2000

    /// The members of a query or a form.
    init(texts: [String: String]) {
        self.init()
        for (name, text) in texts.sorted(by: { $0.key < $1.key }) { append(name, .string(text)) }
    }

    func value(_ path: [String]) -> JSONValue? {
        var value: JSONValue? = .object(self)
        for name in path { value = value?.object?[name] }
        return value
    }

    /// Returns the ``JSONValue/scalarText`` of a member.
    func text(_ path: String...) -> String? { value(path)?.scalarText }

    func object(_ path: String...) -> JSONObject? { value(path)?.object }

    /// Returns the objects of an array. Empty if there is no array.
    func objects(_ path: String...) -> [JSONObject] {
        value(path)?.array?.prefix(Self.itemLimit).compactMap(\.object) ?? []
    }
}

extension JSONValue {
    /// The maximum number of bytes of a text that formats look at. Four messages fit into it.
    private static let textLimit = 16_384

    /// The text of a string, a number or a truth value, without blanks at both ends. `nil` if it is empty.
    var scalarText: String? {
        let text: String
        switch self {
        case .string(let string):
            let fitting = FieldText.visible(FieldText.fitting(string, limit: Self.textLimit))
            text =
                fitting.utf8.contains(13) ? fitting.replacing("\r\n", with: "\n").replacing("\r", with: "\n") : fitting
        case .number(let digits): text = FieldText.fitting(digits, limit: 64)
        case .bool(let value): text = value ? "true" : "false"
        case .null, .array, .object: return nil
        }
        return text.isEmpty ? nil : text
    }
}
