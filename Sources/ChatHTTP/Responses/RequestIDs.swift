import ChatDomain
import HTTPTypes
import Logging

/// By which a request is found in the log, here and in other systems.
struct RequestIDs: Sendable, Hashable {
    /// In `X-Request-Id`, and in every log line of the request.
    var request = ""
    /// The trace that the request is a part of, as the client named it; in every log line, too.
    var trace: String?

    init() {}

    /// The ids that the client gave, as far as they are any.
    /// - Parameter fallback: where it gave no id.
    init(_ headers: HTTPFields, otherwise fallback: String) {
        request = Self.requestID(headers) ?? fallback
        trace = Self.traceID(headers)
    }

    func metadata(_ more: Logger.Metadata) -> Logger.Metadata {
        var metadata = more
        metadata[LogKeys.requestID] = "\(request)"
        if let trace { metadata[LogKeys.trace] = "\(trace)" }
        return metadata
    }

    private static let requestIDCharacters = Set(
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:/+=@".utf8)

    /// Nil if it is too long or has characters that do not belong into a log line.
    private static func requestID(_ headers: HTTPFields) -> String? {
        guard let id = headers.first(.requestID), (1...HTTPLimits.requestID).contains(id.utf8.count),
            id.utf8.allSatisfy(requestIDCharacters.contains)
        else { return nil }
        return id
    }

    /// The trace id of `traceparent` (W3C Trace Context §3.2); nil where that is malformed, or there is more than one.
    ///
    /// `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`: version, trace, parent, flags. Later versions may have more
    /// behind another hyphen.
    private static func traceID(_ headers: HTTPFields) -> String? {
        guard let text = headers.first(.traceParent), text.utf8.count >= traceParentLength,
            headers.lazy.filter({ $0.name == .traceParent }).count == 1
        else { return nil }
        let bytes = Array(text.utf8.prefix(traceParentLength + 1))
        let fields = bytes.prefix(traceParentLength).split(
            separator: UInt8(ascii: "-"), omittingEmptySubsequences: false)
        guard fields.map(\.count) == [2, 32, 16, 2], Array(fields.joined()).withUnsafeBytes(Hex.isLowerCase),
            !fields[0].elementsEqual("ff".utf8),
            ![fields[1], fields[2]].contains(where: { $0.allSatisfy { $0 == UInt8(ascii: "0") } }),
            bytes.count == traceParentLength
                || (!fields[0].elementsEqual("00".utf8) && bytes[traceParentLength] == UInt8(ascii: "-"))
        else { return nil }
        return String(decoding: fields[1], as: UTF8.self)
    }

    private static let traceParentLength = 55
}
