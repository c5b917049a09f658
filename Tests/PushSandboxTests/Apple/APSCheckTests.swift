import PushWire
import Testing

@testable import PushSandbox

@Suite("Wrong values of Apple's keys in an accepted payload")
struct APSCheckTests {
    private func warning(_ payload: String, _ type: PushType = .alert) -> String? {
        APSCheck.warning(about: Array(payload.utf8), of: type)
    }

    @Test(
        "Values that devices understand cause no warning",
        arguments: [
            #"{"aps":{}}"#, #"{"mdm":"x"}"#, #"{"aps":{"alert":"x","badge":0,"sound":"default"}}"#,
            #"{"aps":{"alert":{"title":"x"},"sound":{"critical":1,"name":"a"},"content-available":1}}"#,
            #"{"aps":{"alert":"x","mutable-content":1,"category":"message","thread-id":"a","target-content-id":"b"}}"#,
            #"{"aps":{"interruption-level":"time-sensitive","relevance-score":1.0},"sender":7}"#,
            #"{"aps":{"interruption-level":"critical","relevance-score":0,"unknown":[]}}"#,
        ])
    func valid(payload: String) {
        #expect(warning(payload) == nil)
    }

    @Test(
        "The warning names each wrong value",
        arguments: [
            (#"{"aps":{"badge":-1}}"#, "aps.badge"), (#"{"aps":{"badge":"3"}}"#, "aps.badge"),
            (#"{"aps":{"badge":1.5}}"#, "aps.badge"), (#"{"aps":{"badge":true}}"#, "aps.badge"),
            (#"{"aps":{"alert":7}}"#, "aps.alert"), (#"{"aps":{"sound":[]}}"#, "aps.sound"),
            (#"{"aps":{"mutable-content":true}}"#, "aps.mutable-content must be 1"),
            (#"{"aps":{"category":1}}"#, "aps.category"), (#"{"aps":{"thread-id":1}}"#, "aps.thread-id"),
            (#"{"aps":{"target-content-id":{}}}"#, "aps.target-content-id"),
            (#"{"aps":{"interruption-level":"loud"}}"#, "aps.interruption-level must be one of passive"),
            (#"{"aps":{"relevance-score":1.1}}"#, "aps.relevance-score must be a number from 0 to 1"),
            (#"{"aps":{"relevance-score":"1"}}"#, "aps.relevance-score"),
            (#"{"a":1}"#, "not a JSON object with the object aps"), ("[]", "not a JSON object"), ("x", "not a JSON"),
        ])
    func invalid(payload: String, expected: String) {
        #expect(warning(payload)?.contains(expected) == true, "\(warning(payload) ?? "none")")
    }

    @Test("Several wrong values are in one warning; a Live Activity may have any score")
    func several() {
        #expect(
            warning(#"{"aps":{"badge":-1,"category":2}}"#)
                == "aps.category must be a string; aps.badge must be a whole number from 0")
        #expect(warning(#"{"aps":{"relevance-score":75}}"#, .liveactivity) == nil)
    }

    @Test("The inbox has the warning of a push that the sandbox accepted")
    func inbox() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            for payload in [#"{"aps":{"alert":"x","badge":"1"}}"#, #"{"aps":{"alert":"x","badge":1}}"#] {
                #expect(try await client.push(payload: payload).status == 200)
            }
            let warnings = try await sandbox.notifications("").map { $0["warning"] as? String }
            #expect(warnings == ["aps.badge must be a whole number from 0", nil])
        }
    }
}
