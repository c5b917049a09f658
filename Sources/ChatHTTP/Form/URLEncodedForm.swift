import ChatDomain

/// `application/x-www-form-urlencoded`: `key=value` pairs between `&`, as all clients of pushchat-api.md §6 write it.
enum URLEncodedForm {
    private static let ampersand = UInt8(ascii: "&")
    private static let equals = UInt8(ascii: "=")
    private static let plus = UInt8(ascii: "+")
    private static let percent = UInt8(ascii: "%")

    /// Keys may be bare, come in any order and more than once; unknown ones are ignored.
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
                if let field = try field(key) {
                    let value = split < 0 ? end..<end : (split + 1)..<end
                    form.set(field, FormFields.Value(range: value, charset: charset, isPercentEncoded: true))
                }
            }
            start = end + 1
        }
        return form
    }

    private static func field(_ key: ArraySlice<UInt8>) throws(ChatError) -> FormField? {
        guard key.count <= HTTPLimits.fieldName else {
            throw .malformed("A field name has more than \(HTTPLimits.fieldName) bytes")
        }
        guard isEscaped(key) else { return FormField(key) }
        return FormField(unescaped(key)[...])
    }

    static func isEscaped(_ bytes: ArraySlice<UInt8>) -> Bool {
        bytes.contains { $0 == percent || $0 == plus }
    }

    /// A `%` that is not followed by two hexadecimal digits stands for itself, as the original server read it.
    ///
    /// - Parameter plusIsBlank: true in forms; false in paths.
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
