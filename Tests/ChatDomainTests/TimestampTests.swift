import ChatDomain
import Testing

@Suite("Times as text")
struct TimestampTests {
    @Test(
        "RFC 3339 is read",
        arguments: [
            ("2026-05-07T21:57:29Z", 1_778_191_049_000), ("2026-05-07t21:57:29.123z", 1_778_191_049_123),
            ("2026-05-07T23:57:29.123456789+02:00", 1_778_191_049_123),
            ("2026-05-07 16:27:29-05:30", 1_778_191_049_000),
            ("1970-01-01T00:00:00Z", 0), ("1969-12-31T23:59:59Z", -1000),
        ])
    func read(text: String, milliseconds: Int64) {
        #expect(Timestamp(rfc3339: text)?.milliseconds == milliseconds)
    }

    @Test(
        "Text that is not RFC 3339, or not a date of the calendar, is rejected",
        arguments: [
            "", "2026-05-07", "2026-05-07T21:57:29", "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z",
            "2026-05-07T25:00:00Z", "2026-05-07T21:57Z", "26-05-07T21:57:29Z", "2026-05-07T21:57:29+25:00",
            "2026-05-07T21:57:29Z ", "x",
        ])
    func refused(text: String) {
        #expect(Timestamp(rfc3339: text) == nil)
    }

    @Test(
        "Bytes of the database read like their text, also long ago and on leap days; other bytes are rejected")
    func bytes() {
        func read(_ text: String) -> Timestamp? {
            var text = text
            return text.withUTF8 { Timestamp(sqlText: UnsafeRawBufferPointer($0)) }
        }
        let step: Int64 = 7919 * 86_400_000 + 12_345_678
        for number in 0..<460 {
            let time = Timestamp(milliseconds: -62_167_219_200_000 + Int64(number) * step)
            #expect(read(time.sqlText) == time)
        }
        for text in [
            "2000-02-29 23:59:59.999", "1900-02-28 00:00:00.000", "2100-03-01 12:00:00", "0000-02-29 00:00:00",
        ] {
            #expect(read(text) == Timestamp(sqlText: text) && read(text) != nil, "\(text)")
        }
        for text in [
            "", "2026-05-07", "2026-05-07T21:57:29.123", "2026-05-07 21:57:29.12", "2026-05-07 21-57-29.123",
            "2026-13-07 21:57:29.123", "2026-00-07 21:57:29.123", "2026-05-07 21:57:29.1x3", "２026-05-07 21:57:29",
        ] {
            #expect(read(text) == nil, "\(text)")
        }
    }

    @Test("A written time reads back as the same time")
    func roundTrip() {
        for milliseconds in [0, 1, 999, 1_778_191_049_123, 253_402_300_799_999] as [Int64] {
            let time = Timestamp(milliseconds: milliseconds)
            #expect(Timestamp(rfc3339: time.rfc3339) == time)
        }
    }
}
