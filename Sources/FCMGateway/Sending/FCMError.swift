import ChatDomain

/// A response of FCM with another status than 200.
///
/// Source: Google, "ErrorCode" and "Firebase Cloud Messaging error codes". A body may also be HTML or empty.
struct FCMError: Sendable, Hashable {
    let status: Int
    /// FCM's own code, such as `UNREGISTERED`. `nil` if the refusal is of Google's front end.
    let code: String?
    /// FCM's code, the general status, or `Status<n>`.
    let reason: String
    /// The explanation for people: the first field that breaks a rule, or the message.
    let explanation: String?

    init(status: Int, body: [UInt8]) {
        self.status = status
        let error = (try? JSONValue(parsing: body))?.object?["error"]?.object
        let details = error?["details"]?.array?.compactMap(\.object) ?? []
        func detail(_ type: String, _ member: String) -> JSONValue? {
            // An old name of the type is FcmErrorCode.
            details.first { $0["@type"]?.text?.contains(type) == true && $0[member] != nil }?[member]
        }
        code = detail("FcmError", "errorCode")?.text.map(Self.word)
        let frontEnd = detail("ErrorInfo", "reason")?.text ?? error?["status"]?.text
        reason = code ?? frontEnd.map(Self.word) ?? "Status\(status)"
        let violation = detail("BadRequest", "fieldViolations")?.array?.first?.object
        explanation = (violation?["description"]?.text ?? error?["message"]?.text)?.printableASCII(limit: 200)
    }

    private static func word(_ text: String) -> String {
        text.printableASCII(limit: 64).filter { $0 != " " }
    }
}
