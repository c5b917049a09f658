import ChatDomain
import Testing

@testable import ChatDispatch

@Suite("The choice of pushes that test a push service")
struct TestCandidatesTests {
    private static func address(_ device: UInt8) throws -> Address {
        .token(try #require(DeviceToken(bytes: [UInt8](repeating: device, count: 32))))
    }

    private static func row(_ id: Int64, to device: UInt8, unanswered: Int = 0) throws -> QueuedPush {
        let history = PushHistory(attempts: unanswered, unanswered: unanswered)
        return QueuedPush(
            id: id, lane: PushLane(history, isBulk: false), history: history, address: try address(device),
            payload: [1], apnsID: "\(id)")
    }

    @Test("Each device gets one push, those with the fewest refusals first; the others are released")
    func choice() throws {
        let test = ServiceTest([try Self.address(1): 3, try Self.address(2): 1])
        var candidates = TestCandidates(test, limit: 3)
        candidates.add([try Self.row(1, to: 1), try Self.row(2, to: 1), try Self.row(3, to: 2)])
        #expect(candidates.pushes.map(\.id) == [3, 1])
        #expect(!candidates.hasFreshDevice)
        candidates.add([try Self.row(4, to: 3), try Self.row(5, to: 4), try Self.row(6, to: 4)])
        #expect(candidates.pushes.map(\.id) == [4, 5, 3])
        #expect(candidates.hasFreshDevice)
        #expect(!candidates.isComplete)
        #expect(candidates.released == [.normal: [1...2, 6...6]])
        candidates.add([try Self.row(7, to: 5, unanswered: 2), try Self.row(8, to: 6)])
        #expect(candidates.pushes.map(\.id) == [4, 5, 8])
        #expect(candidates.isComplete)
        #expect(candidates.released == [.normal: [1...3, 6...6], .retry: [7...7]])
    }

    @Test("A search without another device looks twice as far the next time, until it finds one or reaches the end")
    func depth() {
        var depth = SearchDepth()
        #expect(depth.leases == 1)
        depth.searched(foundFreshDevice: false, reachedEnd: false)
        depth.searched(foundFreshDevice: false, reachedEnd: false)
        #expect(depth.leases == 4)
        depth.searched(foundFreshDevice: true, reachedEnd: false)
        #expect(depth.leases == 1)
        depth.searched(foundFreshDevice: false, reachedEnd: false)
        depth.searched(foundFreshDevice: false, reachedEnd: true)
        #expect(depth.leases == 1)
    }
}
