import ChatSQL
import Synchronization

/// The parts of this process that a commit's announcement goes to, on the writer's thread, in the order of the commits.
final class AnnouncementListeners: Sendable {
    private let listeners = Mutex<[@Sendable (Announcement) -> Void]>([])

    /// - Parameter listener: It has to be quick.
    func add(_ listener: @escaping @Sendable (Announcement) -> Void) { listeners.withLock { $0.append(listener) } }

    func tell(_ announcement: Announcement) {
        for listener in listeners.withLock({ $0 }) { listener(announcement) }
    }
}
