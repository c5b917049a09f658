import ArgumentParser
import ChatDomain
import Foundation
import NIOCore
import PushChatCore

/// `pushchat chat`
struct Chat: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Chat in a room of the running relay: read its history and new messages, and write.",
        discussion: """
            pushchat chat tea --name Alice
            df -h / | pushchat chat ops --name backup
            pushchat chat tea --name bot --json --follow < /dev/null

            Each line is a message. Ctrl-D or Ctrl-C ends the chat; you stay a member of the
            room, and the next start shows the messages in between. Without a terminal, the
            chat ends when the relay has accepted the last line of the input. The status is
            1 if the relay rejected a line. The chat resends a line until the relay
            responds; the line still arrives only once.
            """)

    /// The longest silence on the stream before the connection counts as lost. It is longer than the relay's own
    /// longest pause in a stream, with a margin for slow networks.
    private static let silence = TimeAmount.seconds(45)

    @Argument(help: .value("code", "The room's secret code.")) var code: String
    @Option(help: .value("name", "Your name in the room.")) var name: String

    @Option(
        help: .value(
            "udid", "Your udid as a member.",
            discussion: "By default the chat creates one for this relay, room and name, and keeps it in "
                + "$XDG_STATE_HOME/pushchat or ~/.local/state/pushchat. A phone with the same udid receives no more "
                + "pushes."))
    var udid: String?

    @Option(
        help: .value(
            "token", "A session, if the relay requires one.",
            discussion: "By default the value of PUSHCHAT_SESSION, which other users of the machine cannot see."))
    var session: String?

    @Option(help: .value("number", "The number of earlier messages to show.")) var history: Int?
    @Flag(help: "Continue after the end of the input.") var follow = false
    @Flag(help: "Leave the room at the end.") var leave = false
    @Flag(help: "Print one JSON object per line: messages as in the API, and changes of the room.") var json = false
    @OptionGroup(title: "The relay") var address: RelayAddress

    func validate() throws {
        _ = try checked()
        if let history, history < 0 { throw ValidationError("--history \(history): must be 0 or more") }
    }

    private func checked() throws -> (code: SecretCode, name: Nickname, udid: MemberID?) {
        try validated { () throws(ChatError) in
            (
                try SecretCode(parsing: code), try Nickname(parsing: name, field: "--name"),
                try udid.map { text throws(ChatError) in try MemberID(parsing: text, field: "--udid") }
            )
        }
    }

    func run() async throws {
        let (code, name, udid) = try checked()
        let environment = ProcessInfo.processInfo.environment
        let kept = environment[ConfigurationVariables.session].flatMap { $0.isEmpty ? nil : $0 }
        let session = session ?? kept
        let relay = try address.client(address.source.flags, silence: Self.silence) { _ in nil }
        // Not the address of `pushchat dev`: its port may change at each start, and its members stay.
        let known = try address.relay == nil ? address.configuration(address.source.flags).localAddress : relay.base
        let member = try udid ?? Self.keptUDID(relay: known, code, name, environment)
        guard let url = URL(string: relay.base), let id = ChatMemberID(member.text) else {
            throw Failure("\(relay.base) is not a URL")
        }
        let api = PushChatAPI(
            url: url, app: PushChatAPI.App(version: Build.version, model: "terminal"), transport: relay
        ) { session }
        let state = ChatClientState(relay: relay.base, shownHistory: history, endsWithInput: !follow)
        try await ChatClient(
            api: api, member: id, code: code, name: name, state: state, json: json, leaves: leave
        ).run()
    }

    private static func keptUDID(
        relay: String, _ code: SecretCode, _ name: Nickname, _ environment: [String: String]
    ) throws -> MemberID {
        guard let folder = MemberFile.folder(environment) else {
            throw Failure("there is no folder to keep the member's udid in: give --udid, or set XDG_STATE_HOME or HOME")
        }
        return try MemberFile(folder: folder, relay: relay, code: code, name: name).udid()
    }
}
