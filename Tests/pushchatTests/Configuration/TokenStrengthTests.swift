import Testing

@testable import pushchat

@Suite("The strength of a token")
struct TokenStrengthTests {
    @Test(
        "The strength depends on the length and the kinds of characters",
        arguments: [
            ("", 0), ("0123456789012345", 53), (String(repeating: "0f", count: 16), 128),
            (String(repeating: "0F", count: 16), 128), (String(repeating: "0fA", count: 8), 142),
            (String(repeating: "a", count: 26), 104), (String(repeating: "g", count: 26), 122),
            (String(repeating: "gZ", count: 11), 125), (String(repeating: "gZ7", count: 8), 142),
            ("correct-horse-battery", 123), ("s3cret-of-16-byte", 103), ("!!!!!!!!", 40),
        ])
    func bits(token: String, bits: Int) {
        #expect(Int(TokenStrength.bits(of: token)) == bits)
    }

    @Test(
        "The hex output of `openssl rand` suffices from 16 bytes",
        arguments: [(15, false), (16, true), (32, true)])
    func openssl(bytes: Int, isEnough: Bool) {
        let token = String(repeating: "a7", count: bytes)
        #expect((TokenStrength.bits(of: token) >= TokenStrength.enough) == isEnough)
    }
}
