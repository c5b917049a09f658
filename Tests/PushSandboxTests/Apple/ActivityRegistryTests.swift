import Foundation
import Testing

@testable import PushSandbox

@Suite("Live Activities and channels: memory")
struct ActivityRegistryTests {
    private let now = Date(timeIntervalSince1970: 1_800_000_000)

    private func payload(_ timestamp: Int, text: String = "x") throws -> ActivityPayload {
        try #require(
            ActivityPayload(
                json: Data(
                    #"{"aps":{"timestamp":\#(timestamp),"event":"update","content-state":{"t":"\#(text)"}}}"#.utf8)))
    }

    @Test("The oldest activities are forgotten, with their tokens and channels")
    func activities() {
        var registry = ActivityRegistry()
        for number in 0...ControlLimits.activities {
            _ = registry.start(token: [UInt8(number & 255), UInt8(number >> 8)], app: "a", channel: "c", at: now)
        }
        #expect(registry.count == ControlLimits.activities)
        #expect(registry.activeCount == ControlLimits.activities)
        #expect(registry[[0, 0]] == nil)
        #expect(registry[[1, 0]]?.id == 2)
        #expect(registry.listeners(of: "c").count == ControlLimits.activities)
        #expect(registry.page(since: 0, limit: 2).items.map(\.id) == [2, 3])
        #expect(registry.page(since: 3, limit: 1).next == 4)
        registry.end(2, at: now)
        registry.end(2, at: now)
        #expect(registry.activeCount == ControlLimits.activities - 1)
        #expect(registry.listeners(of: "c").first == 3)
    }

    @Test("An activity keeps its newest states")
    func states() throws {
        var registry = ActivityRegistry()
        let id = registry.start(token: [1], app: "a", at: now)
        for timestamp in 0..<ControlLimits.activityStates + 3 {
            #expect(registry.receive(try payload(timestamp), notification: timestamp, for: id, at: now) == [])
        }
        let activity = try #require(registry[id])
        #expect(activity.states.count == ControlLimits.activityStates)
        #expect(activity.dropped == 3)
        #expect(activity.states.first?.timestamp == 3)
    }

    @Test("Large contents push out the oldest activities")
    func bytes() throws {
        var registry = ActivityRegistry()
        let first = registry.start(token: [1], app: "a", at: now)
        let second = registry.start(token: [2], app: "a", at: now)
        let size = ControlLimits.activityBytes / 10
        let large = try payload(1, text: String(repeating: "x", count: size))
        for _ in 0..<5 { _ = registry.receive(large, notification: 1, for: first, at: now) }
        for _ in 0..<4 { _ = registry.receive(large, notification: 1, for: second, at: now) }
        #expect(registry.count == 2)
        _ = registry.receive(large, notification: 1, for: second, at: now)
        #expect(registry.count == 1)
        #expect(registry[first] == nil)
    }

    @Test("Channels keep a limited number of bytes, and give them up when they end")
    func channels() throws {
        var registry = ChannelRegistry()
        for id in ["a", "b"] { registry.create(id: id, app: "x", policy: .storesNewest, at: now) }
        func message(_ size: Int) throws -> SandboxChannel.Message {
            .init(payload: try payload(1), notification: 1, size: size, expiresAt: now + 60)
        }
        #expect(registry.accept(try message(ControlLimits.channelBytes - 10), on: "a") == false)
        #expect(registry.accept(try message(11), on: "b") == true)
        #expect(registry.newest(on: "b", at: now) == nil)
        #expect(registry.accept(try message(10), on: "b") == false)
        // A replaced message gives up its bytes.
        #expect(registry.accept(try message(5), on: "a") == false)
        registry.hold(try message(ControlLimits.channelBytes), on: "a")
        #expect(registry.release("a") == nil)
        registry.remove("b")
        registry.remove("b")
        #expect(registry.count(of: "x") == 1)
        registry.hold(try message(ControlLimits.channelBytes - 5), on: "a")
        #expect(registry.release("a")?.size == ControlLimits.channelBytes - 5)
        #expect(registry.release("a") == nil)
        #expect(registry.page(since: 0, limit: 10).items.map(\.broadcasts) == [2])
    }
}
