import NIOCore

/// `/test/`: the way to the test pages.
enum TestIndexPage {
    static let html = HTMLPage.html(
        title: "Test pages",
        body: """
            <h1>Test pages</h1>
            <p>Each sends what the app would send, and the server cannot tell the difference. An answer of
            <code>OK</code> means that it was done; anything else says what is wrong.</p>
            <ul>
            \(TestForm.all.map { #"<li><a href="/test/\#($0.names[0])">\#($0.title)</a></li>"# }.joined(separator: "\n"))
            <li><a href="/test/database.php">Test the database</a></li>
            </ul>
            <p>The identifiers in the forms are made up. To see a message arrive, let a second member join the same room
            with another UDID and another token.</p>
            <p><a href="/">Start page</a></p>
            """)
}

/// `/test/database.php`: whether the database answers, in the tutorial's words.
enum DatabasePage {
    static let success = HTMLPage.html(
        title: "Database",
        body: """
            <h1>Database</h1>
            <p>Database connection successful!</p>
            \(back)
            """)

    static func failure(_ problem: String) -> ByteBuffer {
        HTMLPage.html(
            title: "Database",
            body: """
                <h1>Database</h1>
                <p>Database connection failed: \(HTMLPage.escaped(problem)). The server’s log says why.</p>
                \(back)
                """)
    }

    private static let back = #"<p><a href="/test/">All test pages</a></p>"#
}
