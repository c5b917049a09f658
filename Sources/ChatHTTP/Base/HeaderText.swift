import ChatDomain
import HTTPTypes

/// The grammar shared by header values: lists, parameters, quoted strings (RFC 9110 §5.6).
enum HeaderText {
    /// Splits a text at separators outside quotes.
    static func split(_ text: Substring, at separator: Unicode.Scalar) -> [Substring] {
        let scalars = text.unicodeScalars
        var pieces: [Substring] = []
        var start = scalars.startIndex
        var index = start
        var isQuoted = false
        while index < scalars.endIndex {
            let scalar = scalars[index]
            if isQuoted, scalar == "\\" {
                scalars.formIndex(after: &index)
                if index == scalars.endIndex { break }
            } else if scalar == "\"" {
                isQuoted.toggle()
            } else if scalar == separator, !isQuoted {
                pieces.append(Substring(scalars[start..<index]))
                start = scalars.index(after: index)
            }
            scalars.formIndex(after: &index)
        }
        pieces.append(Substring(scalars[start...]))
        return pieces
    }

    /// Returns the value in lower case, and its parameters: `text/plain; charset=utf-8`.
    static func parameterized(_ text: Substring) -> (value: String, parameters: [(name: String, value: String)]) {
        let pieces = split(text, at: ";")
        return (trimmed(pieces[0]).lowercased(), pieces.dropFirst().compactMap(pair))
    }

    /// Returns a parameter's name in lower case, and its value without quotes. `nil` if `=` is missing.
    static func pair(_ parameter: Substring) -> (name: String, value: String)? {
        guard let equals = parameter.firstIndex(of: "=") else { return nil }
        let value = trimmed(parameter[parameter.index(after: equals)...])
        return (trimmed(parameter[..<equals]).lowercased(), unquoted(value))
    }

    static func trimmed(_ text: Substring) -> Substring {
        var text = text
        while let first = text.unicodeScalars.first, first == " " || first == "\t" { text.unicodeScalars.removeFirst() }
        while let last = text.unicodeScalars.last, last == " " || last == "\t" { text.unicodeScalars.removeLast() }
        return text
    }

    private static func unquoted(_ value: Substring) -> String {
        guard value.unicodeScalars.first == "\"" else { return String(value) }
        var text = String.UnicodeScalarView()
        var isEscaped = false
        for scalar in value.unicodeScalars.dropFirst() {
            if isEscaped {
                isEscaped = false
            } else if scalar == "\\" {
                isEscaped = true
                continue
            } else if scalar == "\"" {
                break
            }
            text.append(scalar)
        }
        return String(text)
    }

    /// Whether `text` contains `word`, ignoring ASCII case. `word` must be lower-case ASCII.
    static func contains(_ text: String, _ word: StaticString) -> Bool {
        var text = text
        return text.withUTF8 { bytes in
            word.withUTF8Buffer { word in
                guard bytes.count >= word.count else { return false }
                return (0...(bytes.count - word.count)).contains { start in
                    word.indices.allSatisfy { offset in
                        let byte = bytes[start + offset]
                        let isUpper = (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte)
                        return (isUpper ? byte | 0x20 : byte) == word[offset]
                    }
                }
            }
        }
    }

    /// Returns a text for a header or a log line: at most `limit` characters, with `?` for everything but printable
    /// ASCII.
    static func sanitized(_ text: some StringProtocol, limit: Int) -> String {
        String(
            decoding: text.unicodeScalars.prefix(limit).map {
                (0x20...0x7E).contains($0.value) ? UInt8($0.value) : UInt8(ascii: "?")
            }, as: UTF8.self)
    }
}

extension HTTPField.Name {
    // The literals below are valid field names, so their initializers cannot fail.

    /// The error's text, as in the tutorial's server.
    static let errorDescription = HTTPField.Name("X-Error-Description")!
    static let requestID = HTTPField.Name("X-Request-Id")!
    static let traceParent = HTTPField.Name("traceparent")!
    /// The member whose stream is requested.
    static let udid = HTTPField.Name("X-Udid")!
    static let idempotencyKey = HTTPField.Name("Idempotency-Key")!
    /// Whether the response belongs to an earlier request with the same key.
    static let idempotencyReplayed = HTTPField.Name("Idempotency-Replayed")!
    static let forwarded = HTTPField.Name("Forwarded")!
    static let xForwardedFor = HTTPField.Name("X-Forwarded-For")!
    /// Headers that proxies add. Each kind of proxy adds at least one.
    static let ofProxies = [
        forwarded, xForwardedFor, HTTPField.Name("X-Forwarded-Host")!, HTTPField.Name("X-Forwarded-Proto")!,
        HTTPField.Name("X-Real-IP")!, .via,
    ]
    static let referrerPolicy = HTTPField.Name("Referrer-Policy")!
    /// The relation of the requesting page to this server, as determined by the browser (Fetch Metadata). Pages cannot
    /// set it.
    static let secFetchSite = HTTPField.Name("Sec-Fetch-Site")!
    static let lastEventID = HTTPField.Name("Last-Event-ID")!
    /// Tells nginx whether to buffer the response.
    static let accelBuffering = HTTPField.Name("X-Accel-Buffering")!
}

extension HTTPFields {
    /// Returns the first value of a name. Cheaper than the subscript, which joins all values.
    func first(_ name: HTTPField.Name) -> String? {
        for field in self where field.name == name { return field.value }
        return nil
    }

    /// The media type of the body in lower case, without parameters. Empty if the header is missing.
    var mediaType: String { HeaderText.parameterized((first(.contentType) ?? "")[...]).value }

    /// The charset of the body, as `Content-Type` declares it. UTF-8 if it declares none, or one that is not known.
    var charset: Charset {
        let parameters = HeaderText.parameterized((first(.contentType) ?? "")[...]).parameters
        return parameters.last { $0.name == "charset" }.flatMap { Charset(name: $0.value) } ?? .utf8
    }

    /// The token of an `Authorization: Bearer` header (RFC 6750 §2.1). `nil` if there is none. The scheme's case does
    /// not matter.
    var bearerToken: String? {
        guard let value = first(.authorization) else { return nil }
        let parts = value.split(separator: " ", maxSplits: 1, omittingEmptySubsequences: true)
        guard parts.count == 2, parts[0].lowercased() == "bearer" else { return nil }
        let token = HeaderText.trimmed(parts[1])
        return token.isEmpty ? nil : String(token)
    }

    /// ``bearerToken``, for calls that need a credential. Empty for an `Authorization` header of another form, which
    /// grants no access. `nil` only if the request has no such header.
    var credential: String? { bearerToken ?? (contains(.authorization) ? "" : nil) }

    /// Returns the `Idempotency-Key`, with which a retried request has its effect only once. `nil` if there is none.
    func idempotencyKey() throws(ChatError) -> String? {
        guard let key = first(.idempotencyKey) else { return nil }
        return try Self.checkedIdempotencyKey(key, field: "Idempotency-Key")
    }

    static func checkedIdempotencyKey(_ key: String, field: String) throws(ChatError) -> String {
        guard (1...HTTPLimits.idempotencyKey).contains(key.utf8.count),
            key.utf8.allSatisfy({ (0x20...0x7E).contains($0) })
        else {
            throw .invalid(field, "must be 1 to \(HTTPLimits.idempotencyKey) printable ASCII characters")
        }
        return key
    }
}
