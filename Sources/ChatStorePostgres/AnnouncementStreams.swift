#if PostgreSQL
import Synchronization

/// Hands announcements to all who listen in this process.
final class AnnouncementStreams: Sendable {
    /// That wait for a listener; with more it gets ``Announcement/everything``.
    private static let mostWaiting = 256

    private struct State {
        var listeners: [Int: AsyncStream<Announcement>.Continuation] = [:]
        var next = 0
    }

    private let state = Mutex(State())

    func stream() -> AsyncStream<Announcement> {
        let (stream, listener) = AsyncStream.makeStream(
            of: Announcement.self, bufferingPolicy: .bufferingNewest(Self.mostWaiting))
        let number = state.withLock { state in
            state.next += 1
            state.listeners[state.next] = listener
            return state.next
        }
        listener.onTermination = { [weak self] _ in
            _ = self?.state.withLock { $0.listeners.removeValue(forKey: number) }
        }
        return stream
    }

    func send(_ announcement: Announcement) {
        guard !announcement.isEmpty else { return }
        for listener in state.withLock({ Array($0.listeners.values) }) {
            // What fell out may have been anything.
            if case .dropped = listener.yield(announcement) { listener.yield(.everything) }
        }
    }

    func end() {
        for listener in state.withLock({ Array($0.listeners.values) }) { listener.finish() }
    }
}
#endif
