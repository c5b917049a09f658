import NIOCore

/// The bytes with which every HTTP/2 client begins (RFC 9113 §3.4).
///
/// They identify a client that speaks HTTP/2 without having negotiated it by ALPN.
enum HTTP2Preface {
    static let bytes = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8)

    /// The result of comparing a client's first bytes with the preface.
    enum Verdict: Equatable {
        /// The bytes are the beginning of the preface.
        case incomplete
        case http2
        /// The bytes differ from the preface.
        case other
    }

    static func verdict(on received: ByteBuffer) -> Verdict {
        let first = received.readableBytesView.prefix(bytes.count)
        guard first.elementsEqual(bytes.prefix(first.count)) else { return .other }
        return first.count == bytes.count ? .http2 : .incomplete
    }

    /// Returns the first bytes as readable text, at most as many as the preface has. Bytes other than printable ASCII
    /// become dots.
    static func shown(_ received: ByteBuffer) -> String {
        let characters = received.readableBytesView.prefix(bytes.count).map { byte in
            (0x20..<0x7F).contains(byte) ? Character(UnicodeScalar(byte)) : "."
        }
        return String(characters)
    }
}
