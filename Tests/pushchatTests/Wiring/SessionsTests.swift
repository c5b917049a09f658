import Testing

@testable import pushchat

@Suite struct SessionsTests {
    let folder: ConfigurationFolder

    init() throws { folder = try ConfigurationFolder() }

    @Test("Without sessions there is no verifier")
    func open() async throws {
        #expect(try await TokenVerifier.configured(folder.load("session: {audience: a}")) == nil)
        #expect(
            try await TokenVerifier.configured(
                folder.load("registration: session\nsession: {secret: 0123456789abcdef0123456789abcdef}")) != nil)
    }

    @Test("The error names an invalid key's setting", arguments: ["key", "jwks"])
    func wrong(name: String) async throws {
        try folder.write("nonsense", to: "file")
        let configuration = try folder.load("registration: session\nsession: {\(name): file}")
        let error = await #expect(throws: Failure.self) { try await TokenVerifier.configured(configuration) }
        #expect(error?.description.hasPrefix("session.\(name), \(folder.path)/file: ") == true)
    }

    @Test("A shared secret that is too short is refused")
    func short() throws {
        let problems = try folder.problems("session: {secret: abc}")
        #expect(problems.count == 1)
        #expect(problems.first?.contains("at least 32 characters") == true)
        #expect(problems.first?.contains("abc\"") == false)
    }
}
