import ChatDomain
import Foundation
import PushChatCore
import Testing

@testable import pushchat

@Suite("The output of pushchat chat") struct ChatTextTests {
    private static func message(_ name: String, _ text: String, own: Bool = false, _ more: JSONObject = [:]) throws
        -> ChatClientState.Report
    {
        var json: JSONObject = [
            "id": .number(7), "name": .string(name), "text": .string(text),
            "sent_at": .string("2026-11-22T12:03:04.567Z"), "own": .bool(own),
        ]
        for (name, value) in more.members { json[name] = value }
        return .message(try JSONDecoder().decode(ChatMessage.self, from: Data(JSONValue.object(json).description.utf8)))
    }

    /// Text that could control a terminal or reverse the text after it.
    private static let evil = "a\u{1B}]0;x\u{07}\u{1B}[2J\u{9B}31m\u{85}\u{7F}\r\u{202E}\u{2066}\u{2028}b"

    @Test("Text from others cannot control the terminal", arguments: [true, false])
    func evil(isColoured: Bool) throws {
        for form in [ChatText.Form.plain, .terminal(isColoured: isColoured), .json] {
            var text = ChatText(form)
            let reports = [
                try Self.message(Self.evil, Self.evil, ["title": .string(Self.evil), "link": .string(Self.evil)]),
                .note(Self.evil), .members(2), .deleted(1), .left(wasRemoved: true),
            ]
            for report in reports {
                let (output, note) = text.lines(report)
                for line in output + [note].compactMap(\.self) {
                    // Only our own colour sequences may occur.
                    let plain = isColoured ? line.replacing(#/\u{1B}\[[0-9;]*m/#, with: "") : line
                    let bad = plain.unicodeScalars.filter { $0.value < 32 || $0.isUnsafeInLine }
                    #expect(bad.isEmpty, "\(form): \(line.debugDescription)")
                }
            }
        }
    }

    @Test("Colour sequences in a message are not printed as colours")
    func fakeColours() throws {
        var text = ChatText(.terminal(isColoured: true))
        let line = try #require(text.lines(try Self.message("\u{1B}[31mAnn", "\u{1B}[32mx")).output.last)
        #expect(line.contains(" [31mAnn\u{1B}[0m: ") && line.hasSuffix(" [32mx"))
    }

    @Test("Markdown is plain text for people, and unchanged in JSON")
    func markdown() throws {
        let report = try Self.message(
            "ci", "**main** is [red](https://ci.example)", ["program": .bool(true), "markdown": .bool(true)])
        var (plain, terminal, json) = (ChatText(.plain), ChatText(.terminal(isColoured: false)), ChatText(.json))
        for line in [plain.lines(report).output.last, terminal.lines(report).output.last] {
            #expect(line?.hasSuffix(" program:ci: main is red") == true)
        }
        let line = try #require(json.lines(report).output.first)
        #expect(line.contains(#""text":"**main** is [red](https://ci.example)""#) && line.contains(#""markdown":true"#))
        let unmarked = try Self.message("ci", "**main**", ["program": .bool(true)])
        #expect(plain.lines(unmarked).output.last?.hasSuffix(": **main**") == true)
    }

    @Test("A changed message has a mark and the time of its change", arguments: ["edited", "cleared", "resolved"])
    func changed(kind: String) throws {
        let report = try Self.message(
            "cron", "up", ["program": .bool(true), kind + "_at": .string("2026-11-22T12:09:00.000Z")])
        guard case .message(let message) = report else { return }
        // A script that reads lines must not take a change for a message.
        var plain = ChatText(.plain)
        #expect(plain.lines(report).output == ["2026-11-22T12:03:04.567Z program:cron: up"])
        #expect(plain.lines(.changed(message)).output == [])
        var terminal = ChatText(.terminal(isColoured: false))
        #expect(terminal.lines(.changed(message)).output.last?.hasSuffix(" program:cron (\(kind)): up") == true)
        var json = ChatText(.json)
        #expect(
            json.lines(.changed(message)).output == [
                #"{"event":"\#(kind)","message":{"id":7,"name":"cron","text":"up","sent_at":"2026-11-22T12:03:04.567Z","#
                    + #""own":false,"program":true,"\#(kind)_at":"2026-11-22T12:09:00.000Z"}}"#
            ])
    }

    @Test("For programs a message is one line with its time")
    func plain() throws {
        var text = ChatText(.plain)
        #expect(
            text.lines(try Self.message("Ann", "one\ntwo")).output == ["2026-11-22T12:03:04.567Z Ann: one two"])
        #expect(
            text.lines(try Self.message("cron", "done", ["title": .string("Backup"), "link": .null])).output
                == ["2026-11-22T12:03:04.567Z cron: Backup done"])
        #expect(
            text.lines(try Self.message("cron", "done", ["program": .bool(true)])).output
                == ["2026-11-22T12:03:04.567Z program:cron: done"])
        #expect(
            text.lines(try Self.message("Program:cron", "done")).output
                == ["2026-11-22T12:03:04.567Z member:Program:cron: done"])
        let (output, note) = text.lines(.members(3))
        #expect(output.isEmpty && note == nil)
    }

    @Test("On a terminal the day is printed above its messages, and the lines of a text below each other")
    func terminal() throws {
        var text = ChatText(.terminal(isColoured: false))
        let first = text.lines(try Self.message("Ann", "one\r\ntwo")).output
        #expect(first.count == 3 && first[0].hasPrefix("— ") && first[0].contains("November 2026"))
        #expect(first[1].hasSuffix(" Ann: one") && first[2] == "      two")
        #expect(text.lines(try Self.message("Ann", "three")).output.count == 1)
        let program = text.lines(try Self.message("cron", "done", ["program": .bool(true)])).output
        #expect(program.count == 1 && program[0].hasSuffix(" program:cron: done"))
        #expect(text.lines(.members(1)).note == "only you are in the room")
    }

    @Test("As JSON a message equals the API's, and events of the room have a name")
    func json() throws {
        var text = ChatText(.json)
        #expect(
            text.lines(try Self.message("Ann", "\u{9B}é\n", own: true)).output == [
                #"{"id":7,"name":"Ann","text":"\u009bé\n","sent_at":"2026-11-22T12:03:04.567Z","own":true}"#
            ])
        #expect(text.lines(.members(3)).output == [#"{"event":"room","members":3}"#])
        #expect(text.lines(.left(wasRemoved: false)).output == [#"{"event":"left"}"#])
        #expect(text.lines(.left(wasRemoved: true)).output == [#"{"event":"left","reason":"removed"}"#])
        #expect(text.lines(.deleted(5)).output == [#"{"event":"deleted","id":5}"#])
    }
}
