import ChatDomain
import HTTPTypes
import Hummingbird

/// A field of a form, by its key.
struct FormField: Sendable, Hashable {
    let key: String

    static let cmd = FormField(key: "cmd")
    static let udid = FormField(key: "udid")
    static let token = FormField(key: "token")
    static let name = FormField(key: "name")
    static let code = FormField(key: "code")
    static let text = FormField(key: "text")
    static let since = FormField(key: "since")
    static let limit = FormField(key: "limit")
    static let id = FormField(key: "id")
    /// A browser's subscription, sent instead of `token`.
    static let subscription = FormField(key: "subscription")
    /// The member's UUID, which the later edition of the app sends instead of `udid`.
    static let userID = FormField(key: "user_id")
    static let appID = FormField(key: "appid")
    static let appVersion = FormField(key: "app_version")
    static let osVersion = FormField(key: "os_version")
    static let deviceModel = FormField(key: "device_model")
    static let clientInfo = FormField(key: "client_info")
    /// The action of `cmd=credential`.
    static let action = FormField(key: "action")
    /// With `cmd=messages`: whether the messages stay unread.
    static let peek = FormField(key: "peek")
    /// With `cmd=messages`: whether to return changes as well.
    static let changes = FormField(key: "changes")
    /// Fields of `cmd=activity_token`.
    static let tag = FormField(key: "tag")
    static let type = FormField(key: "type")
    /// The cursor of a list.
    static let cursor = FormField(key: "cursor")
}

/// The positions of the field values in a request's body. Values are decoded on access.
struct FormFields: Sendable {
    struct Value: Sendable {
        /// The position in the body.
        var range: Range<Int>
        var charset: Charset
        /// Whether `+` means a space and `%XX` a byte.
        var isPercentEncoded: Bool
    }

    private let body: [UInt8]
    private var values: [FormField: Value] = [:]
    /// The fields of the form, also unknown ones.
    var fields: [FormField] { Array(values.keys) }

    init(body: [UInt8]) { self.body = body }

    /// Reads the form of a request, within the limits.
    static func read(_ request: Request) async throws -> FormFields {
        let headers = request.headers
        // Check the header first, so that the body of an unsupported request is not read.
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

    /// Sets the value of a field. If the field occurs several times, the last value counts.
    mutating func set(_ field: FormField, _ value: Value) {
        values[field] = value
    }

    func has(_ field: FormField) -> Bool { values[field] != nil }

    /// Whether the field exists and is not empty. Some clients send `key=` if they have no value.
    func hasValue(_ field: FormField) -> Bool { values[field].map { !$0.range.isEmpty } ?? false }

    /// Returns a field's text. `nil` if the field is absent. A key without `=` is an empty text.
    func text(_ field: FormField) throws(ChatError) -> String? {
        guard let value = values[field] else { return nil }
        let raw = body[value.range]
        let text =
            value.isPercentEncoded && URLEncodedForm.isEscaped(raw)
            ? value.charset.text(URLEncodedForm.unescaped(raw)) : value.charset.text(raw)
        guard let text else { throw .invalid(field.key, "must be UTF-8") }
        return text
    }

    /// Returns the text of a field that must exist.
    func required(_ field: FormField) throws(ChatError) -> String {
        guard let text = try text(field) else { throw .missing(field.key) }
        return text
    }
}

/// `application/x-www-form-urlencoded`: `key=value` pairs between `&`, as sent by ASIFormDataRequest, AFNetworking 1.x,
/// browsers and curl (`docs/moving-in.md`).
enum URLEncodedForm {
    private static let ampersand = UInt8(ascii: "&")
    private static let equals = UInt8(ascii: "=")
    private static let plus = UInt8(ascii: "+")
    private static let percent = UInt8(ascii: "%")

    /// Reads the fields. Keys may lack a value, repeat, and come in any order. Unknown keys are ignored.
    static func parse(_ body: [UInt8], charset: Charset) throws(ChatError) -> FormFields {
        var form = FormFields(body: body)
        var count = 0
        var start = 0
        while start < body.count {
            var end = start
            var split = -1
            while end < body.count, body[end] != ampersand {
                if split < 0, body[end] == equals { split = end }
                end += 1
            }
            if end > start {
                count += 1
                guard count <= HTTPLimits.fields else {
                    throw .malformed("The form has more than \(HTTPLimits.fields) fields")
                }
                let key = body[start..<(split < 0 ? end : split)]
                let value = split < 0 ? end..<end : (split + 1)..<end
                form.set(try field(key), FormFields.Value(range: value, charset: charset, isPercentEncoded: true))
            }
            start = end + 1
        }
        return form
    }

    private static func field(_ key: ArraySlice<UInt8>) throws(ChatError) -> FormField {
        guard key.count <= HTTPLimits.fieldName else {
            throw .malformed("A field name has more than \(HTTPLimits.fieldName) bytes")
        }
        let name = isEscaped(key) ? unescaped(key)[...] : key
        return FormField(key: String(decoding: name, as: UTF8.self))
    }

    static func isEscaped(_ bytes: ArraySlice<UInt8>) -> Bool {
        bytes.contains { $0 == percent || $0 == plus }
    }

    /// Decodes escapes. A `%` without two hexadecimal digits after it is kept as it is, as in the tutorial's server.
    ///
    /// - Parameter plusIsBlank: Whether `+` means a space: `true` in forms, `false` in paths.
    static func unescaped(_ bytes: ArraySlice<UInt8>, plusIsBlank: Bool = true) -> [UInt8] {
        var result: [UInt8] = []
        result.reserveCapacity(bytes.count)
        var index = bytes.startIndex
        while index < bytes.endIndex {
            let byte = bytes[index]
            if byte == percent, index + 2 < bytes.endIndex, let high = Hex.value(bytes[index + 1]),
                let low = Hex.value(bytes[index + 2])
            {
                result.append(high << 4 | low)
                index += 3
            } else {
                result.append(byte == plus && plusIsBlank ? UInt8(ascii: " ") : byte)
                index += 1
            }
        }
        return result
    }
}

/// The `Content-Type` of a request: the kind of form, and its charset.
enum FormType: Sendable, Hashable {
    case urlEncoded(Charset)
    case multipart(boundary: String, Charset)

    private static let accepted = "send application/x-www-form-urlencoded or multipart/form-data"

    /// Reads the header. The case and order of parameters do not matter, and unknown ones are ignored.
    init(parsing header: String?) throws(ChatError) {
        switch header {
        // The values that the tutorial's client, browsers and curl send.
        case "application/x-www-form-urlencoded", "application/x-www-form-urlencoded; charset=utf-8":
            self = .urlEncoded(.utf8)
            return
        case nil:
            throw .unsupported("The request has a body but no Content-Type; \(Self.accepted)")
        default: break
        }
        let (type, parameters) = HeaderText.parameterized((header ?? "")[...])
        guard type == "application/x-www-form-urlencoded" || type == "multipart/form-data" else {
            throw .unsupported(
                "The Content-Type \(HeaderText.sanitized(type, limit: 60)) is not supported; \(Self.accepted)")
        }
        var charset = Charset.utf8
        var boundary: String?
        for (name, value) in parameters {
            switch name {
            case "charset": charset = try Self.charset(value)
            case "boundary": boundary = value
            default: break
            }
        }
        guard type == "multipart/form-data" else {
            self = .urlEncoded(charset)
            return
        }
        guard let boundary, !boundary.isEmpty else {
            throw .malformed("The Content-Type multipart/form-data has no boundary")
        }
        guard boundary.utf8.count <= HTTPLimits.boundary else {
            throw .malformed("The multipart boundary has more than \(HTTPLimits.boundary) characters")
        }
        self = .multipart(boundary: boundary, charset)
    }

    static func charset(_ name: String) throws(ChatError) -> Charset {
        guard let charset = Charset(name: name) else {
            throw .unsupported(
                "The charset \(HeaderText.sanitized(name, limit: 40)) is not supported; "
                    + "send utf-8, iso-8859-1 or windows-1252")
        }
        return charset
    }
}
