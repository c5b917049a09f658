import ChatDomain
import Testing

@testable import pushchat

@Suite("The help of the commands on tokens")
struct TokenHelpTests {
    @Test("The help of `token create` explains every scope by its name", arguments: Scope.allCases)
    func scopes(scope: Scope) {
        let lines = Token.Create.helpMessage(columns: 200).split(separator: "\n")
        #expect(lines.contains { $0.hasPrefix("  \(scope.rawValue) ") })
    }
}
