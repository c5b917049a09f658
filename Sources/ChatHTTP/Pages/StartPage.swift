import NIOCore

/// `/`: says that the server works, and where to go from here.
enum StartPage {
    static let production = HTMLPage.html(title: "It works", body: about)
    static let development = HTMLPage.html(title: "It works", body: about + testing)

    private static let about = """
        <h1>It works!</h1>
        <p>This is a PushChat Relay. It hosts chat rooms that are named by a secret code, and sends every message to the
        other members of its room as a push notification.</p>
        <h2>For the app</h2>
        <p>The app’s server address is the address of this page, without anything behind the host and port; the app posts
        its forms to <code>/api.php</code>.</p>
        <h2>For whoever runs it</h2>
        <ul>
        <li><a href="/healthz">Is the process alive?</a></li>
        <li><a href="/readyz">Can it do its work?</a></li>
        </ul>
        """

    private static let testing = """

        <h2>For trying it out</h2>
        <p>This server runs in development mode, so it has <a href="/test/">pages to try every command by hand</a>.</p>
        """
}
