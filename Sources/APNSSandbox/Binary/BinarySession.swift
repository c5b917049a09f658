import APNSWire
import Foundation
import NIOCore

/// One connection of the binary protocol as a value: what was read and not yet judged, and whether its end is decided.
///
/// Bytes are parsed outside the world's lock and judged inside it, a whole read at a time.
struct BinarySession {
    var peer: BinaryPeer
    private var parser: BinaryNotificationParser
    /// Parsed and not judged yet; judged ones are before ``next``.
    private var batch: [BinaryNotification] = []
    private var next = 0
    private var malformed: BinaryNotificationParser.Malformed?
    /// The first of the batch was postponed by a fault, which has had it thereby.
    private var isPostponed = false

    init(peer: BinaryPeer, limits: BinaryNotificationParser.Limits) {
        self.peer = peer
        parser = BinaryNotificationParser(limits: limits)
    }

    mutating func append(_ bytes: inout ByteBuffer) {
        parser.append(&bytes)
    }

    /// Makes notifications of all bytes that are there.
    mutating func parse() {
        guard malformed == nil else { return }
        do throws(BinaryNotificationParser.Malformed) {
            while let notification = try parser.next() { batch.append(notification) }
        } catch {
            malformed = error
        }
    }

    /// Judges what was parsed, up to the first verdict other than ``BinaryVerdict/next``.
    mutating func judge(in state: inout SandboxState, at now: Date) -> BinaryVerdict {
        while next < batch.count {
            let verdict = state.judge(batch[next], from: peer, at: now, faults: !isPostponed)
            isPostponed = false
            switch verdict {
            case .next:
                next += 1
            case .postpone:
                isPostponed = true
                return verdict
            case .pause, .end, .reset:
                next += 1
                return verdict
            }
        }
        // Emptied at once: its payloads share the parser's storage, which could not be reused otherwise.
        batch.removeAll(keepingCapacity: true)
        next = 0
        guard let malformed else { return .next }
        return state.judge(malformed, from: peer, at: now)
    }

    /// Forgets what is there, after the end was decided.
    /// - Returns: the number of whole notifications forgotten; what follows one that could not be read has no number.
    mutating func discard() -> Int {
        parse()
        let count = batch.count - next
        batch = []
        next = 0
        return count
    }
}
