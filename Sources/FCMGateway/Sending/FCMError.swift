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

/// Notices when FCM limits the whole app and not single devices. A value.
///
/// The app stays limited until FCM accepts a push after the pause. One device with a 429 then pauses the app again, so that
/// the probe after a pause does not count as a success.
struct QuotaWatch: Sendable {
    /// The number of devices with a 429 within ``window`` from which the app pauses.
    static let devices = 3
    static let window = Duration.seconds(60)
    /// The maximum number of devices to remember.
    private static let limit = 16

    private var limited: [Address: Timestamp] = [:]
    /// The end of the app's pause. `nil` if the app is not limited.
    private var pausedUntil: Timestamp?

    /// Records a 429.
    ///
    /// - Parameter end: The time until which FCM wants no pushes.
    /// - Returns: Whether the app is limited.
    mutating func record(_ address: Address, until end: Timestamp, at now: Timestamp) -> Bool {
        limited = limited.filter { $0.value + Self.window > now && $0.value <= now }
        if limited.count < Self.limit || limited[address] != nil { limited[address] = now }
        if limited.count >= Self.devices || pausedUntil != nil { pausedUntil = max(end, pausedUntil ?? end) }
        return pausedUntil != nil
    }

    /// Records that FCM has accepted a push. During the pause, that is an answer to an earlier push.
    mutating func accepted(at now: Timestamp) {
        if let end = pausedUntil, end <= now { pausedUntil = nil }
    }
}
