import ChatDomain
import HTTPTypes
import Hummingbird

/// A field of the chat API.
enum FormField: Int, Sendable, CaseIterable {
    case cmd, udid, token, name, code, text, since, limit
    /// What the later edition of the app sends in place of `udid`.
    case userID
    case appID, appVersion, osVersion, deviceModel, clientInfo

    /// What the fields are called in requests, in the order of the cases.
    private static let keys = [
        "cmd", "udid", "token", "name", "code", "text", "since", "limit", "user_id", "appid", "app_version",
        "os_version",
        "device_model", "client_info",
    ]
    private static let keyBytes = keys.map { Array($0.utf8) }

    /// The field with that key; nil for an unknown one, which is ignored.
    init?(_ key: ArraySlice<UInt8>) {
        for (index, bytes) in Self.keyBytes.enumerated() where bytes.count == key.count && bytes.elementsEqual(key) {
            self.init(rawValue: index)
            return
        }
        return nil
    }

    var key: String { Self.keys[rawValue] }
}

/// The fields of one request: where in the body each value stands. A value is decoded when it is asked for.
struct FormFields: Sendable {
    struct Value: Sendable {
        /// The position in the body.
        var range: Range<Int>
        var charset: Charset
        /// `+` is a blank and `%XX` a byte.
        var isPercentEncoded: Bool
    }

    private let body: [UInt8]
    private var values: [Value?]

    init(body: [UInt8]) {
        self.body = body
        values = Array(repeating: nil, count: FormField.allCases.count)
    }

    /// Reads the form of a request, within the limits.
    static func read(_ request: Request) async throws -> FormFields {
        let headers = request.headers
        // What is refused for its head alone need not be read.
        let coding = try ContentCoding(parsing: headers.first(.contentEncoding))
        var body = try await RequestBody.read(request, limit: HTTPLimits.body)
        guard !body.isEmpty else { return FormFields(body: []) }
        let type = try FormType(parsing: headers.first(.contentType))
        if let coding { body = try coding.decompressed(body, limit: HTTPLimits.body) }
        switch type {
        case .urlEncoded(let charset): return try URLEncodedForm.parse(body, charset: charset)
        case .multipart(let boundary, let charset):
            return try MultipartForm.parse(body, boundary: Array(boundary.utf8), charset: charset)
        }
    }

    /// The last value of a field counts.
    mutating func set(_ field: FormField, _ value: Value) {
        values[field.rawValue] = value
    }

    func has(_ field: FormField) -> Bool { values[field.rawValue] != nil }

    /// Whether the field is there and has bytes: some clients send `key=` for a value that they do not have.
    func hasValue(_ field: FormField) -> Bool { values[field.rawValue].map { !$0.range.isEmpty } ?? false }

    /// Nil if the field is absent. A bare key is an empty text.
    func text(_ field: FormField) throws(ChatError) -> String? {
        guard let value = values[field.rawValue] else { return nil }
        let raw = body[value.range]
        let text =
            value.isPercentEncoded && URLEncodedForm.isEscaped(raw)
            ? value.charset.text(URLEncodedForm.unescaped(raw)) : value.charset.text(raw)
        guard let text else { throw .invalid(field.key, "must be UTF-8") }
        return text
    }

    /// A field that must be there.
    func required(_ field: FormField) throws(ChatError) -> String {
        guard let text = try text(field) else { throw .missing(field.key) }
        return text
    }
}
