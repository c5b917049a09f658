package import ChatDomain

// Replaced by the real ones.
extension SQLiteStore: NotificationStore, RelayFigures {
    package func unregister(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Bool { false }
    package func edit(_ token: DeviceToken, app: AppName?, _ edit: DeviceEdit) async throws(ChatError) -> Device {
        throw .notFound("device")
    }
    package func device(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Device {
        throw .notFound("device")
    }
    package func devices(
        _ filter: DeviceFilter, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Device> { Page(items: [], next: nil) }
    package func deliveries(
        to device: Int64, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> { Page(items: [], next: nil) }
    package func send(_ request: NotificationRequest) async throws(ChatError) -> NotificationReceipt {
        throw .notFound("notification")
    }
    package func notification(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        throw .notFound("notification")
    }
    package func deliveries(
        of notification: NotificationID, in state: PushState?, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> { Page(items: [], next: nil) }
    package func cancel(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        throw .notFound("notification")
    }
    package func queueDepths() async throws(ChatError) -> [QueueDepth] { [] }
    package func totals() async throws(ChatError) -> StoreTotals { StoreTotals() }
    package func outcomes() -> [OutcomeCount] { [] }
}
