import ChatDomain
import Synchronization

/// Records which rooms were polled.
final class FakePolls: PollRequestStore {
    private let rooms = Mutex<[SecretCode]>([])

    var polled: [SecretCode] { rooms.withLock { $0 } }

    func polled(_ room: SecretCode) async throws(ChatError) { rooms.withLock { $0.append(room) } }
    func lease(limit: Int) async throws(ChatError) -> [PollRequest] { [] }
    func settle(_ request: PollRequest, _ result: PollRequestResult) async throws(ChatError) {}
}
