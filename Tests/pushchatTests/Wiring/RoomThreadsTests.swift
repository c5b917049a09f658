import APNSGateway
import ChatDomain
import PushWire
import Testing

@testable import pushchat

@Suite("Thread ids of rooms")
struct RoomThreadsTests {
    private static func thread(_ live: LiveConfiguration, app: AppName = .default) throws -> String? {
        let alert = ChatAlert(
            nickname: Nickname(stored: "ann"), content: MessageContent(stored: "hello"),
            code: SecretCode(stored: "kitchen"),
            message: 1)
        let payload = try live.storeSettings.format(app).payload(of: alert)
        return try JSONValue(parsing: payload).object?["aps"]?.object?["thread-id"]?.text
    }

    private static func live() -> (configuration: Configuration, live: LiveConfiguration) {
        var configuration = Configuration(environment: .development)
        configuration.apps = [AppConfiguration(name: .default, environment: .development)]
        configuration.apps[0].gateway = .http2
        return (configuration, LiveConfiguration(configuration))
    }

    @Test("A room's thread id depends on the database's key, and survives a reload of the configuration")
    func names() throws {
        let key = VAPIDKey()
        let (configuration, live) = Self.live()
        #expect(try Self.thread(live) == nil)
        live.nameRooms(by: key.threads)
        let name = try #require(try Self.thread(live))
        live.replace(configuration, topics: [:], sessions: nil)
        #expect(try Self.thread(live) == name)
        // The name also holds for pushes of an app that is no longer configured.
        #expect(try Self.thread(live, app: AppName("old")) == name)

        // Another relay on the database, and the next process, read the same key.
        let (_, second) = Self.live()
        second.nameRooms(by: try VAPIDKey(text: key.text).threads)
        #expect(try Self.thread(second) == name)
        second.nameRooms(by: VAPIDKey().threads)
        #expect(try Self.thread(second) != name)
    }
}
