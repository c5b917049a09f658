import Testing

@testable import ChatDomain

@Suite("Fields of the chat API")
struct FieldTests {
    @Test(
        "A udid is 32 or 40 digits in any spelling",
        arguments: [
            ("0F744707BEBCF74F9B7C25D48E335894", "0f744707bebcf74f9b7c25d48e335894"),
            ("0f744707-bebc-f74f-9b7c-25d48e335894", "0f744707bebcf74f9b7c25d48e335894"),
            (" 0123456789012345678901234567890123456789\n", "0123456789012345678901234567890123456789"),
        ])
    func udid(text: String, expected: String) throws {
        #expect(try MemberID(parsing: text).text == expected)
    }

    @Test(
        "The error for a wrong udid names the field and the rule",
        arguments: ["", "123", "g0123456789012345678901234567890"])
    func wrongUdid(text: String) {
        #expect {
            try MemberID(parsing: text, field: "user_id")
        } throws: {
            ($0 as? ChatError)?.message.hasPrefix("Invalid user_id: must be 32 or 40 hexadecimal") == true
        }
    }

    @Test(
        "A token is read in every form in which tokens are printed",
        arguments: [
            "0f744707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bbad78",
            "<0f744707 bebcf74f 9b7c25d4 8e335894 5f6aa01d a5ddb387 462c7eaf 61bbad78>",
            "0F744707 BEBCF74F 9B7C25D4 8E335894 5F6AA01D A5DDB387 462C7EAF 61BBAD78",
            "  0f744707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bbad78\n",
        ])
    func token(text: String) throws {
        let token = try DeviceToken(parsing: text)
        #expect(token.description == "0f744707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bbad78")
        #expect(token.shortened == "0f744707…")
    }

    @Test("A token has 32 to 100 bytes")
    func tokenSizes() throws {
        #expect(try DeviceToken(parsing: String(repeating: "ab", count: 100)).bytes?.count == 100)
        for count in [0, 31, 101] {
            #expect(throws: ChatError.self) { try DeviceToken(parsing: String(repeating: "ab", count: count)) }
        }
    }

    @Test(
        "Google's tokens are kept as they are",
        arguments: [
            "cAAAAAAAAAAAAAAAAAAAA1", "fcdefcdefcdefcdefcdefc", "dQ3xk0ZrTq6p8Jm1v2NwY-:APA91bH_-xyz",
            " cAAAAAAAAAAAAAAAAAAAA1 ", "cAAAAAAAAAAAAAAAAAAAA1:" + String(repeating: "a", count: 1001),
        ])
    func firebaseTokens(_ text: String) throws {
        let token = try DeviceToken(parsing: text)
        #expect(token.kind == .installation && token.description == FieldText.trimmed(text))
        #expect(Array(token.description.utf8).withUnsafeBytes { Address(stored: $0) } == .token(token))
    }

    @Test(
        "A text that only resembles one of Google's tokens is refused",
        arguments: [
            "aAAAAAAAAAAAAAAAAAAAA1", "cAAAAAAAAAAAAAAAAAAAA", "cAAAAAAAAAAAAAAAAAAAA12", "cAAAAAAAAAAAAAAAAAAAA1:",
            "cAAAAAAAAAAAAAAAAAAAA1:short", "cAAAAAAAAAAAAAAAAAAAA1:APA91b.xyz", "cAAAAAAAAAA AAAAAAAAAA1",
            "cAAAAAAAAAAAAAAAAAAAA1:" + String(repeating: "a", count: 1002),
        ])
    func otherTokens(_ text: String) {
        let error = #expect(throws: ChatError.self) { try DeviceToken(parsing: text) }
        #expect(error?.field == "token")
    }

    @Test("The description of a Data value since iOS 13 is rejected with an error that names it")
    func dataDescription() {
        #expect {
            try DeviceToken(parsing: "{length = 32, bytes = 0x0f744707 bebcf74f ... 61bbad78 }")
        } throws: {
            ($0 as? ChatError)?.message.contains("description of a Data value") == true
        }
    }

    @Test("The text 0 is valid; blank texts, control characters and long texts are rejected")
    func texts() throws {
        #expect(try MessageText(parsing: "0").text == "0")
        #expect(try Nickname(parsing: "0").text == "0")
        #expect(try SecretCode(parsing: " 0 ").text == "0")
        #expect(try MessageText(parsing: "a\r\nb").text == "a\r\nb")
        #expect(try MessageText(parsing: "\ta\tb\n\tc ").text == "a\tb\n\tc")
        #expect(throws: ChatError.self) { try Nickname(parsing: "a\tb") }
        for text in ["", " \t\n", "a\u{B}b", "a\u{1}b", String(repeating: "x", count: 191)] {
            #expect(throws: ChatError.self) { try MessageText(parsing: text) }
        }
        #expect(try MessageText(parsing: String(repeating: "好", count: 63)).text.utf8.count == 189)
        #expect(throws: ChatError.self) { try MessageText(parsing: String(repeating: "好", count: 64)) }
    }

    @Test(
        "Invisible characters are removed at the ends of names, and joiners stay where a script needs them",
        arguments: [
            ("\u{200B}Ann\u{2800}\u{FEFF}", "Ann"), ("\u{A0}Ann\u{200D}\u{FE0F}", "Ann"), ("e\u{301}\u{AD}", "\u{E9}"),
            ("❤\u{FE0F}", "❤\u{FE0F}"), ("1\u{FE0F}\u{20E3}", "1\u{FE0F}\u{20E3}"), ("👩\u{200D}💻", "👩\u{200D}💻"),
            ("می\u{200C}خواهم", "می\u{200C}خواهم"), ("ه\u{200D}", "ه\u{200D}"), ("葛\u{E0100}", "葛\u{E0100}"),
            ("🏴\u{E0067}\u{E007F}", "🏴\u{E0067}\u{E007F}"), ("\u{202E}margorp\u{202C}", "margorp"),
            ("a\u{2067}b\u{2069}c", "abc"), ("שלום\u{200F}", "שלום"), ("Bob:\u{202E} x", "Bob:x"),
            ("Ann\u{2028}Bob\u{2029}", "AnnBob"),
        ])
    func visible(name: String, expected: String) throws {
        #expect(try Array(Nickname(parsing: name).text.unicodeScalars) == Array(expected.unicodeScalars))
    }

    @Test(
        "Invisible names and texts are refused, and a member keeps such a name",
        arguments: ["\u{200B}", "\u{2800}\u{2800}", "\u{3164}", "\u{AD}", "\u{A0}", "\u{202E}", "\u{FE0F}\u{200D}"])
    func invisible(text: String) throws {
        let name = #expect(throws: ChatError.self) { try Nickname(parsing: text) }
        #expect(name?.message == "Invalid name: must not be empty")
        #expect(throws: ChatError.self) { try MessageText(parsing: text) }
        #expect(try Nickname(ofMember: text).text == text && Nickname(ofMember: text).isBlank)
        #expect(try SecretCode(parsing: text).visible == nil)
    }

    @Test("A stored name that overrides the direction of writing loses the override")
    func storedNames() {
        #expect(Nickname(stored: "\u{202E}margorp").text == "margorp")
        let message = Message(
            id: 1, sender: MemberID(stored: "2"), nickname: "a\u{2066}b", content: MessageContent(stored: "x\u{202E}"),
            sentAt: Timestamp(seconds: 0))
        #expect(message.nickname == "ab" && message.text == "x\u{202E}")
        #expect(Nickname.isolated("דנה") == "\u{2068}דנה\u{2069}" && Nickname.isolated("Dana – 新") == "Dana – 新")
    }

    @Test("The displayed fields of a message keep members of a newer relay, and show none of them")
    func extras() {
        #expect(MessageExtras(stored: #"{"later":[1]}"#).stored == #"{"later":[1]}"#)
        #expect(MessageExtras(stored: #"{"text":"x"}"#).shown.isEmpty)
        for text in [nil, "{}", "[1]", "no JSON"] { #expect(MessageExtras(stored: text) == MessageExtras()) }
        #expect(MessageExtras().stored == nil)
    }

    @Test("A nickname with a colon and a space is rejected, because it could pass for text")
    func ambiguousName() throws {
        #expect(try Nickname(parsing: "Bob:").text == "Bob:")
        #expect(throws: ChatError.self) { try Nickname(parsing: "Bob: x") }
    }

    @Test(
        "A row's address is a token in any form in which tokens are printed",
        arguments: [
            (String(repeating: "ab", count: 32), String(repeating: "ab", count: 32)),
            (String(repeating: "AB", count: 32), String(repeating: "ab", count: 32)),
            ("<" + String(repeating: "AAAAAAAA ", count: 8) + ">", String(repeating: "a", count: 64)),
            (String(repeating: "ab", count: 100), String(repeating: "ab", count: 100)), ("not a token", nil), ("", nil),
            ("aa", nil), (String(repeating: "a", count: 65), nil), (String(repeating: "ab", count: 101), nil),
            ("{length = 32, bytes = 0xabababab}", nil),
        ] as [(String, String?)])
    func addresses(text: String, expected: String?) {
        let address = Array(text.utf8).withUnsafeBytes { Address(stored: $0) }
        #expect(address?.description == expected)
    }

    @Test("A code names one room in any Unicode composition, and case matters")
    func codes() throws {
        #expect(try Array(SecretCode(parsing: "e\u{301}").text.utf8) == Array("\u{E9}".utf8))
        #expect(try SecretCode(parsing: "Secret").text != SecretCode(parsing: "secret").text)
    }

    @Test(
        "Times are written and read as SQLite's functions do",
        arguments: [
            (Int64(1_304_805_449_000), "2011-05-07 21:57:29.000", "2011-05-07T21:57:29.000Z"),
            (Int64(0), "1970-01-01 00:00:00.000", "1970-01-01T00:00:00.000Z"),
            (Int64(-1), "1969-12-31 23:59:59.999", "1969-12-31T23:59:59.999Z"),
        ])
    func timestamps(milliseconds: Int64, sql: String, rfc: String) {
        let time = Timestamp(milliseconds: milliseconds)
        #expect(time.sqlText == sql)
        #expect(time.rfc3339 == rfc)
        #expect(Timestamp(sqlText: sql) == time)
    }

    @Test("SQLite's shorter forms of a time are read, other text is not")
    func otherTimes() {
        #expect(Timestamp(sqlText: "2011-05-07 21:57:29") == Timestamp(milliseconds: 1_304_805_449_000))
        #expect(Timestamp(sqlText: "2011-05-07 21:57:29.5") == Timestamp(milliseconds: 1_304_805_449_500))
        #expect(Timestamp(sqlText: "yesterday") == nil)
        #expect(Timestamp(sqlText: "9999999999-01-01 00:00:00") == nil)
    }

    @Test("Retry delays double up to the longest, until the attempts are used up")
    func retries() {
        let policy = RetryPolicy(first: .seconds(1), longest: .seconds(5), attempts: 6)
        #expect(
            (1...6).map { policy.delay(afterAttempts: $0) } == [
                .seconds(1), .seconds(2), .seconds(4), .seconds(5), .seconds(5), nil,
            ])
    }
}
