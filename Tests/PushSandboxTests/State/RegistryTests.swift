import Foundation
import PushWire
import Testing

@testable import PushSandbox

@Suite("Devices, feedback and faults")
struct RegistryTests {
    private let now = Date(timeIntervalSince1970: 1_304_805_449)

    @Test("A device is installed, removed and installed again under the same token")
    func devices() throws {
        var devices = DeviceRegistry()
        #expect(devices.isInstalled([1], topic: "a", at: now) == nil)
        #expect(devices.isInstalled([0, 0], topic: "a", at: now) == false, "no device has such a token")
        let device = try devices.install(token: [1], topic: "a", at: now)
        #expect(devices.isInstalled([1], topic: "a", at: now) == true)
        #expect(devices.isInstalled([1], topic: "b", at: now) == false)
        #expect(devices.isInstalled([1], topic: nil, at: now) == false)
        _ = try devices.install(token: [2], topic: "a", environment: .production, at: now)
        _ = try devices.install(token: [3], topic: "a", expiresAt: now + 5, at: now)
        #expect(devices.isInstalled([2], topic: "a", at: now) == false)
        #expect(devices.isInstalled([3], topic: "a", at: now + 4) == true)
        #expect(devices.isInstalled([3], topic: "a", at: now + 5) == false)
        #expect(devices.remove(token: [1], at: now)?.removedNow == true)
        #expect(devices.remove(token: [1], at: now + 1)?.removedNow == false)
        #expect(devices.remove(token: [1], at: now + 1)?.device.removedAt == now)
        #expect(devices.isInstalled([1], topic: "a", at: now) == false)
        #expect(devices.presentCount == 2)
        #expect(try devices.install(token: [1], topic: "a", at: now + 2).id == device.id)
        #expect(devices.isInstalled([1], topic: "a", at: now) == true)
        #expect(devices.count == 3)
        #expect(devices.presentCount == 3)
        #expect(devices.remove(token: [4], at: now) == nil)
    }

    @Test("Devices are listed in pages")
    func devicePages() throws {
        var devices = DeviceRegistry()
        for number in 1...5 { _ = try devices.install(token: [UInt8(number)], topic: "a", at: now) }
        #expect(devices.page(since: 0, limit: 2).items.map(\.id) == [1, 2])
        #expect(devices.page(since: 2, limit: 9).items.map(\.id) == [3, 4, 5])
        #expect(devices.page(since: 2, limit: 9).next == 5)
        #expect(devices.page(since: 77, limit: 9).items.isEmpty)
    }

    @Test("Feedback is kept by topic until it is cleared, which removes only the tuples that the reader got")
    func feedback() {
        var list = FeedbackList()
        let tuples = (0..<4).map { FeedbackTuple(timestamp: $0, token: [UInt8($0)]) }
        list.append(tuples[0], topic: "a")
        list.append(tuples[1], topic: "b")
        list.append(tuples[2], topic: "a")
        let first = list.reading(topic: "a")
        let second = list.reading(topic: "a")
        #expect(first.tuples == [tuples[0], tuples[2]])
        list.append(tuples[3], topic: "a")
        list.clear(first)
        #expect(list.reading(topic: "a").tuples == [tuples[3]])
        list.clear(second)
        #expect(list.reading(topic: "a").tuples == [tuples[3]])
        #expect(list.reading(topic: "b").tuples == [tuples[1]])
        #expect(list.reading(topic: "c").tuples.isEmpty)
        #expect(list.count == 2)
    }

    @Test("A full feedback list drops its oldest")
    func fullFeedback() {
        var list = FeedbackList()
        for number in 0...UInt32(FeedbackList.limit) {
            list.append(FeedbackTuple(timestamp: number, token: [1]), topic: "a")
        }
        #expect(list.count == FeedbackList.limit)
        #expect(list.reading(topic: "a").tuples.first?.timestamp == 1)
    }

    @Test(
        "A fault hits after its count, for its number of times, at its intervals, and only its token",
        arguments: [
            (nil, 0, 1, 1, "1......"), (nil, 2, 1, 1, "..1...."), (nil, 1, 3, 1, ".111..."),
            ([UInt8(7)], 0, 1, 1, ".1....."), ([7], 1, 2, 1, "...1.1."), ([9], 0, 1, 1, "......."),
            (nil, 0, 9, 3, "..1..1."), (nil, 1, 1, 2, "..1...."), ([7], 0, 9, 2, "...1..."),
        ] as [([UInt8]?, Int, Int, Int, String)])
    func faults(token: [UInt8]?, after: Int, times: Int, every: Int, expected: String) throws {
        var table = FaultTable()
        try table.add(Fault(BinaryFault.close, token: token, after: after, times: times, every: every))
        let hits = (0..<7).map { table.trigger(BinaryFault.self, token: $0 % 2 == 1 ? [7] : [8]) == nil ? "." : "1" }
        #expect(hits.joined() == expected)
    }

    @Test("Of two due faults the older hits first, and both count all notifications")
    func severalFaults() throws {
        var table = FaultTable()
        try table.add(Fault(BinaryFault.close, after: 1))
        try table.add(Fault(BinaryFault.drop, after: 1))
        #expect(table.trigger(BinaryFault.self, token: [1]) == nil)
        #expect(table.trigger(BinaryFault.self, token: [1]) == .close)
        #expect(table.trigger(BinaryFault.self, token: [1]) == .drop)
        #expect(table.trigger(BinaryFault.self, token: [1]) == nil)
        #expect(table.all.map(\.isSpent) == [true, true])
        table.clear()
        #expect(table.all.isEmpty)
    }

    @Test("The number of waiting faults is limited, and spent ones make room")
    func faultLimits() throws {
        var table = FaultTable()
        for _ in 0..<FaultTable.limit { try table.add(Fault(BinaryFault.close)) }
        #expect(throws: LimitReached.self) { try table.add(Fault(BinaryFault.close)) }
        for _ in 0..<FaultTable.limit { _ = table.trigger(BinaryFault.self, token: [1]) }
        for _ in 0..<FaultTable.limit { try table.add(Fault(BinaryFault.close)) }
        for _ in 0..<FaultTable.limit { _ = table.trigger(BinaryFault.self, token: [1]) }
        #expect(table.all.count == FaultTable.spentLimit)
        #expect(table.all.last?.id == 2 * FaultTable.limit)
    }

    @Test(
        "Tokens are read in every documented form",
        arguments: [
            ("0f744707", [0x0F, 0x74, 0x47, 0x07]),
            ("<0F744707 bebcf74f>", [0x0F, 0x74, 0x47, 7, 0xBE, 0xBC, 0xF7, 0x4F]),
            ("0f 74", [0x0F, 0x74]), ("", nil), ("0", nil), ("0g", nil), ("0f-7", nil), ("٠٠", nil),
            (String(repeating: "ab", count: 100), [UInt8](repeating: 0xAB, count: 100)),
            (String(repeating: "ab", count: 101), nil),
        ] as [(String, [UInt8]?)])
    func tokens(text: String, bytes: [UInt8]?) {
        #expect(TokenText.bytes(of: text) == bytes)
    }

    @Test("A device's notifications are counted per second")
    func deviceRate() {
        var rate = DeviceRate()
        #expect((0..<3).map { _ in rate.count([1], at: now) } == [1, 2, 3])
        #expect(rate.count([2], at: now + 0.9) == 1)
        #expect(rate.count([1], at: now + 0.9) == 4)
        #expect(rate.count([1], at: now + 1) == 1)
    }
}
