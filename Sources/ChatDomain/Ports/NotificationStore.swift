/// Stores notifications, and queues their pushes.
package protocol NotificationStore: Sendable {
    /// Stores notifications and the pushes to the first devices in one transaction. The store queues the other pushes
    /// after the response. After a crash, it continues where it stopped. An error in one notification does not affect
    /// the others.
    func send(
        _ requests: [NotificationRequest]
    ) async throws(ChatError) -> [Result<NotificationReceipt, ChatError>]
    /// Returns the receipt of an earlier request with the same key. `nil` if there was none.
    func earlier(_ request: NotificationRequest) async throws(ChatError) -> NotificationReceipt?
    /// Returns notifications with ids below `cursor`, newest first. With a `token`, returns only notifications that
    /// were sent with this token. A page may have fewer than `limit` notifications, even none, and still have a next
    /// page.
    func notifications(
        sentWith token: Int64?, before cursor: NotificationID?, limit: Int
    ) async throws(ChatError) -> Page<NotificationStatus>
    /// Returns one notification.
    ///
    /// - Throws: ``ChatError/Code/notFound``.
    func notification(_ id: NotificationID) async throws(ChatError) -> NotificationStatus
    /// Returns a notification's pushes with ids above `cursor`, in the order of the queue. With a `state`, returns only
    /// pushes in this state. A page may have fewer than `limit` pushes, even none, and still have a next page.
    func deliveries(
        of notification: NotificationID, in state: PushState?, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery>
    /// Cancels pushes that have not been sent. Cancelling twice is not an error.
    ///
    /// - Throws: ``ChatError/Code/notFound``.
    func cancel(_ id: NotificationID) async throws(ChatError) -> NotificationStatus
}

extension NotificationStore {
    package func send(_ request: NotificationRequest) async throws(ChatError) -> NotificationReceipt {
        guard let result = try await send([request]).first else {
            throw ChatError(.internalError, "the store returned no receipt")
        }
        return try result.get()
    }
}
