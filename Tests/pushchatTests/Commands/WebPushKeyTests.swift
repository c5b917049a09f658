import Testing

@testable import pushchat

@Suite("pushchat webpush key")
struct WebPushKeyTests {
    @Test(
        "An exported key is accepted, also if it begins with a hyphen",
        arguments: ["yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw", "-WNg4VqaOaIRt4bFp4WnQs5d0VRE8rUr0ddOvvuZDhM", "-"])
    func imported(key: String) throws {
        let command = try Pushchat.parseAsRoot(["webpush", "key", "--import", key, "--database", "a.db"])
        #expect((command as? WebPush.Key)?.imported == key)
    }
}
