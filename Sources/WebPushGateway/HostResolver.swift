package import ChatDomain
import Foundation
import PushWire
import Synchronization

/// Looks names up as the system does, which may take half a minute.
///
/// Each lookup has its thread, and a host has one lookup at a time. So a name server that does not respond
/// delays only the names that it serves.
package final class HostResolver: Sendable {
    /// The maximum number of lookups under way.
    private static let limit = 100

    private let lookup: @Sendable (_ host: String) throws -> [IPAddress]
    private let underWay = Mutex<[String: Task<[IPAddress], any Error>]>([:])

    package init(_ lookup: @escaping @Sendable (_ host: String) throws -> [IPAddress] = HostResolver.ask) {
        self.lookup = lookup
    }

    /// Returns the addresses of a host. Callers that ask for a host at the same time share one lookup.
    @Sendable package func addresses(_ host: String) async throws -> [IPAddress] {
        let found = try underWay.withLock { lookups in
            if let task = lookups[host] { return task }
            guard lookups.count < Self.limit else {
                throw WebPushError("host", "was not looked up, because \(Self.limit) lookups are under way")
            }
            let task = Task {
                defer { self.underWay.withLock { $0[host] = nil } }
                return try await withCheckedThrowingContinuation { continuation in
                    Thread.detachNewThread { continuation.resume(with: Result { try self.lookup(host) }) }
                }
            }
            lookups[host] = task
            return task
        }
        return try await found.value
    }

    @Sendable package static func ask(_ host: String) throws -> [IPAddress] {
        var hints = addrinfo()
        hints.ai_flags = AI_ADDRCONFIG
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var list: UnsafeMutablePointer<addrinfo>?
        let result = getaddrinfo(host, nil, &hints, &list)
        guard result == 0 else {
            throw WebPushError("host", "cannot be looked up: \(String(cString: gai_strerror(result)))")
        }
        defer { freeaddrinfo(list) }
        var addresses: [IPAddress] = []
        var next = list
        while let entry = next {
            if let address = IPAddress(numeric(entry.pointee)) { addresses.append(address) }
            next = entry.pointee.ai_next
        }
        return addresses
    }

    private static func numeric(_ entry: addrinfo) -> String {
        var text = [CChar](repeating: 0, count: Int(NI_MAXHOST))
        getnameinfo(entry.ai_addr, entry.ai_addrlen, &text, socklen_t(text.count), nil, 0, NI_NUMERICHOST)
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}
