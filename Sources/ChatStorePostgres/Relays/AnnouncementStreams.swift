import ChatSQL
import Synchronization

/// Sends announcements to all listeners in this process.
final class AnnouncementStreams: Sendable {
    /// The maximum number of announcements that wait for a listener. With more, the listener gets
    /// ``Announcement/everything``.
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
            // The dropped announcement may have been any.
            if case .dropped = listener.yield(announcement) { listener.yield(.everything) }
        }
    }

    func end() {
        for listener in state.withLock({ Array($0.listeners.values) }) { listener.finish() }
    }
}
