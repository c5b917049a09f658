import ArgumentParser
import ChatDomain
import Foundation
import NIOCore

/// `pushchat chat`
struct Chat: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Talk in a room of the running relay: its history, what comes, and what you type.",
        discussion: """
            pushchat chat tea --name Alice
            df -h / | pushchat chat ops --name backup
            pushchat chat tea --name bot --json --follow < /dev/null

            A line is a message. Ctrl-D or Ctrl-C ends the chat; you stay a member of the
            room, and the next start shows what came meanwhile. Without a terminal it ends
            when the last line of the input was taken; the status is 1 if one was refused.
            What the relay has not answered is sent again until it has, and arrives once.
            """)

    /// The longest silence on the stream before the connection counts as lost. Longer than the relay's own longest
    /// pause in a stream, with a margin for slow networks.
    private static let silence = TimeAmount.seconds(45)

    @Argument(help: .value("code", "The room's secret code.")) var code: String
    @Option(help: .value("name", "What the others call you.")) var name: String

    @Option(
        help: .value(
            "udid", "The member that you are.",
            discussion: "Unless given, one for this relay, room and name, kept in $XDG_STATE_HOME/pushchat or "
                + "~/.local/state/pushchat. A phone with the same udid gets no pushes any more."))
    var udid: String?

    @Option(
        help: .value(
            "token", "A session, where the relay asks for one.",
            discussion: "Unless given, that of PUSHCHAT_SESSION, which others of the machine cannot see."))
    var session: String?

    @Option(help: .value("number", "Of the messages so far, show only so many.")) var history: Int?
    @Flag(help: "Go on when the input has ended.") var follow = false
    @Flag(help: "Leave the room at the end.") var leave = false
    @Flag(help: "An object a line: messages as the API has them, and what happens to the room.") var json = false
    @OptionGroup(title: "The relay") var address: RelayAddress

    func validate() throws {
        _ = try checked()
        if let history, history < 0 { throw ValidationError("--history \(history): must be 0 or more") }
    }

    private func checked() throws -> (code: SecretCode, name: Nickname, udid: MemberID?) {
        do throws(ChatError) {
            return (
                try SecretCode(parsing: code), try Nickname(parsing: name, field: "--name"),
                try udid.map { text throws(ChatError) in try MemberID(parsing: text, field: "--udid") }
            )
        } catch {
            throw ValidationError(error.message)
        }
    }

    func run() async throws {
        let (code, name, udid) = try checked()
        let environment = ProcessInfo.processInfo.environment
        let kept = environment[ConfigurationVariables.session].flatMap { $0.isEmpty ? nil : $0 }
        let relay = try address.client(address.source.flags, silence: Self.silence) { _ in session ?? kept }
        let member = try udid ?? Self.keptUDID(relay: relay.base, code, name, environment)
        try await ChatClient(
            calls: MemberCalls(relay: relay, udid: member), code: code, name: name,
            state: ChatClientState(shownHistory: history, endsWithInput: !follow), json: json, leaves: leave
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
