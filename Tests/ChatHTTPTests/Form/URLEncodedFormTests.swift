import ChatDomain
import Testing

@testable import ChatHTTP

@Suite("Url-encoded forms")
struct URLEncodedFormTests {
    private func text(_ body: String, charset: Charset = .utf8) throws -> String? {
        try URLEncodedForm.parse(Array(body.utf8), charset: charset).text(.text)
    }

    @Test(
        "Values are decoded from every client's encoding",
        arguments: [
            ("text=a+b", "a b"), ("text=a%20b", "a b"), ("text=%2B", "+"), ("text=100%25", "100%"),
            ("text=%e2%82%AC", "€"), ("text=€", "€"), ("text=a=b", "a=b"), ("text==", "="), ("text=", ""),
            ("text", ""), ("&&text=1&&", "1"), ("text=1&text=2", "2"), ("text=1&text", ""), ("x=1&text=2&y", "2"),
            ("te%78t=1", "1"), ("Text=1", nil), ("text[]=1", nil), ("", nil), ("=1", nil), ("&", nil),
            ("text=a%0D%0Ab", "a\r\nb"), ("text=a\r\n", "a\r\n"), ("text=a;udid=b", "a;udid=b"), ("text=%00", "\0"),
        ] as [(String, String?)])
    func values(body: String, text: String?) throws {
        #expect(try self.text(body) == text)
    }

    @Test(
        "A % without two hexadecimal digits is read literally, as by the original server",
        arguments: [
            ("text=%", "%"), ("text=%4", "%4"), ("text=%4g", "%4g"), ("text=100%&x=1", "100%"), ("text=%%41", "%A"),
            ("text=100% sure", "100% sure"),
        ])
    func lonePercent(body: String, expected: String) throws {
        #expect(try text(body) == expected)
    }

    @Test(
        "Text that is not UTF-8 is refused, and the error names the field",
        arguments: ["%FF", "%C3", "%ED%A0%80", "%C0%80"])
    func notUTF8(value: String) throws {
        let error = try #require(throws: ChatError.self) { try text("text=\(value)") }
        #expect(error.message == "Invalid text: must be UTF-8")
    }

    @Test("An unknown field is not decoded")
    func ignored() throws {
        #expect(try text("other=%&x=%FF&text=1") == "1")
        #expect(try text("oth%er=1&text=1") == "1")
    }

    @Test("Latin 1 and Windows 1252 are decoded")
    func charsets() throws {
        #expect(try text("text=caf%E9%80", charset: .latin1) == "café\u{80}")
        #expect(try text("text=caf%E9%80%99%9F%81", charset: .windows1252) == "café€™Ÿ\u{81}")
    }

    @Test("The number of fields and the length of their names are limited")
    func limits() throws {
        let most = Array(repeating: "x=1", count: HTTPLimits.fields - 1).joined(separator: "&") + "&text=1"
        #expect(try text(most) == "1")
        #expect(throws: ChatError.self) { try text(most + "&y") }
        let longest = String(repeating: "k", count: HTTPLimits.fieldName)
        #expect(try text("\(longest)=1&text=2") == "2")
        #expect(throws: ChatError.self) { try text("\(longest)k=1&text=2") }
    }
}

@Suite("Content types")
struct FormTypeTests {
    @Test(
        "Case, blanks, order and unknown parameters do not matter",
        arguments: [
            ("application/x-www-form-urlencoded", .urlEncoded(.utf8)),
            ("APPLICATION/X-WWW-Form-UrlEncoded ; Charset=\"UTF-8\"", .urlEncoded(.utf8)),
            ("application/x-www-form-urlencoded; charset=iso-8859-1", .urlEncoded(.latin1)),
            ("application/x-www-form-urlencoded;x=y;charset=windows-1252;", .urlEncoded(.windows1252)),
            (
                "multipart/form-data; charset=utf-8; boundary=0xKhTmLbOuNdArY-1F2E",
                .multipart(boundary: "0xKhTmLbOuNdArY-1F2E", .utf8)
            ),
            (
                "multipart/form-data; boundary=Boundary+0xAbCdEfGbOuNdArY",
                .multipart(boundary: "Boundary+0xAbCdEfGbOuNdArY", .utf8)
            ),
            ("Multipart/Form-Data; BOUNDARY=\"a; b=\\\"c\"; charset=latin1", .multipart(boundary: "a; b=\"c", .latin1)),
        ] as [(String, FormType)])
    func parses(header: String, type: FormType) throws {
        #expect(try FormType(parsing: header) == type)
    }

    @Test(
        "Other types get a 415 that names the given type and the accepted ones",
        arguments: [
            ("application/json; charset=utf-8", "application/json"), ("text/plain", "text/plain"), ("", "Content-Type"),
            ("application/x-www-form-urlencoded; charset=utf-7", "utf-7"),
            ("multipart/form-data; boundary=x; charset=\"koi8-r\"", "koi8-r"),
            ("application/x-plist\r\nX: y", "application/x-plist??x: y"),
        ])
    func refused(header: String, names: String) throws {
        let error = try #require(throws: ChatError.self) { try FormType(parsing: header) }
        #expect(error.code == .unsupportedMediaType)
        #expect(error.message.contains(names), "\(error.message)")
        #expect(error.message.contains("send "))
    }

    @Test(
        "A multipart body needs a boundary of limited length",
        arguments: [
            "multipart/form-data", "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\(String(repeating: "b", count: 201))",
        ])
    func boundary(header: String) throws {
        #expect(try #require(throws: ChatError.self) { try FormType(parsing: header) }.code == .malformedRequest)
    }

    @Test("A body without a content type is refused, and so is JSON")
    func overHTTP() async throws {
        let nothing = try await Relay().send(body: Array(Sample.leave.utf8))
        #expect(nothing.status == .unsupportedMediaType)
        #expect(nothing.text.contains("no Content-Type"))
        let json = try await Relay().form(#"{"cmd":"leave"}"#, headers: [.contentType: "application/json"])
        #expect(json.status == .unsupportedMediaType)
        #expect(json.text.contains("application/x-www-form-urlencoded or multipart/form-data"))
    }
}
