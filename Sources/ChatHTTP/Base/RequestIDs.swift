import ChatDomain
import HTTPTypes
import Logging

/// The ids that identify a request in this log and in other systems.
struct RequestIDs: Sendable, Hashable {
    /// The value of `X-Request-Id`. Every log line of the request contains it.
    var request = ""
    /// The trace id that the client sent. Every log line of the request contains it. `nil` if the client sent no valid
    /// one.
    var trace: String?

    init() {}

    /// Reads the client's ids, if they are valid.
    ///
    /// - Parameter fallback: The request id to use if the client sent no valid one.
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

    /// Returns the client's request id. `nil` if it is missing, too long, or has characters that are unsafe in a log
    /// line.
    private static func requestID(_ headers: HTTPFields) -> String? {
        guard let id = headers.first(.requestID), (1...HTTPLimits.requestID).contains(id.utf8.count),
            id.utf8.allSatisfy(requestIDCharacters.contains)
        else { return nil }
        return id
    }

    /// Returns the trace id of `traceparent` (W3C Trace Context §3.2). `nil` if the header is missing, malformed, or
    /// not unique.
    ///
    /// Example: `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`: version, trace, parent, flags. Later
    /// versions may append more after another hyphen.
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
