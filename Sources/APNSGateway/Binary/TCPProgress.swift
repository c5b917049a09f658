import NIOCore

/// The bytes of a connection that were written and acknowledged, as the system counts them (ciphertext, without
/// retransmissions).
struct TCPProgress: Sendable, Hashable {
    /// The number of bytes that the system has accepted from the relay.
    var written: UInt64
    /// The number of bytes that the peer's system has acknowledged.
    var acknowledged: UInt64

    /// Space for Linux's `struct tcp_info`, which grows from version to version. The system fills the fields that it
    /// knows.
    private typealias Storage = (
        UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64,
        UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64,
        UInt64, UInt64, UInt64, UInt64
    )

    /// Offsets in `struct tcp_info` of linux/tcp.h.
    private enum Offset {
        static let bytesAcked = 120  // u64, Linux 4.1
        static let notsentBytes = 144  // u32, Linux 4.6
        static let bytesSent = 200  // u64, Linux 4.19
        static let bytesRetrans = 208  // u64, Linux 4.19
    }
    private static let level = 6  // IPPROTO_TCP
    private static let name: CInt = 11  // TCP_INFO

    /// Reads the counters on the channel's event loop. `nil` if the system has none.
    static func read(_ channel: any Channel) -> EventLoopFuture<TCPProgress?> {
        guard let provider = channel as? any SocketOptionProvider else {
            return channel.eventLoop.makeSucceededFuture(nil)
        }
        let info: EventLoopFuture<Storage> = provider.unsafeGetSocketOption(
            level: .init(rawValue: CInt(level)), name: .init(rawValue: name))
        return info.map { storage -> TCPProgress? in
            withUnsafeBytes(of: storage) { bytes in
                let sent = bytes.load(fromByteOffset: Offset.bytesSent, as: UInt64.self)
                let repeated = bytes.load(fromByteOffset: Offset.bytesRetrans, as: UInt64.self)
                let waiting = bytes.load(fromByteOffset: Offset.notsentBytes, as: UInt32.self)
                let acknowledged = bytes.load(fromByteOffset: Offset.bytesAcked, as: UInt64.self)
                guard sent > 0 else { return nil }
                return TCPProgress(written: sent &- repeated &+ UInt64(waiting), acknowledged: acknowledged)
            }
        }.flatMapErrorThrowing { _ in nil }
    }
}

extension TCPProgress {
    /// The value on a system without the counters.
    static let unknown = TCPProgress(written: 0, acknowledged: 0)
}
