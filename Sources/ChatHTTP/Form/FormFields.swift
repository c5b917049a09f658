import ChatDomain

/// A field of the chat API.
enum FormField: String, Sendable, CaseIterable {
    case cmd, udid, token, name, code, text, since, limit
    /// How the later edition of the app spells `udid`.
    case userID = "user_id"
    case appID = "appid"
    case appVersion = "app_version"
    case osVersion = "os_version"
    case deviceModel = "device_model"
    case clientInfo = "client_info"

    private static let spellings = allCases.map { (field: $0, bytes: Array($0.rawValue.utf8)) }

    /// The field of that name; nil for one that we do not know and ignore.
    init?(_ name: ArraySlice<UInt8>) {
        for (field, bytes) in Self.spellings where bytes.count == name.count && bytes.elementsEqual(name) {
            self = field
            return
        }
        return nil
    }
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

    /// Reads a body of a type.
    init(_ body: [UInt8], as type: FormType) throws(ChatError) {
        switch type {
        case .urlEncoded(let charset): self = try URLEncodedForm.parse(body, charset: charset)
        case .multipart(let boundary, let charset):
            self = try MultipartForm.parse(body, boundary: Array(boundary.utf8), charset: charset)
        }
    }

    /// The last one of a name counts.
    mutating func set(_ field: FormField, _ value: Value) {
        values[field.index] = value
    }

    func has(_ field: FormField) -> Bool { values[field.index] != nil }

    /// Whether the field is there and has bytes: some clients send `key=` for a value that they do not have.
    func hasValue(_ field: FormField) -> Bool { values[field.index].map { !$0.range.isEmpty } ?? false }

    /// Nil if the field is absent. A bare key is an empty text.
    func text(_ field: FormField) throws(ChatError) -> String? {
        guard let value = values[field.index] else { return nil }
        let raw = body[value.range]
        guard value.isPercentEncoded, URLEncodedForm.isEscaped(raw) else {
            return try checked(value.charset.text(raw), field)
        }
        return try checked(value.charset.text(URLEncodedForm.unescaped(raw)), field)
    }

    /// A field that must be there.
    func required(_ field: FormField) throws(ChatError) -> String {
        guard let text = try text(field) else { throw .missing(field.rawValue) }
        return text
    }

    private func checked(_ text: String?, _ field: FormField) throws(ChatError) -> String {
        guard let text else { throw .invalid(field.rawValue, "must be UTF-8") }
        return text
    }
}

extension FormField {
    fileprivate var index: Int {
        switch self {
        case .cmd: 0
        case .udid: 1
        case .token: 2
        case .name: 3
        case .code: 4
        case .text: 5
        case .since: 6
        case .limit: 7
        case .userID: 8
        case .appID: 9
        case .appVersion: 10
        case .osVersion: 11
        case .deviceModel: 12
        case .clientInfo: 13
        }
    }
}
