import ChatDomain
import Synchronization
import Testing

/// A store that does what the test says, remembers what it was asked, and fails the test when asked anything else.
final class ScriptedStore: RoomStore, DeviceStore {
    enum Call: Equatable {
        case join(JoinRequest)
        case leave(MemberID)
        case update(MemberID, DeviceToken, ClientInfo)
        case post(PostRequest)
        case messages(MemberID, since: MessageID?, limit: Int)
        case register(DeviceToken, AppName)
        case ping
    }

    typealias Answer<Value> = @Sendable () async throws(ChatError) -> Value

    private let recorded = Mutex<[Call]>([])
    private let onJoin: Answer<Void>?
    private let onLeave: Answer<Bool>?
    private let onUpdate: Answer<Void>?
    private let onPost: Answer<PostReceipt>?
    private let onMessages: Answer<MessagePage>?
    private let onRegister: Answer<DeviceRegistration>?
    private let onPing: Answer<Void>?

    init(
        join: Answer<Void>? = nil, leave: Answer<Bool>? = nil, update: Answer<Void>? = nil,
        post: Answer<PostReceipt>? = nil, messages: Answer<MessagePage>? = nil,
        register: Answer<DeviceRegistration>? = nil, ping: Answer<Void>? = nil
    ) {
        onJoin = join
        onLeave = leave
        onUpdate = update
        onPost = post
        onMessages = messages
        onRegister = register
        onPing = ping
    }

    var calls: [Call] { recorded.withLock { $0 } }

    func join(_ request: JoinRequest) async throws(ChatError) { try await run(.join(request), onJoin) }
    func leave(_ member: MemberID) async throws(ChatError) -> Bool { try await run(.leave(member), onLeave) }
    func update(_ member: MemberID, token: DeviceToken, client: ClientInfo) async throws(ChatError) {
        try await run(.update(member, token, client), onUpdate)
    }
    func post(_ request: PostRequest) async throws(ChatError) -> PostReceipt { try await run(.post(request), onPost) }
    func messages(for member: MemberID, since: MessageID?, limit: Int) async throws(ChatError) -> MessagePage {
        try await run(.messages(member, since: since, limit: limit), onMessages)
    }
    func register(_ token: DeviceToken, app: AppName) async throws(ChatError) -> DeviceRegistration {
        try await run(.register(token, app), onRegister)
    }
    func ping() async throws(ChatError) { try await run(.ping, onPing) }

    private func run<Value>(_ call: Call, _ answer: Answer<Value>?) async throws(ChatError) -> Value {
        recorded.withLock { $0.append(call) }
        guard let answer else {
            Issue.record("The store was not to be asked: \(call)")
            throw ChatError(.internalError, "not scripted")
        }
        return try await answer()
    }
}
