import ChatDomain
import Foundation
import Testing

@Suite("JSON values")
struct JSONValueTests {
    @Test(
        "A value is written as it was read: members in order, numbers with their digits, the fewest escapes",
        arguments: [
            ("null", "null"), (" true ", "true"), ("[1, 2.50, -0, 1e400]", "[1,2.50,-0,1e400]"),
            (#"{"b":1,"a":{"z":[],"y":{}}}"#, #"{"b":1,"a":{"z":[],"y":{}}}"#),
            (#""\u65b0\u5e74\/\u00e9\ud83d\ude00""#, #""新年/é😀""#),
            (#""\b\f\n\r\t\"\\\u0001\u007f""#, "\"\\b\\f\\n\\r\\t\\\"\\\\\\u0001\u{7F}\""),
            ("12345678901234567890123456789", "12345678901234567890123456789"), ("\t\r\n{ }\n", "{}"),
        ])
    func roundTrip(text: String, expected: String) throws {
        let value = try JSONValue(parsing: text)
        #expect(value.description == expected)
        #expect(try JSONValue(parsing: value.description) == value)
        #expect(try JSONValue(parsing: value.indented) == value)
    }

    @Test(
        "Malformed JSON is rejected with the position of the error",
        arguments: [
            ("", 1), (" ", 2), ("{", 2), ("[1,]", 4), (#"{"a":1,}"#, 8), (#"{"a" 1}"#, 6), ("01", 2), ("1.", 3),
            (".5", 1), ("+1", 1), ("1e", 3), ("-", 2), ("nul", 1), ("'a'", 1), ("\"a", 1), ("\"\n\"", 2),
            (#""\x""#, 2), (#""\u12g4""#, 2), (#""\ud800""#, 2), (#""\udc00""#, 2), (#""\ud800\u0041""#, 2),
            ("1 2", 3), ("{}}", 3), (#"{"a":1,"a":2}"#, 8), ("NaN", 1), ("/* */1", 1), ("\u{FEFF}1", 1),
        ])
    func malformed(text: String, byte: Int) {
        let error = #expect(throws: JSONValue.Malformed.self) { try JSONValue(parsing: text) }
        #expect(error?.byte == byte, "\(error?.description ?? "accepted")")
    }

    @Test(
        "A lenient reader substitutes what has no meaning, and still rejects other texts",
        arguments: [
            (#""\ud800""#, #""\u{FFFD}""#), (#""\udc00x""#, #""\u{FFFD}x""#), (#""\ud800\u0041""#, #""\u{FFFD}A""#),
            (#""\ud800\ud83d\ude00""#, #""\u{FFFD}😀""#), (#""\ud83d\ude00""#, #""😀""#), ("\u{FEFF}1", "1"),
            (#"{"a":1,"b":2,"a":3}"#, #"{"a":3,"b":2}"#), ("1 2", "1"), (#""\u12g4""#, nil), ("{", nil), ("", nil),
            ("1\u{FEFF}", "1"), ("\u{FEFF}\u{FEFF}1", nil), ("\"\n\"", nil),
        ] as [(String, String?)])
    func lenient(text: String, expected: String?) throws {
        let value = try? JSONValue(parsing: text.utf8, isLenient: true)
        #expect(try value == expected.map { try JSONValue(parsing: $0.replacing("\\u{FFFD}", with: "\u{FFFD}")) })
    }

    @Test("A lenient reader replaces bytes that are not UTF-8, and reads many doubled names in linear time")
    func lenientSizes() throws {
        #expect(try JSONValue(parsing: Array("\"a".utf8) + [0xFF, 0x22], isLenient: true) == .string("a\u{FFFD}"))
        let names = (0..<50_000).map { #""\#($0)":0"# }.joined(separator: ",")
        let object = try JSONValue(parsing: "{\(names),\(names)}".utf8, isLenient: true).object
        #expect(object?.members.count == 50_000)
    }

    @Test(
        "A whole number has its value however it is written, and nothing is rounded to one",
        arguments: [
            ("0", 0), ("-0.0e9", 0), ("1.0", 1), ("1e3", 1000), ("1.5e1", 15), ("1500E-2", 15), ("-2.50e+2", -250),
            ("9223372036854775807", .max), ("-9223372036854775808.0", .min), ("0e99999999999999999999", 0),
            ("9007199254740993.0", 9_007_199_254_740_993), ("9223372036854775808", nil), ("1e19", nil), ("1.5", nil),
            ("1e-1", nil), ("1e99999999999999999999", nil), ("1e-9223372036854775808", nil),
            ("9223372036854775807.00000000000000000001", nil), ("0." + String(repeating: "9", count: 400_000), nil),
            ("2." + String(repeating: "0", count: 400_000), 2), (String(repeating: "9", count: 400_000), nil),
        ] as [(String, Int64?)])
    func whole(text: String, expected: Int64?) throws {
        #expect(try JSONValue(parsing: text).integer == expected)
    }

    @Test("Bytes that are not UTF-8 are rejected", arguments: [[0xFF], [0xC3], [0xED, 0xA0, 0x80], [0xC0, 0x80]])
    func noUTF8(bytes: [UInt8]) {
        let text = [UInt8(ascii: "\"")] + bytes + [UInt8(ascii: "\"")]
        #expect(throws: JSONValue.Malformed.self) { try JSONValue(parsing: text) }
    }

    @Test("Nesting has a limit, far below the limit of the stack")
    func deep() throws {
        func nested(_ depth: Int) -> String {
            String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
        }
        _ = try JSONValue(parsing: nested(JSONValue.maxDepth))
        #expect(throws: JSONValue.Malformed.self) { try JSONValue(parsing: nested(JSONValue.maxDepth + 1)) }
        #expect(throws: JSONValue.Malformed.self) { try JSONValue(parsing: nested(100_000)) }
        #expect(throws: JSONValue.Malformed.self) {
            try JSONValue(parsing: String(repeating: #"{"a":"#, count: 100_000))
        }
    }

    @Test("Foundation reads the JSON that is written")
    func independent() throws {
        let text = String(String.UnicodeScalarView((0..<0x300).compactMap(Unicode.Scalar.init))) + "\u{2028}😀"
        let written = JSONValue.object(["a\"b": .string(text), "n": .number("1.5")]).description
        let object = try JSONSerialization.jsonObject(with: Data(written.utf8)) as? [String: Any]
        #expect(object?["a\"b"] as? String == text)
        #expect(object?["n"] as? Double == 1.5)
    }

    @Test("Only whole numbers are integers")
    func integers() throws {
        #expect(try JSONValue(parsing: "9223372036854775807").integer == .max)
        for (text, value) in [("1.0", 1), ("1e3", 1000), ("-2.50e1", -25), ("-0", 0)] as [(String, Int64)] {
            #expect(try JSONValue(parsing: text).integer == value)
        }
        for text in ["1.5", "1e-1", "1e30", "9223372036854775808", "\"1\"", "true"] {
            #expect(try JSONValue(parsing: text).integer == nil)
        }
    }
}
