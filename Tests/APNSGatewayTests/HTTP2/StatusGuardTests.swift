import NIOCore
import NIOEmbedded
import NIOHPACK
import NIOHTTP1
import NIOHTTP2
import Testing

@testable import GatewayPool

@Suite("Impossible statuses of services, over HTTP/2")
struct StatusGuardTests {
    private static func channel() throws -> EmbeddedChannel {
        let channel = EmbeddedChannel()
        try channel.pipeline.syncOperations.addHandler(HTTP2StatusGuard())
        return channel
    }

    private static func headers(_ name: String, _ value: String, endStream: Bool = false) -> HTTP2Frame.FramePayload {
        .headers(.init(headers: HPACKHeaders([(name, value)]), endStream: endStream))
    }

    @Test(
        "The guard fails a stream whose status is impossible",
        arguments: ["-1", "0", "5", "099", "101", "", "x", "99999999999999999999999"])
    func impossible(status: String) throws {
        let channel = try Self.channel()
        #expect(throws: HTTPParserError.invalidStatus) {
            try channel.writeInbound(Self.headers(":status", status))
        }
        // AsyncHTTPClient sees neither this response nor the next one.
        try channel.writeInbound(Self.headers(":status", "200", endStream: true))
        #expect(try channel.readInbound(as: HTTP2Frame.FramePayload.self) == nil)
        _ = try? channel.finish()
    }

    @Test("The guard fails a stream that ends with a provisional status")
    func provisional() throws {
        let channel = try Self.channel()
        #expect(throws: HTTPParserError.invalidStatus) {
            try channel.writeInbound(Self.headers(":status", "103", endStream: true))
        }
        _ = try? channel.finish()
    }

    @Test("The guard passes provisional responses, the final one, and its trailers", arguments: ["200", "404", "999"])
    func possible(status: String) throws {
        let channel = try Self.channel()
        try channel.writeInbound(Self.headers(":status", "103"))
        try channel.writeInbound(Self.headers(":status", status))
        try channel.writeInbound(Self.headers("checksum", "1", endStream: true))
        var passed = 0
        while try channel.readInbound(as: HTTP2Frame.FramePayload.self) != nil { passed += 1 }
        #expect(passed == 3)
        _ = try channel.finish()
    }
}
