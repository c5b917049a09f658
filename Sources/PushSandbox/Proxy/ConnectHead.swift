import NIOCore
import PushWire

/// The recipient that a client names to the proxy.
struct ProxyTarget: Sendable, Hashable, CustomStringConvertible {
    /// The host's name in lower case, or an IP address without brackets.
    let host: String
    let port: Int

    /// Parses the target of CONNECT, for example `fcm.googleapis.com:443` (RFC 9112 §3.2.3).
    init(_ text: some StringProtocol) throws(ProxyRefusal) {
        let refusal = ProxyRefusal.malformed("The target must be a host and a port, such as fcm.googleapis.com:443.")
        guard let colon = text.lastIndex(of: ":"), let port = UInt16(text[colon...].dropFirst()), port > 0,
            text[colon...].dropFirst().utf8.allSatisfy({ (0x30...0x39).contains($0) })
        else { throw refusal }
        var host = text[..<colon].lowercased()
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = String(host.dropFirst().dropLast())
            guard host.contains(":"), host.utf8.allSatisfy({ $0.isHexDigit || ":.".utf8.contains($0) }) else {
                throw refusal
            }
        } else {
            // A full name may end with the root's point.
            if host.hasSuffix(".") { host.removeLast() }
            guard !host.isEmpty, host.utf8.allSatisfy({ $0.isURLSafe || $0 == UInt8(ascii: ".") }) else {
                throw refusal
            }
        }
        self.host = host
        self.port = Int(port)
    }

    var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

/// Parses the head of a request to the proxy, as its bytes arrive.
struct ConnectHead: Sendable {
    /// The maximum size of a head in bytes.
    static let maxSize = 8192
    private static let (lineFeed, carriageReturn) = (UInt8(ascii: "\n"), UInt8(ascii: "\r"))

    private var size = 0
    private var line: [UInt8] = []
    private var target: ProxyTarget?

    /// Reads bytes up to the end of the head. Later bytes, which belong to the tunnel, stay in the buffer.
    /// - Returns: The recipient. `nil` if the head is not complete.
    mutating func read(_ buffer: inout ByteBuffer) throws(ProxyRefusal) -> ProxyTarget? {
        while let byte: UInt8 = buffer.readInteger() {
            size += 1
            guard size <= Self.maxSize else { throw .tooLarge }
            guard byte == Self.lineFeed else {
                // The first byte of a TLS handshake ends here as well.
                guard byte >= 0x20 || byte == Self.carriageReturn || byte == UInt8(ascii: "\t"), byte != 0x7F else {
                    throw .malformed(
                        "The request is not HTTP. The proxy's address begins with http://, even for HTTPS.")
                }
                line.append(byte)
                continue
            }
            guard line.popLast() == Self.carriageReturn, !line.contains(Self.carriageReturn) else {
                throw .malformed("Each line of the head must end with CR and LF.")
            }
            let text = String(decoding: line, as: UTF8.self)
            line = []
            if target == nil {
                target = try Self.target(of: text)
            } else if text.isEmpty {
                return target
            } else {
                try Self.check(field: text)
            }
        }
        return nil
    }

    /// Parses the first line.
    private static func target(of line: String) throws(ProxyRefusal) -> ProxyTarget {
        let parts = line.split(separator: " ", omittingEmptySubsequences: false)
        guard parts.count == 3, isToken(parts[0]), ["HTTP/1.0", "HTTP/1.1"].contains(parts[2]) else {
            throw .malformed("The request must begin with CONNECT HOST:PORT HTTP/1.1.")
        }
        guard parts[0] == "CONNECT" else { throw .method }
        return try ProxyTarget(parts[1])
    }

    private static func check(field line: String) throws(ProxyRefusal) {
        guard let colon = line.firstIndex(of: ":"), isToken(line[..<colon]) else {
            throw .malformed("Each line of the head must have a name, a colon and a value.")
        }
    }

    /// Whether the text is a token (RFC 9110 §5.6.2).
    private static func isToken(_ text: some StringProtocol) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { $0.isURLSafe || "!#$%&'*+.^`|~".utf8.contains($0) }
    }
}

extension UInt8 {
    fileprivate var isHexDigit: Bool {
        switch self {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"): true
        default: false
        }
    }
}
