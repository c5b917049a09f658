package import ChatDomain

/// The queue in a database file, for the command line: beside a running relay, which notices what is changed, or without one.
package struct QueueFile: Sendable {
    /// Which entries; nil for any.
    package struct Filter: Sendable, Hashable {
        package var app: AppName?
        package var states: Set<PushState>?
        package var token: DeviceToken?
        package var notification: NotificationID?

        package init(
            app: AppName? = nil, states: Set<PushState>? = nil, token: DeviceToken? = nil,
            notification: NotificationID? = nil
        ) {
            self.app = app
            self.states = states
            self.token = token
            self.notification = notification
        }
    }

    package enum Selection: Sendable, Hashable {
        case entries([Int64])
        case matching(Filter)
    }

    /// An entry with all that is known of it.
    package struct Entry: Sendable, Hashable {
        package let delivery: Delivery
        /// As text; what is no UTF-8 is replaced.
        package let payload: String
        package let pushType: String?
        package let expiration: Int64?
        package let priority: UInt8?
        package let collapseID: String?
    }

    /// Opens a file that exists and has this version's schema; never makes or upgrades one.
    /// - Throws: ``DatabaseFile/Unusable``.
    package init(path: String) throws {
        throw DatabaseFile.Unusable(description: "not yet")
    }

    /// In the order of the queue, those after `cursor`.
    package func entries(_ filter: Filter, after cursor: Int64?, limit: Int) throws -> Page<Delivery> {
        Page(items: [], next: nil)
    }

    package func entry(_ id: Int64) throws -> Entry? { nil }

    /// Makes failed, expired and cancelled entries pending again, at once and with attempts from zero; also lets pending ones
    /// that wait for a repeat go now. In steps; `progress` is told how many so far.
    package func retry(_ selection: Selection, progress: (Int) -> Void) throws -> Int { 0 }

    /// Takes back pending entries.
    package func cancel(_ selection: Selection, progress: (Int) -> Void) throws -> Int { 0 }

    /// Deletes entries that are settled (sent, failed, expired, cancelled), those settled longer ago than `age`.
    package func purge(_ selection: Selection, olderThan age: Duration?, progress: (Int) -> Void) throws -> Int { 0 }

    /// A consistent copy of a database while a relay uses it, mode 0600. Never overwrites a file: it is written beside and then
    /// linked to its name.
    package static func backup(
        _ path: String, to file: String, progress: (_ done: Int, _ total: Int) -> Void
    ) throws {}
}
