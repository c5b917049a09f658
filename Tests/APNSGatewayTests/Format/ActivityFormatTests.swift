import APNSGateway
import ChatDomain
import Testing

@Suite("Apple's format of a Live Activity")
struct ActivityFormatTests {
    private static func composed(
        _ json: String, _ kind: APNSFormat.Kind = .http2, limit: Int = 4096
    ) throws -> ComposedNotification {
        try APNSFormat(kind, payloadLimit: limit).compose(
            ActivityContent(#require(try JSONValue(parsing: json).object)), tag: ActivityTag(stored: "t"),
            timestamp: 1_800_000_000)
    }

    @Test(
        "The payload has Apple's members",
        arguments: [
            (
                #"{"event":"update","state":{"n":1},"stale_date":"2027-01-15T08:00:00Z","relevance_score":1.50}"#,
                #"{"aps":{"timestamp":1800000000,"event":"update","content-state":{"n":1},"stale-date":1800000000,"relevance-score":1.50}}"#
            ),
            (
                #"{"event":"end","dismissal_date":"2027-01-15T08:00:00Z","alert":{"title":"Done","sound":"default"}}"#,
                #"{"aps":{"timestamp":1800000000,"event":"end","alert":{"title":"Done","sound":"default"},"dismissal-date":1800000000}}"#
            ),
            (
                #"{"event":"start","state":{},"type":"A.B","attributes":{"tag":"mine"},"alert":{"title":"Go"}}"#,
                #"{"aps":{"timestamp":1800000000,"event":"start","content-state":{},"attributes-type":"A.B","attributes":{"tag":"mine"},"input-push-token":1,"alert":{"title":"Go"}}}"#
            ),
        ])
    func payload(json: String, payload: String) throws {
        let composed = try Self.composed(json)
        #expect(composed.payload == payload)
        #expect(composed.pushType == "liveactivity")
        #expect(composed.priority == 5)
    }

    @Test("The gateway's limit and kind count")
    func limits() throws {
        let json = #"{"event":"update","state":{"t":"x"}}"#
        let size = try Self.composed(json).payload.utf8.count
        #expect(try Self.composed(json, limit: size).payload.utf8.count == size)
        #expect {
            _ = try Self.composed(json, limit: size - 1)
        } throws: { ($0 as? ChatError)?.field == "state" }
        #expect {
            _ = try Self.composed(json, .binary)
        } throws: { ($0 as? ChatError)?.field == "app" }
    }
}
