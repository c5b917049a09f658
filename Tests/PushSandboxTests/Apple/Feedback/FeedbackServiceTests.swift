import Foundation
import NIOCore
import PushWire
import TestSupport
import Testing

@testable import PushSandbox

@Suite("The feedback service", .timeLimit(.minutes(10)))
struct FeedbackServiceTests {
    private func token(_ byte: UInt8) -> [UInt8] { [UInt8](repeating: byte, count: 32) }

    private func tuples(_ bytes: [UInt8]) -> [FeedbackTuple] {
        var buffer = ByteBuffer(bytes: bytes)
        var tuples: [FeedbackTuple] = []
        while let tuple = FeedbackTuple.read(from: &buffer) { tuples.append(tuple) }
        #expect(buffer.readableBytes == 0)
        return tuples
    }

    private func remove(_ token: [UInt8], _ sandbox: TestSandbox) async throws {
        #expect(try await sandbox.control(.delete, "/devices/\(token.hex)").status == 200)
    }

    private func waiting(_ sandbox: TestSandbox) async throws -> Int? {
        let feedback = try await sandbox.control(.get, "/stats").object()["feedback"] as? [String: Any]
        return feedback?["waiting"] as? Int
    }

    @Test("An empty list ends the connection at once")
    func empty() async throws {
        try await TestSandbox.with { sandbox in
            let ending = try await sandbox.feedback().end()
            #expect(ending.bytes == [])
            #expect(ending.isClean)
        }
    }

    @Test("Removed devices are listed once, with the time of their removal")
    func removed() async throws {
        let second = UInt32(Date().timeIntervalSince1970)
        try await TestSandbox.with { configuration in
            configuration.now = { Date(timeIntervalSince1970: Double(second) + 0.9) }
        } _: { sandbox in
            try await remove(token(1), sandbox)
            try await remove(token(2), sandbox)
            let ending = try await sandbox.feedback().end()
            #expect(
                tuples(ending.bytes) == [
                    FeedbackTuple(timestamp: second, token: token(1)),
                    FeedbackTuple(timestamp: second, token: token(2)),
                ])
            try await waitUntilEmpty(sandbox)
            #expect(try await sandbox.feedback().end().bytes == [])
        }
    }

    @Test("A reader that resets the connection leaves the list for the next, which gets all of it")
    func resetReader() async throws {
        try await TestSandbox.with { sandbox in
            // More than the sockets' buffers hold, so that the sandbox cannot have written all of it.
            let tuples = (0..<150_000).map { FeedbackTuple(timestamp: $0, token: token(UInt8($0 % 256))) }
            sandbox.state.withLock { state in
                for tuple in tuples { state.feedback.append(tuple, topic: sandbox.credentials.topic) }
            }
            let dying = try await sandbox.feedback(stopsReading: true)
            // On a busy machine the sandbox may have closed the connection before.
            try? await dying.stopReading()
            try? await dying.abort()
            #expect(try await waiting(sandbox) == tuples.count)

            let ending = try await sandbox.feedback().end()
            #expect(ending.isClean)
            #expect(self.tuples(ending.bytes) == tuples)
            try await waitUntilEmpty(sandbox)
        }
    }

    @Test("With the option the list is cleared when it is sent")
    func strictClearing() async throws {
        try await TestSandbox.with {
            $0.clearFeedbackOnHandshake = true
        } _: { sandbox in
            try await remove(token(1), sandbox)
            #expect(tuples(try await sandbox.feedback().end().bytes).count == 1)
            // No wait is needed: the list was cleared before it was written.
            #expect(try await waiting(sandbox) == 0)
        }
    }

    @Test("Only the topic of the certificate is listed")
    func topics() async throws {
        try await TestSandbox.with { sandbox in
            let body = #"{"token":"aabb","topic":"com.example.Other"}"#
            #expect(try await sandbox.control(.post, "/devices", json: body).status == 201)
            try await remove([0xAA, 0xBB], sandbox)
            #expect(try await sandbox.feedback().end().bytes == [])
            #expect(try await waiting(sandbox) == 1)
        }
    }

    @Test("A third-party reader gets the tuples", .enabled(if: OpenSSLTool.isPresent))
    func openssl() async throws {
        try await TestSandbox.with { sandbox in
            try await remove(token(7), sandbox)
            let output = try await OpenSSLTool.run([
                "s_client", "-connect", sandbox.addresses[.feedback].description, "-quiet", "-ign_eof",
                "-CAfile", sandbox.credentials.authorityFile, "-cert", sandbox.credentials.clientFile,
                "-key", sandbox.credentials.clientFile,
            ])
            #expect(Array(output.bytes.suffix(34)) == [0, 32] + token(7))
            try await waitUntilEmpty(sandbox)
        }
    }

    /// Waits until the list is empty: the sandbox clears it after the client's close.
    private func waitUntilEmpty(_ sandbox: TestSandbox) async throws {
        try await eventually { try await waiting(sandbox) == 0 }
    }
}
