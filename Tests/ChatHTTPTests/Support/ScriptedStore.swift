import ChatDomain
import Synchronization
import Testing

/// A store whose results the test scripts, over a real one. It records the calls of the scripted ports, and fails the
/// test on a call of these without a scripted result.
final class ScriptedStore: RoomStore, RoomFeed, RoomRecords, DeviceStore, NotificationStore, Moderation, RelayMetrics,
    SubscriptionStore, MessageChanges
{
    enum Call: Equatable {
        case join(JoinRequest)
        case leave(MemberID)
        case update(MemberID, DeviceToken, ClientInfo, UserReference?)
        case post(PostRequest)
        case keyed(KeyedPost)
        case change(MessageChangeRequest)
        case find(MessageReference, ChangeAuthor)
        case scheduled(SecretCode, MemberID?, after: MessageID?, limit: Int)
        case messages(MemberID, since: MessageID?, limit: Int, isPeek: Bool = false)
        case entries(MemberID, since: MessageID?, limit: Int, isPeek: Bool)
        case shown(MessageID, MemberID)
        case register(RegistrationRequest)
        case keep(Subscription)
        case unregister(DeviceToken, AppName?)
        case unregisterBrowser(Subscription)
        case edit(DeviceToken, AppName?, DeviceEdit)
        case device(DeviceToken, AppName?)
        case devices(DeviceFilter, after: Int64?, limit: Int)
        case history(Int64, before: Int64?, limit: Int)
        case send(NotificationRequest)
        case earlier(NotificationRequest)
        case notifications(Int64?, before: NotificationID?, limit: Int)
        case notification(NotificationID)
        case deliveries(NotificationID, PushState?, after: Int64?, limit: Int)
        case cancel(NotificationID)
        case editRoom(SecretCode, RoomEdit)
        case rooms(String, after: SecretCode?, limit: Int)
        case members(SecretCode, after: Int64?, limit: Int)
        case roomMessages(SecretCode, MessageOrder, limit: Int)
        case search(MessageSearch, limit: Int)
        case roomMembers(MemberID, after: Int64?, limit: Int)
        case progress(MessageID)
        case reach([MessageID])
        case receipt(MessageID, MemberID)
        case usage(String)
        case messageDeliveries(MessageID, after: Int64?, limit: Int)
        case failures(AppName?, before: Int64?, limit: Int)
        case remove(Int64, Moderator)
        case ban(BanRequest, Moderator)
        case endBan(Int64, Moderator)
        case bans(SecretCode?, before: Int64?, limit: Int)
        case recode(SecretCode, SecretCode, Moderator)
        case delete(MessageID, Moderator)
        case deleteOwn(MessageID, MemberID)
        case records(before: Int64?, limit: Int)
        case depths
        case totals
        case ping
    }

    typealias Answer<Value> = @Sendable () async throws(ChatError) -> Value

    private let recorded = Mutex<[Call]>([])
    private let onJoin: Answer<Bool>?
    private let onLeave: Answer<Bool>?
    private let onUpdate: Answer<Void>?
    private let onPost: Answer<PostReceipt>?
    private let onMessages: Answer<MessagePage>?
    private let onEntries: Answer<RoomEntryPage>?
    private let onShown: Answer<Void>?
    private let onRegister: Answer<DeviceRegistration>?
    private let onPing: Answer<Void>?
    private let admin: AdminResponses
    private let feed: FakeFeed?
    private let isReal: Bool
    let queue = FakeQueue()
    /// The store behind the ports that no test scripts.
    let real: RealStore
    var clients: any ClientStore { real.ports.clients }

    /// - Parameter isReal: Whether no port is scripted.
    init(
        join: Answer<Bool>? = nil, leave: Answer<Bool>? = nil, update: Answer<Void>? = nil,
        post: Answer<PostReceipt>? = nil, messages: Answer<MessagePage>? = nil,
        entries: Answer<RoomEntryPage>? = nil, shown: Answer<Void>? = nil,
        register: Answer<DeviceRegistration>? = nil, ping: Answer<Void>? = nil,
        admin: AdminResponses = AdminResponses(),
        feed: FakeFeed? = nil, real: RealStore? = nil, isReal: Bool = false
    ) {
        // Without a folder for the file no test can run.
        self.real = try! real ?? RealStore()
        self.admin = admin
        self.feed = feed
        self.isReal = isReal
        onJoin = join
        onLeave = leave
        onUpdate = update
        onPost = post
        onMessages = messages
        onEntries = entries
        onShown = shown
        onRegister = register
        onPing = ping
    }

    /// All ports.
    var stores: Stores {
        var stores = real.ports
        if isReal { return stores }
        (stores.rooms, stores.feed, stores.records) = (self, self, self)
        (stores.devices, stores.notifications, stores.moderation, stores.metrics) = (self, self, self, self)
        stores.queueAdministration = queue
        stores.subscriptions = self
        stores.changes = self
        return stores
    }

    var calls: [Call] { recorded.withLock { $0 } }

    func join(_ request: JoinRequest) async throws(ChatError) -> Bool { try await run(.join(request), onJoin) }
    func leave(_ member: MemberID) async throws(ChatError) -> Bool { try await run(.leave(member), onLeave) }
    func update(
        _ member: MemberID, token: DeviceToken, app: AppChoice, client: ClientInfo, user: UserReference?
    ) async throws(ChatError) {
        try await run(.update(member, token, client, user), onUpdate)
    }
    func post(_ request: PostRequest) async throws(ChatError) -> PostReceipt { try await run(.post(request), onPost) }
    func messages(
        for member: MemberID, since: MessageID?, limit: Int, isPeek: Bool
    ) async throws(ChatError) -> MessagePage {
        try await run(.messages(member, since: since, limit: limit, isPeek: isPeek), onMessages)
    }
    func entries(
        for member: MemberID, since: MessageID?, limit: Int, isPeek: Bool
    ) async throws(ChatError) -> RoomEntryPage {
        try await run(.entries(member, since: since, limit: limit, isPeek: isPeek), onEntries)
    }
    func post(_ post: KeyedPost) async throws(ChatError) -> ChangeReceipt { try await run(.keyed(post), admin.change) }
    func change(_ request: MessageChangeRequest) async throws(ChatError) -> ChangeReceipt {
        try await run(.change(request), admin.change)
    }
    func find(_ message: MessageReference, for author: ChangeAuthor) async throws(ChatError) -> FoundMessage {
        try await run(.find(message, author), admin.find)
    }
    func scheduled(
        in room: SecretCode, author: MemberID?, after: MessageID?, limit: Int
    ) async throws(ChatError) -> Page<ScheduledMessage> {
        try await run(.scheduled(room, author, after: after, limit: limit), admin.scheduled)
    }
    // The server performs no due work.
    func performDue() async throws(ChatError) -> Bool { try await real.ports.changes.performDue() }
    func nextDue() async throws(ChatError) -> Timestamp? { try await real.ports.changes.nextDue() }
    func announceWork(to signal: AsyncStream<Void>.Continuation) { real.ports.changes.announceWork(to: signal) }
    func shown(_ message: MessageID, to member: MemberID) async throws(ChatError) {
        try await run(.shown(message, member), onShown)
    }
    func register(_ request: RegistrationRequest) async throws(ChatError) -> DeviceRegistration {
        try await run(.register(request), onRegister)
    }
    func unregister(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Bool {
        try await run(.unregister(token, app), admin.unregister)
    }
    func unregister(_ browser: Subscription) async throws(ChatError) -> Bool {
        try await run(.unregisterBrowser(browser), admin.unregister)
    }
    func edit(_ token: DeviceToken, app: AppName?, _ edit: DeviceEdit) async throws(ChatError) -> Device {
        try await run(.edit(token, app, edit), admin.edit)
    }
    func device(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Device {
        try await run(.device(token, app), admin.device)
    }
    func devices(
        _ filter: DeviceFilter, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Device> {
        try await run(.devices(filter, after: cursor, limit: limit), admin.devices)
    }
    func deliveries(
        to device: Int64, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> {
        try await run(.history(device, before: cursor, limit: limit), admin.deliveries)
    }
    func send(
        _ requests: [NotificationRequest]
    ) async throws(ChatError) -> [Result<NotificationReceipt, ChatError>] {
        var results: [Result<NotificationReceipt, ChatError>] = []
        for request in requests {
            do throws(ChatError) {
                results.append(.success(try await run(.send(request), admin.send)))
            } catch {
                results.append(.failure(error))
            }
        }
        return results
    }
    func earlier(_ request: NotificationRequest) async throws(ChatError) -> NotificationReceipt? {
        try await run(.earlier(request), admin.earlier)
    }
    /// The rooms whose codes begin or end with characters that people do not see.
    let oddRooms: Set<SecretCode> = [SecretCode(stored: "odd\u{200B}"), SecretCode(stored: "\u{2800}")]
    func exists(_ room: SecretCode) async throws(ChatError) -> Bool { oddRooms.contains(room) }
    func edit(_ room: SecretCode, _ edit: RoomEdit) async throws(ChatError) -> RoomChoices {
        try await run(.editRoom(room, edit), admin.editRoom)
    }
    func notifications(
        sentWith token: Int64?, before cursor: NotificationID?, limit: Int
    ) async throws(ChatError) -> Page<NotificationStatus> {
        try await run(.notifications(token, before: cursor, limit: limit), admin.notifications)
    }
    func notification(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        try await run(.notification(id), admin.notification)
    }
    func deliveries(
        of notification: NotificationID, in state: PushState?, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> {
        try await run(.deliveries(notification, state, after: cursor, limit: limit), admin.deliveries)
    }
    func cancel(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        try await run(.cancel(id), admin.cancel)
    }
    func rooms(
        startingWith prefix: String, after cursor: SecretCode?, limit: Int
    ) async throws(ChatError) -> RoomPage {
        try await run(.rooms(prefix, after: cursor, limit: limit), admin.rooms)
    }
    func members(of room: SecretCode, after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<MemberRecord> {
        try await run(.members(room, after: cursor, limit: limit), admin.members)
    }
    func messages(
        of room: SecretCode, _ order: MessageOrder, limit: Int
    ) async throws(ChatError) -> Page<MessageRecord> {
        try await run(.roomMessages(room, order, limit: limit), admin.messages)
    }
    func search(_ search: MessageSearch, limit: Int) async throws(ChatError) -> Page<MessageRecord> {
        try await run(.search(search, limit: limit), admin.messages)
    }
    func members(
        for member: MemberID, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> RoomMemberPage {
        try await run(.roomMembers(member, after: cursor, limit: limit), admin.roomMembers)
    }
    func reach(of messages: [MessageRecord]) async throws(ChatError) -> [MessageReach] {
        try await run(.reach(messages.map(\.message.id)), admin.reach)
    }
    func receipt(of message: MessageID, for member: MemberID) async throws(ChatError) -> Receipt {
        try await run(.receipt(message, member), admin.receipt)
    }
    func receipts(in room: SecretCode, for members: Set<MemberID>) async throws(ChatError) -> [MemberID: Receipt] {
        try await scriptedFeed().receipts(in: room, for: members)
    }
    func usage(since day: String) async throws(ChatError) -> [DeviceDay]? {
        try await run(.usage(day), admin.usage)
    }
    func progress(of message: MessageID) async throws(ChatError) -> MessageProgress {
        try await run(.progress(message), admin.progress)
    }
    func deliveries(
        ofMessage message: MessageID, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<MessageDelivery> {
        try await run(.messageDeliveries(message, after: cursor, limit: limit), admin.messageDeliveries)
    }
    func failures(of app: AppName?, before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<Delivery> {
        try await run(.failures(app, before: cursor, limit: limit), admin.deliveries)
    }
    func remove(_ member: Int64, by moderator: Moderator) async throws(ChatError) {
        try await run(.remove(member, moderator), admin.moderate)
    }
    func ban(_ request: BanRequest, by moderator: Moderator) async throws(ChatError) -> Ban {
        try await run(.ban(request, moderator), admin.ban)
    }
    func endBan(_ id: Int64, by moderator: Moderator) async throws(ChatError) {
        try await run(.endBan(id, moderator), admin.moderate)
    }
    func bans(in room: SecretCode?, before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<Ban> {
        try await run(.bans(room, before: cursor, limit: limit), admin.bans)
    }
    func recode(
        _ room: SecretCode, to code: SecretCode, by moderator: Moderator
    ) async throws(ChatError) -> RecodedRoom {
        try await run(.recode(room, code, moderator), admin.recode)
    }
    func delete(_ message: MessageID, by moderator: Moderator) async throws(ChatError) {
        try await run(.delete(message, moderator), admin.moderate)
    }
    func deleteOwn(_ message: MessageID, of member: MemberID) async throws(ChatError) {
        try await run(.deleteOwn(message, member), admin.moderate)
    }
    func records(before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<ModerationRecord> {
        try await run(.records(before: cursor, limit: limit), admin.records)
    }
    func queueDepths() async throws(ChatError) -> [QueueDepth] { try await run(.depths, admin.depths) }
    func totals() async throws(ChatError) -> StoreTotals { try await run(.totals, admin.totals) }
    func outcomes() -> [OutcomeCount] {
        if admin.outcomes == nil { Issue.record("Unexpected call of the store for outcomes") }
        return admin.outcomes ?? []
    }
    func ping() async throws(ChatError) { try await run(.ping, onPing) }

    func position(of member: MemberID) async throws(ChatError) -> RoomPosition {
        try await scriptedFeed().position(of: member)
    }
    func messages(in room: SecretCode, after: MessageID, limit: Int) async throws(ChatError) -> [Message] {
        try await scriptedFeed().messages(in: room, after: after, limit: limit)
    }
    func entries(in room: SecretCode, after: MessageID, limit: Int) async throws(ChatError) -> [RoomEntry] {
        try await scriptedFeed().entries(in: room, after: after, limit: limit)
    }
    func lastEntry(in room: SecretCode) async throws(ChatError) -> MessageID {
        guard let feed else { return try await real.ports.feed.lastEntry(in: room) }
        return try await feed.lastEntry(in: room)
    }
    func hasMoved(_ room: SecretCode, to code: SecretCode) async throws(ChatError) -> Bool {
        try await scriptedFeed().hasMoved(room, to: code)
    }
    func summary(of room: SecretCode) async throws(ChatError) -> RoomSummary {
        try await scriptedFeed().summary(of: room)
    }
    func handedOut(_ message: MessageID, to member: MemberID) {
        (try? scriptedFeed())?.handedOut(message, to: member)
    }
    /// Every running server listens for changes. Without a feed there are none.
    func roomChanges() -> AsyncStream<Void> { feed?.roomChanges() ?? AsyncStream { _ in } }
    func takeRoomChanges() -> RoomChanges { (try? scriptedFeed())?.takeRoomChanges() ?? RoomChanges() }

    func keep(_ subscription: Subscription) async throws(ChatError) {
        try await run(.keep(subscription)) { () throws(ChatError) in }
    }
    func subscriptions(_ addresses: [DeviceToken]) async throws(ChatError) -> [DeviceToken: Subscription] {
        try await real.ports.subscriptions.subscriptions(addresses)
    }
    func vapidKey(make: @escaping @Sendable () -> String) async throws(ChatError) -> String {
        try await real.ports.subscriptions.vapidKey(make: make)
    }
    func setVAPIDKey(_ text: String) async throws(ChatError) { try await real.ports.subscriptions.setVAPIDKey(text) }

    private func scriptedFeed(_ call: String = #function) throws(ChatError) -> FakeFeed {
        guard let feed else {
            Issue.record("Unexpected call of the feed: \(call)")
            throw ChatError(.internalError, "not scripted")
        }
        return feed
    }

    private func run<Value>(_ call: Call, _ answer: Answer<Value>?) async throws(ChatError) -> Value {
        recorded.withLock { $0.append(call) }
        guard let answer else {
            Issue.record("Unexpected call of the store: \(call)")
            throw ChatError(.internalError, "not scripted")
        }
        return try await answer()
    }
}

/// The scripted results of the admin API's calls.
struct AdminResponses: Sendable {
    var unregister: ScriptedStore.Answer<Bool>?
    var edit: ScriptedStore.Answer<Device>?
    var device: ScriptedStore.Answer<Device>?
    var devices: ScriptedStore.Answer<Page<Device>>?
    var deliveries: ScriptedStore.Answer<Page<Delivery>>?
    var send: ScriptedStore.Answer<NotificationReceipt>?
    var earlier: ScriptedStore.Answer<NotificationReceipt?>?
    var notifications: ScriptedStore.Answer<Page<NotificationStatus>>?
    var notification: ScriptedStore.Answer<NotificationStatus>?
    var cancel: ScriptedStore.Answer<NotificationStatus>?
    var editRoom: ScriptedStore.Answer<RoomChoices>?
    var rooms: ScriptedStore.Answer<RoomPage>?
    var members: ScriptedStore.Answer<Page<MemberRecord>>?
    var messages: ScriptedStore.Answer<Page<MessageRecord>>?
    var roomMembers: ScriptedStore.Answer<RoomMemberPage>?
    var progress: ScriptedStore.Answer<MessageProgress>?
    var messageDeliveries: ScriptedStore.Answer<Page<MessageDelivery>>?
    var change: ScriptedStore.Answer<ChangeReceipt>?
    var find: ScriptedStore.Answer<FoundMessage>?
    var scheduled: ScriptedStore.Answer<Page<ScheduledMessage>>?
    var moderate: ScriptedStore.Answer<Void>?
    var ban: ScriptedStore.Answer<Ban>?
    var bans: ScriptedStore.Answer<Page<Ban>>?
    var recode: ScriptedStore.Answer<RecodedRoom>?
    var records: ScriptedStore.Answer<Page<ModerationRecord>>?
    var reach: ScriptedStore.Answer<[MessageReach]>?
    var receipt: ScriptedStore.Answer<Receipt>?
    var depths: ScriptedStore.Answer<[QueueDepth]>?
    var totals: ScriptedStore.Answer<StoreTotals>?
    var usage: ScriptedStore.Answer<[DeviceDay]?>?
    var outcomes: [OutcomeCount]?
}
