import Foundation
import Testing

@testable import PushSandbox

@Suite("The JSON of faults", .timeLimit(.minutes(10)))
struct FaultTests {
    private static let shared = "status, close, reset, stop_reading, delay, drop, "
    private static let channels = "close_accepted, goaway, stream_limit, reset_stream, refuse_stream, expire_token"
    private static let actions = [
        "binary": shared + "probe", "http2": shared + channels + ", no_update_token, keep_token",
        "broadcast": shared + channels + ", lose, reorder", "channels": shared + channels,
        "webpush": "status, close, delay, drop, rate_limit",
        "fcm": "status, close, reset, delay, drop, goaway, expire_token", "fcm_token": "status, close, delay, drop",
    ]

    @Test("The error about an unknown action lists the actions of the protocol")
    func unknownAction() async throws {
        #expect(Set(Self.actions.keys) == Set(GatewayProtocol.allCases.map(\.rawValue)))
        try await TestSandbox.with { sandbox in
            for (gateway, actions) in Self.actions {
                let json = #"{"protocol":"\#(gateway)","action":"explode"}"#
                let answer = try await sandbox.control(.post, "/faults", json: json)
                #expect(answer.body == #"{"error":"action: must be one of \#(actions)"}"#)
            }
        }
    }

    /// The fields of an action, and those that it is shown with if they differ.
    private static let shown: [(protocol: String, fields: String, shown: String?)] = [
        ("binary", #""action":"status","status":8"#, #""action":"status","status":8,"delay_ms":0"#),
        ("binary", #""action":"status","status":8,"delay_ms":1,"identifier":7"#, nil),
        ("binary", #""action":"stop_reading","delay_ms":null"#, #""action":"stop_reading""#),
        ("binary", #""action":"probe","answer":"close""#, nil),
        (
            "binary", #""action":"probe","answer":"unidentified""#,
            #""action":"probe","answer":"unidentified","status":1"#
        ),
        (
            "http2", #""action":"status","reason":"BadDeviceToken""#,
            #""action":"status","reason":"BadDeviceToken","status":400,"delay_ms":0"#
        ),
        ("http2", #""action":"status","reason":"Novel","status":404,"timestamp":5,"delay_ms":1"#, nil),
        (
            "http2", #""action":"goaway","reason":"Bye","last_stream":3"#,
            #""action":"goaway","reason":"Bye","last_stream":3,"code":0"#
        ),
        ("http2", #""action":"stream_limit""#, #""action":"stream_limit","limit":1"#),
        ("http2", #""action":"keep_token""#, nil),
        ("channels", #""action":"refuse_stream""#, #""action":"reset_stream","code":7"#),
        ("broadcast", #""action":"reset_stream""#, #""action":"reset_stream","code":2"#),
        ("broadcast", #""action":"reorder""#, nil),
        (
            "webpush", #""action":"status","status":503,"retry_after":3"#,
            #""action":"status","status":503,"retry_after":3,"delay_ms":0"#
        ),
        ("webpush", #""action":"rate_limit","limit":5"#, #""action":"rate_limit","limit":5,"status":429"#),
        (
            "fcm", #""action":"status","reason":"UNREGISTERED","retry_after":5"#,
            #""action":"status","reason":"UNREGISTERED","status":404,"retry_after":5,"retry_after_form":"seconds","delay_ms":0"#
        ),
        ("fcm", #""action":"goaway""#, nil),
        (
            "fcm_token", #""action":"status","reason":"invalid_grant","retry_after":5"#,
            #""action":"status","reason":"invalid_grant","delay_ms":0"#
        ),
        ("fcm_token", #""action":"status","status":503,"retry_after":5,"retry_after_form":"date","delay_ms":1"#, nil),
    ]

    @Test("A fault is shown with the fields that it read, and with their defaults")
    func fields() async throws {
        try await TestSandbox.with { sandbox in
            for (index, row) in Self.shown.enumerated() {
                let start = #"{"protocol":"\#(row.protocol)","#
                let answer = try await sandbox.control(.post, "/faults", json: start + row.fields + "}")
                let times = row.fields.contains("rate_limit") ? Fault.maxCount : 1
                let progress = #""id":\#(index + 1),"after":0,"times":\#(times),"passed":0,"hit":0,"#
                let expected = start + progress + (row.shown ?? row.fields) + "}"
                #expect(answer.body == (try Self.sorted(expected)))
            }
        }
    }

    /// Returns the JSON with its members in the order of their names.
    private static func sorted(_ json: String) throws -> String {
        let object = try JSONSerialization.jsonObject(with: Data(json.utf8))
        return String(decoding: try JSONSerialization.data(withJSONObject: object, options: .sortedKeys), as: UTF8.self)
    }
}
