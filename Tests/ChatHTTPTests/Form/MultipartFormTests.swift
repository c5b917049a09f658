import ChatDomain
import Testing

@testable import ChatHTTP

@Suite("Multipart forms")
struct MultipartFormTests {
    private func parse(_ body: String, boundary: String = "B", charset: Charset = .utf8) throws -> FormFields {
        try MultipartForm.parse(Array(body.utf8), boundary: Array(boundary.utf8), charset: charset)
    }

    private static func part(_ name: String, _ value: String) -> String {
        "--B\r\nContent-Disposition: form-data; name=\"\(name)\"\r\n\r\n\(value)\r\n"
    }

    @Test(
        "Line ends, preamble, epilogue, blanks after the boundary and the case of headers do not matter",
        arguments: [
            "--B\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\nHi\r\n--B--\r\n",
            "--B\nContent-Disposition: form-data; name=\"text\"\n\nHi\n--B--\n",
            "preamble\r\n--Bx\r\n--B \t\r\ncontent-disposition:form-data;name=text\r\n\r\nHi\r\n--B--epilogue\r\n--B\r\n",
            "\r\n--B\r\nX-Other: 1\r\nContent-Type: text/plain; charset=UTF-8\r\nContent-Disposition: form-data; x=y; NAME=\"te\\xt\"\r\n\r\nHi\r\n--B--",
            "--B\r\nContent-Transfer-Encoding: 8bit\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\nHi\r\n--B--",
        ])
    func spellings(body: String) throws {
        #expect(try parse(body).text(.text) == "Hi")
    }

    @Test(
        "A value is kept unchanged, including line ends and lookalikes of the boundary",
        arguments: [
            "", "\r\n", "a\r\nb\r\n", "+%41&=", "x--B", "\r\n --B", "\r\n--", "\r\n--Bx\r\n", "\n--C\n", "é😀", "-",
            "\r\n\r\nName: x",
        ])
    func values(value: String) throws {
        let form = try parse(Self.part("text", value) + Self.part("name", "N") + "--B--\r\n")
        #expect(try form.text(.text) == value)
        #expect(try form.text(.name) == "N")
    }

    @Test("The last field with a name counts; files and unknown fields are ignored, whatever they contain")
    func ignored() throws {
        let file =
            "--B\r\nContent-Disposition: form-data; name=\"text\"; filename=\"a.txt\"\r\nContent-Type: application/octet-stream\r\n\r\n\0\r\n\r\n"
        let form = try parse(
            Self.part("text", "1") + Self.part("other", "x") + Self.part("text", "2") + file + "--B--\r\n")
        #expect(try form.text(.text) == "2")
    }

    @Test("A part's own charset takes precedence over the form's")
    func charset() throws {
        let body =
            Array("--B\r\nContent-Disposition: form-data; name=text\r\n\r\n".utf8) + [0xE9] + Array("\r\n--B\r\n".utf8)
            + Array(
                "Content-Disposition: form-data; name=name\r\nContent-Type: text/plain; charset=utf-8\r\n\r\né\r\n--B--"
                    .utf8)
        let form = try MultipartForm.parse(body, boundary: Array("B".utf8), charset: .latin1)
        #expect(try form.text(.text) == "é")
        #expect(try form.text(.name) == "é")
    }

    @Test("A value that is not UTF-8 is refused, and the error names the field")
    func notUTF8() throws {
        let body =
            Array("--B\r\nContent-Disposition: form-data; name=text\r\n\r\n".utf8) + [0xFF] + Array("\r\n--B--".utf8)
        let form = try MultipartForm.parse(body, boundary: Array("B".utf8), charset: .utf8)
        #expect(try #require(throws: ChatError.self) { try form.text(.text) }.field == "text")
    }

    @Test(
        "Ambiguous bodies are refused",
        arguments: [
            "", "text=1", "--C\r\n\r\n--C--", "--B\r\n", "--B",
            "--B\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\nHalf of a mess",
            "--B\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\nHi\r\n--B",
            "--B\r\nContent-Disposition: form-data\r\n\r\nHi\r\n--B--", "--B\r\n\r\nHi\r\n--B--",
            "--B\r\nno colon\r\n\r\nHi\r\n--B--", "--B\r\n--B--",
            "--B\r\nContent-Disposition: form-data; name=text\r\nnot blank\r\n--B--",
            "--B\r\nContent-Disposition: form-data; name=text\r\nContent-Transfer-Encoding: base64\r\n\r\nSGk=\r\n--B--",
            "--B\r\n" + String(repeating: "X: y\r\n", count: 17) + "\r\n\r\n--B--",
        ])
    func malformed(body: String) throws {
        #expect(try #require(throws: ChatError.self) { try parse(body) }.code == .malformedRequest)
    }

    @Test("A multipart body without parts is a form without fields")
    func empty() throws {
        #expect(try parse("--B--\r\n").text(.text) == nil)
    }

    @Test("The number of parts is limited")
    func limits() throws {
        let most = String(repeating: Self.part("x", "1"), count: HTTPLimits.fields - 1) + Self.part("text", "1")
        #expect(try parse(most + "--B--").text(.text) == "1")
        #expect(throws: ChatError.self) { try parse(most + Self.part("y", "1") + "--B--") }
    }

    @Test("A body that is cut at any position gives an error and no crash")
    func truncated() throws {
        let body = Array((Self.part("text", "a\r\nb") + Self.part("name", "") + "--B--").utf8)
        for length in 0..<(body.count - 1) {
            #expect(throws: ChatError.self) {
                try MultipartForm.parse(Array(body[..<length]), boundary: Array("B".utf8), charset: .utf8)
            }
        }
    }
}
