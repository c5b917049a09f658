import Testing

@testable import pushchat

@Suite("check of a public address")
struct PublicAddressCheckTests {
    private static let (forged, client) = (ProbeObservation.forged, "198.51.100.7")

    struct Case: Sendable {
        var trusted = true
        var forwarded: [String] = []
        var forwardedFor: [String] = []
        var isDirect = false
        let result: CheckReport.Result
        let says: String
    }

    private static let cases = [
        Case(forwardedFor: [client], result: .ok, says: "come from the proxy at 10.0.0.5"),
        Case(forwarded: ["for=\(client);proto=https"], result: .ok, says: "come from the proxy"),
        // A proxy that appends to the list.
        Case(forwardedFor: ["\(forged), \(client)"], result: .ok, says: "come from the proxy"),
        Case(forwardedFor: [forged, client], result: .ok, says: "come from the proxy"),
        Case(
            forwarded: ["for=\(forged)"], forwardedFor: [client], result: .warning,
            says: "passes on what they send as Forwarded: a client"),
        Case(
            forwarded: ["for=\(client)"], forwardedFor: [forged], result: .warning,
            says: "passes on what they send as X-Forwarded-For: a client"),
        Case(
            forwarded: ["for=\(forged)"], forwardedFor: [forged], result: .failed,
            says: "send as X-Forwarded-For and Forwarded: any client"),
        Case(result: .warning, says: "does not name its clients"),
        Case(trusted: false, forwardedFor: [client], result: .warning, says: "not in http.trusted_proxies"),
        Case(
            trusted: false, forwarded: ["for=\(forged)"], forwardedFor: [forged], result: .warning,
            says: "the server in front, at 10.0.0.5, does not name"),
        Case(
            trusted: false, forwarded: ["for=\(forged)"], forwardedFor: [forged], isDirect: true, result: .ok,
            says: "there is no proxy"),
    ]

    @Test("check reports whether clients' addresses are known and cannot be forged", arguments: cases)
    func addresses(_ it: Case) {
        let answer = ProbeObservation(
            client: Self.client, peer: "10.0.0.5", isTrusted: it.trusted, forwarded: it.forwarded,
            forwardedFor: it.forwardedFor)
        let (result, text) = answer.verdict(isDirect: it.isDirect)
        #expect(result == it.result && text.contains(it.says), "\(text)")
    }

    @Test("Only the event of a probe is read")
    func event() {
        let json =
            #"{"client":"198.51.100.7","peer":"10.0.0.5","trusted":false,"forwarded":[],"x_forwarded_for":["a, b"]}"#
        #expect(
            ProbeObservation(json)
                == ProbeObservation(
                    client: Self.client, peer: "10.0.0.5", isTrusted: false, forwarded: [], forwardedFor: ["a, b"]))
        for wrong in ["", "[]", "{}", json.replacing("false", with: "0")] { #expect(ProbeObservation(wrong) == nil) }
    }

    @Test("check tests a public address only if one is configured")
    func configured() {
        var configuration = Configuration(environment: .production)
        #expect(PublicAddressCheck(configuration) == nil)
        configuration.http.publicURL = "https://chat.example.org"
        #expect(PublicAddressCheck(configuration) != nil)
    }
}
