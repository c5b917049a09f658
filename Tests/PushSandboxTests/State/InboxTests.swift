import Foundation
import Testing

@testable import PushSandbox

@Suite("The inbox")
struct InboxTests {
    private func filled(_ count: Int, limit: Int = 100, byteLimit: Int = .max, payload: Int = 2) -> Inbox {
        var inbox = Inbox(limit: limit, byteLimit: byteLimit)
        for number in 0..<count {
            inbox.append { id in
                InboxEntry(
                    id: id, connection: 1, topic: "t", token: [UInt8(number % 2)],
                    payload: [UInt8](repeating: 0x20, count: payload), receivedAt: Date(timeIntervalSince1970: 0),
                    answer: .accepted, details: BinaryDetails(command: .framed, identifier: UInt32(number)))
            }
        }
        return inbox
    }

    @Test(
        "A page begins after the given id and says where the next begins",
        arguments: [
            (0, 3, [1, 2, 3], 3), (3, 3, [4, 5, 6], 6), (8, 3, [9, 10], 10), (10, 3, [], 10), (99, 3, [], 10),
            (.max, 3, [], 10), (0, 100, Array(1...10), 10),
        ])
    func pages(since: Int, limit: Int, ids: [Int], next: Int) {
        let page = filled(10).page(since: since, limit: limit)
        #expect(page.entries.map(\.id) == ids)
        #expect(page.next == next)
    }

    @Test("A page for a token skips the others and does not read them again")
    func tokens() {
        let page = filled(10).page(since: 0, filter: .init(token: [1]), limit: 2)
        #expect(page.entries.map(\.id) == [2, 4])
        #expect(page.next == 4)
        let rest = filled(10).page(since: 8, filter: .init(token: [0]), limit: 2)
        #expect(rest.entries.map(\.id) == [9])
        #expect(rest.next == 10)
    }

    @Test("The oldest notifications above the limit are dropped and counted", arguments: [1, 2, 1000, 5000])
    func countLimit(limit: Int) {
        let inbox = filled(6000, limit: limit)
        #expect(inbox.count == limit)
        #expect(inbox.dropped == 6000 - limit)
        #expect(inbox.page(since: 0, limit: .max).entries.map(\.id) == Array((6001 - limit)...6000))
    }

    @Test("The oldest notifications are dropped when the payloads exceed the limit, but the newest stays")
    func byteLimit() {
        let inbox = filled(10, byteLimit: 250, payload: 100)
        #expect(inbox.count == 2)
        #expect(inbox.bytes == 200)
        #expect(filled(3, byteLimit: 10, payload: 100).count == 1)
    }

    @Test("Ids continue after clearing, and clearing does not count as dropping")
    func clearing() {
        var inbox = filled(5)
        inbox.clear()
        #expect(inbox.page(since: 0, limit: 10).entries.isEmpty)
        #expect(inbox.page(since: 0, limit: 10).next == 5)
        inbox.append { id in
            InboxEntry(
                id: id, connection: 1, topic: nil, token: [], payload: [], receivedAt: Date(), answer: .dropped,
                details: BinaryDetails(command: nil, identifier: nil))
        }
        #expect(inbox.page(since: 2, limit: 10).entries.map(\.id) == [6])
        #expect(inbox.dropped == 0)
    }
}
