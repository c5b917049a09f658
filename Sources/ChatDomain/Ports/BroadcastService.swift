/// A push service with broadcast channels.
package protocol BroadcastService: Sendable {
    func createChannel(of app: AppName) async -> BroadcastAnswer
    func broadcast(_ push: ComposedNotification, to channel: String, of app: AppName) async -> BroadcastAnswer
    func deleteChannel(_ channel: String, of app: AppName) async -> BroadcastAnswer
}
