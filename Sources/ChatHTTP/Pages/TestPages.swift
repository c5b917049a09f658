import NIOCore
import WebAssets

/// The tutorial's test pages, in HTML.
enum TestPages {
    /// The pages by path, except ``database(_:)``.
    static let all: [(path: String, page: PlainPage)] =
        [(path: "/test", page: index)]
        + TestForm.all.flatMap { form in
            let page = form.page
            return form.names.map { (path: "/test/\($0)", page: page) }
        }

    private static let index = PlainPage(
        title: "Test pages",
        body: """
            <h1>Test pages</h1>
            <p>Each page sends the same request as the app, so the server cannot tell the difference. The response
            <code>OK</code> means success. Any other response describes the error.</p>
            <ul>
            \(TestForm.all.map { #"<li><a href="{{root}}test/\#($0.names[0])">\#($0.title)</a></li>"# }.joined(separator: "\n"))
            <li><a href="{{root}}test/database.php">Test the database</a></li>
            </ul>
            <p>The identifiers in the forms are made up. To see a message arrive, let a second member join the same room
            with another UDID and another token.</p>
            <p><a href="{{root}}">Start page</a></p>
            """)

    /// Returns the result of the database check, in the tutorial's words.
    static func database(_ problem: String?) -> PlainPage {
        let result = problem.map { "failed: \(WebFile.escaped($0)). The server’s log has the cause." } ?? "successful!"
        return PlainPage(
            title: "Database",
            body: """
                <h1>Database</h1>
                <p>Database connection \(result)</p>
                <p><a href="{{root}}test/">All test pages</a></p>
                """)
    }
}

/// A page with a form that sends one command. Its fields have the tutorial's order.
private struct TestForm: Sendable {
    struct Field: Sendable {
        let name: String
        let label: String
        let hint: String
        var value = ""
        var isLong = false
        var isOptional = false
    }

    /// The file names under `/test/`. Links use the first one.
    let names: [String]
    let title: String
    let about: String
    let cmd: String
    let fields: [Field]
    let button: String

    static let all = [join, message, messages, update, leave]

    private static let udid = Field(
        name: "udid", label: "UDID", hint: "40 or 32 hexadecimal digits; identifies the member",
        value: "6a45eb0b5d3f4d5d9b5d8cf0f7d3a1b2c3d4e5f6")
    private static let token = Field(
        name: "token", label: "Device token", hint: "64 hexadecimal digits; the address of the pushes",
        value: "740f4707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bb78ad")

    private static let join = TestForm(
        names: ["api_join.html"], title: "Join a room",
        about: "Joins a room, and leaves any other one.", cmd: "join",
        fields: [
            udid,
            Field(name: token.name, label: token.label, hint: token.hint + ", or 0 for none yet", value: token.value),
            Field(name: "name", label: "Nickname", hint: "What the others see", value: "Tester"),
            Field(name: "code", label: "Secret code", hint: "Names the room", value: "TEST"),
        ], button: "Join")

    private static let message = TestForm(
        names: ["api_message.html", "test_message.html"], title: "Send a message",
        about: "Sends a message to the room that the member has joined.", cmd: "message",
        fields: [
            udid, Field(name: "text", label: "Text", hint: "Up to 190 bytes by default", isLong: true),
        ], button: "Send")

    private static let messages = TestForm(
        names: ["api_messages.html"], title: "Read messages",
        about: "Lists the messages of the room. The response is JSON.", cmd: "messages",
        fields: [
            udid,
            Field(
                name: "since", label: "Since", hint: "Only messages after this id; empty for all since joining",
                isOptional: true),
            Field(name: "limit", label: "Limit", hint: "The maximum number, 1 to 500; empty for 100", isOptional: true),
        ], button: "Read")

    private static let update = TestForm(
        names: ["api_update.html"], title: "Update the device token",
        about: "Changes the token of the member’s device.", cmd: "update", fields: [udid, token],
        button: "Update")

    private static let leave = TestForm(
        names: ["api_leave.html"], title: "Leave the room",
        about: "Ends pushes to the member.", cmd: "leave", fields: [udid], button: "Leave")

    var page: PlainPage {
        PlainPage(
            title: title,
            body: """
                <h1>\(WebFile.escaped(title))</h1>
                <p>\(WebFile.escaped(about))</p>
                <form action="{{root}}api.php" method="post" autocomplete="off">
                <input type="hidden" name="cmd" value="\(cmd)">
                \(fields.map(\.html).joined(separator: "\n"))
                <button type="submit">\(WebFile.escaped(button))</button>
                </form>
                <p><a href="{{root}}test/">All test pages</a></p>
                """)
    }
}

extension TestForm.Field {
    fileprivate var html: String {
        let attributes =
            #"id="\#(name)" name="\#(name)" aria-describedby="\#(name)-hint" autocapitalize="none" spellcheck="false""#
            + (isOptional ? "" : " required")
        let control =
            isLong
            ? "<textarea \(attributes)>\(WebFile.escaped(value))</textarea>"
            : #"<input type="text" \#(attributes) value="\#(WebFile.escaped(value))">"#
        return """
            <div>
            <label for="\(name)">\(WebFile.escaped(label))</label>
            <span class="hint" id="\(name)-hint">\(WebFile.escaped(hint))</span>
            \(control)
            </div>
            """
    }
}
