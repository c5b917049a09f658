import Testing

@testable import ChatHTTP

@Suite("Foreign web pages")
struct ForeignPageGuardTests {
    @Test(
        "Local names and addresses pass",
        arguments: [
            "", "localhost", "localhost:44447", "127.0.0.1:44447", "192.168.1.5:44447", "[::1]:44447",
            "pushchat.local:44447",
            "PushChat.LOCAL", "mymac", "a.test",
        ])
    func local(authority: String) {
        #expect(ForeignPageGuard.isLocal(authority))
    }

    @Test(
        "Names that a public name server could point here do not",
        arguments: [
            "example.com", "example.com:44447", "localhost.example.com", "local.example.org:44447",
            "127.0.0.1.example.com",
            "[evil]:1", "evil.",
        ])
    func foreign(authority: String) {
        #expect(!ForeignPageGuard.isLocal(authority))
    }
}
