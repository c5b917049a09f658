import ChatDomain
import Testing

@Suite("Messages that change")
struct MessageChangeTests {
    @Test(
        "A key has letters, digits, _ and -, and does not look like an id",
        arguments: ["a", "disk-full_7", "m1234567890", "m1234567890a", "12a", "-", String(repeating: "k", count: 64)])
    func keys(text: String) throws {
        #expect(try MessageKey(parsing: text).text == text)
        #expect(try MessageReference(parsing: text) == .key(MessageKey(stored: text)))
    }

    @Test(
        "A text that is not a key is rejected with the rule",
        arguments: [
            ("", "must have 1 to 64 of A-Z, a-z, 0-9, _ and -"), ("é", "must have 1 to 64"),
            ("a b", "must have 1 to 64"),
            ("a.b", "must have 1 to 64"), ("\u{661}", "must have 1 to 64"),
            (String(repeating: "k", count: 65), "must have 1 to 64"),
            ("17", "must not be digits only, or m with 11 digits: those are ids"),
            ("m00000000017", "must not be digits only"), ("m123456789012345678901234567890", "must not be digits only"),
        ])
    func noKeys(text: String, rule: String) {
        let error = #expect(throws: ChatError.self) { try MessageKey(parsing: text, field: "sequence_id") }
        #expect(error?.field == "sequence_id" && error?.message.hasPrefix("Invalid sequence_id: \(rule)") == true)
    }

    @Test(
        "Digits and ntfy's ids name a message by its id",
        arguments: [("17", 17), ("0", 0), ("m00000000017", 17), ("m123456789012", 123_456_789_012)] as [(String, Int64)]
    )
    func ids(text: String, id: Int64) throws {
        #expect(try MessageReference(parsing: text) == .id(id))
    }

    @Test(
        "An id that is too large belongs to no message",
        arguments: ["9223372036854775808", "m9223372036854775808", String(repeating: "9", count: 10_000)])
    func largeIDs(text: String) {
        let error = #expect(throws: ChatError.self) { try MessageReference(parsing: text) }
        #expect(error?.code == .notFound)
    }

    private static let time = Timestamp(milliseconds: 1_800_000_000_123)

    @Test("The displayed fields have the key and the last change, and go back to those of the writer")
    func extras() throws {
        let plain = try MessageExtras(tags: ["warning", "disk é"], markdown: true, icon: "https://example.com/i.png")
        #expect(
            plain.stored == #"{"tags":["warning","disk é"],"markdown":true,"icon":"https://example.com/i.png"}"#)
        let key = MessageKey(stored: "disk")
        let posted = plain.with(key: key, at: Self.time, isApart: true)
        #expect(posted.key == key && posted.isApart && posted.revision == nil && posted.change == nil)
        #expect(posted.shown.map(\.name) == ["tags", "markdown", "icon", "key"])
        let edited = posted.with(key: key, revision: 2, change: .edited, at: Self.time, isApart: false)
        #expect(edited.shown.map(\.name) == ["tags", "markdown", "icon", "key", "revision", "edited_at"])
        #expect(edited.revision == 2 && edited.change == .edited && !edited.isApart)
        #expect(edited.shown.last?.value == .string("2027-01-15T08:00:00.123Z"))
        let cleared = edited.with(key: nil, revision: 2, change: .cleared, at: Self.time, isApart: false, removes: true)
        #expect(cleared.isRemoved && !edited.isRemoved)
        #expect(cleared.shown.map(\.name) == ["tags", "markdown", "icon", "revision", "cleared_at"])
        #expect(MessageExtras(stored: cleared.stored) == cleared)
        #expect(cleared.ofCaller == plain && edited.ofCaller == plain && plain.tags == ["warning", "disk é"])
        #expect(plain.isMarkdown && plain.icon == "https://example.com/i.png")
        #expect(try MessageExtras(tags: []).stored == nil)
        #expect(MessageExtras(stored: #"{"later":1,"key":"k"}"#).ofCaller.stored == #"{"later":1}"#)
    }

    @Test(
        "Displayed fields beyond their limits are rejected with the field's name",
        arguments: [
            ("tags", [String](repeating: "t", count: 21), nil), ("tags", [String(repeating: "t", count: 65)], nil),
            ("tags", ["a\nb"], nil), ("tags", [""], nil), ("icon", [], "ftp://example.com/"), ("icon", [], ""),
            ("icon", [], "https://example.com/" + String(repeating: "i", count: 2048)),
        ] as [(String, [String], String?)])
    func extrasLimits(field: String, tags: [String], icon: String?) {
        let error = #expect(throws: ChatError.self) { try MessageExtras(tags: tags, icon: icon) }
        #expect(error?.field == field && error?.code == .invalidField)
    }

    @Test("A message may be posted later, within 30 days")
    func due() throws {
        let horizon = Self.time + ScheduledMessage.horizon
        try ScheduledMessage.checkDue(horizon, now: Self.time)
        try ScheduledMessage.checkDue(Self.time + .milliseconds(1), now: Self.time)
        for (due, rule) in [
            (Self.time, "must be in the future"), (Self.time - .seconds(1), "must be in the future"),
            (horizon + .milliseconds(1), "must be within 30 days"),
            (Timestamp(milliseconds: .max), "must be within 30 days"),
        ] {
            let error = #expect(throws: ChatError.self) { try ScheduledMessage.checkDue(due, now: Self.time) }
            #expect(error?.message == "Invalid not_before: \(rule)")
        }
    }

    // MARK: - What a device needs

    /// A push of an older form.
    private static func old(_ id: Int64, _ state: PushState, silent: Bool = false) -> DeviceUpdate.Row {
        DeviceUpdate.Row(id: id, state: state, isSilent: silent, isCurrent: false, isHeldByGateway: false)
    }

    private static let current = DeviceUpdate.Row(
        id: 9, state: .pending, isSilent: true, isCurrent: true, isHeldByGateway: false)
    private static let held = DeviceUpdate.Row(
        id: 8, state: .pending, isSilent: false, isCurrent: false, isHeldByGateway: true)

    @Test(
        "A device gets what its earlier pushes leave open",
        arguments: [
            // A member that joined later gets only a change that rings.
            ([], false, 0, .nothing), ([], false, 5, .send(.ring)), ([], true, 5, .nothing),
            ([current, held, old(1, .sent)], false, 5, .nothing), ([held, old(1, .sent)], false, 5, .wait),
            ([held], true, 0, .wait),
            ([old(1, .sent)], false, 0, .send(.replace)), ([old(1, .sent)], true, 5, .send(.remove)),
            ([old(1, .cancelled)], true, 0, .nothing), ([old(1, .failed)], true, 0, .nothing),
            // The first push was overtaken by the edit. It still rings.
            ([old(1, .cancelled)], false, 0, .send(.ring)),
            ([old(1, .cancelled), old(2, .sent)], false, 0, .send(.replace)),
            // No device rings twice for one change, and a silent edit does not swallow the ring.
            ([old(1, .sent)], false, 1, .send(.ring)), ([old(1, .sent), old(2, .sent)], false, 1, .send(.replace)),
            ([old(1, .sent), old(2, .cancelled)], false, 1, .send(.ring)),
            ([old(1, .sent), old(2, .sent, silent: true)], false, 1, .send(.ring)),
            ([old(1, .sent), old(2, .cancelled, silent: true)], false, 0, .send(.replace)),
            ([old(1, .failed)], false, 0, .nothing), ([old(1, .expired)], false, 0, .nothing),
            ([old(1, .failed), old(2, .sent, silent: true)], false, 0, .send(.replace)),
        ] as [([DeviceUpdate.Row], Bool, Int64, DeviceUpdate.Next)])
    func needs(rows: [DeviceUpdate.Row], removes: Bool, ringAfter: Int64, next: DeviceUpdate.Next) {
        #expect(DeviceUpdate.next(rows, removes: removes, ringAfter: ringAfter) == next)
        #expect(DeviceUpdate.next(rows.reversed(), removes: removes, ringAfter: ringAfter) == next)
    }
}
