import Foundation

extension SandboxState {
    /// Returns the notifications that reached a device, a phone or a browser since its app was installed, oldest first,
    /// and the phone's number. The inbox no longer has those that were deleted.
    func delivered(to token: [UInt8]) -> (entries: [InboxEntry], phone: Int?) {
        let (device, phone) = (devices[token], installations.installation(token: token))
        guard device?.removedAt == nil, phone?.removedAt == nil else { return ([], phone?.id) }
        let since = device?.createdAt ?? phone?.createdAt ?? .distantPast
        let entries = inbox.entries { entry in
            guard entry.answer == .accepted, entry.receivedAt >= since else { return false }
            guard let phone, entry.gateway == .fcm else { return entry.token == token }
            return entry.phones.contains { $0.installation == phone.id && $0.progress == .delivered }
        }
        return (entries, phone?.id)
    }
}
