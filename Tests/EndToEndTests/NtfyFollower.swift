import AsyncHTTPClient
import Foundation
import NIOCore
import Synchronization

/// Follows a room as ntfy's app for Android does: shows the newest text of each sequence id, and continues after the last
/// event when a stream ends.
final class NtfyFollower: Sendable {
    private struct Event: Decodable {
        let id: String
        let event: String
        let sequenceID: String?
        let message: String?

        private enum CodingKeys: String, CodingKey {
            case id, event, message
            case sequenceID = "sequence_id"
        }
    }

    private struct State {
        var last = "all"
        var shown: [String: String] = [:]
        var events = 0
        var streams = 0
        /// Events whose ids do not rise.
        var disordered: [String] = []
        var isOver = false
    }

    /// The number of events after which the follower ends a stream, so that it also continues without a kill.
    private static let eventsPerStream = 16

    private let request: @Sendable (_ since: String) -> HTTPClientRequest
    private let state = Mutex(State())

    /// - Parameter token: A token with the scope `read`.
    init(room: String, port: Int, token: String) {
        request = { since in
            var request = HTTPClientRequest(url: "http://127.0.0.1:\(port)/ntfy/\(room)/json?since=\(since)")
            request.headers.add(name: "Authorization", value: "Bearer \(token)")
            return request
        }
    }

    /// The texts by their sequence ids.
    var shown: [String: String] { state.withLock(\.shown) }
    var last: String { state.withLock(\.last) }
    var events: Int { state.withLock(\.events) }
    var streams: Int { state.withLock(\.streams) }
    var disordered: [String] { state.withLock(\.disordered) }

    func end() { state.withLock { $0.isOver = true } }

    /// Reads one stream after another until the end.
    func follow() async {
        while !isOver {
            try? await read()
            try? await Task.sleep(for: .milliseconds(50))
        }
    }

    private var isOver: Bool { Task.isCancelled || state.withLock(\.isOver) }

    private func read() async throws {
        // The time limit does not apply to the body.
        let response = try await HTTP.client.execute(request(state.withLock(\.last)), timeout: .seconds(3))
        guard response.status == .ok else { return }
        state.withLock { $0.streams += 1 }
        var buffer = ByteBuffer()
        let end = events + Self.eventsPerStream
        for try await part in response.body {
            buffer.writeImmutableBuffer(part)
            while let lineEnd = buffer.readableBytesView.firstIndex(of: UInt8(ascii: "\n")) {
                guard let line = buffer.readSlice(length: lineEnd - buffer.readerIndex) else { break }
                buffer.moveReaderIndex(forwardBy: 1)
                take(try JSONDecoder().decode(Event.self, from: Data(line.readableBytesView)))
            }
            if isOver || events >= end { return }
        }
    }

    private func take(_ event: Event) {
        guard event.event.hasPrefix("message") else { return }
        state.withLock { state in
            state.events += 1
            if state.last != "all", event.id <= state.last {
                state.disordered.append("\(event.id) after \(state.last)")
            }
            state.last = event.id
            state.shown[event.sequenceID ?? event.id] = event.event == "message" ? event.message : nil
        }
    }
}
