import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// A member whose session was verified if the relay requires one, and whose request was counted if it is a command. Only
/// ``ChatAPI`` admits members.
struct AdmittedMember: Sendable {
    let id: MemberID
    let session: UserSession?

    fileprivate init(id: MemberID, session: UserSession?) {
        self.id = id
        self.session = session
    }
}

extension ChatAPI {
    /// Performs a command whose fields were read.
    typealias Action = (_ member: AdmittedMember) async throws(ChatError) -> Response

    /// Enforces the member's rate limit, and requires a session if the relay does.
    func admit(_ claim: Call.Claim, _ call: Call, price: Int = 1) async throws(ChatError) -> AdmittedMember {
        try limiter.admit(claim.member, limit: call.settings.memberRate, price: price)
        return try await admit(claim.member, call.headers)
    }

    /// Requires a session if the relay does. The member's credentials for other apps live on with it.
    func admit(_ member: MemberID, _ headers: HTTPFields) async throws(ChatError) -> AdmittedMember {
        let session = try await session(headers)
        if let session { environment.stores.clients.hadSession(member, of: session.user) }
        return AdmittedMember(id: member, session: session)
    }

    /// A request whose form has been read.
    struct Call: Sendable {
        let form: FormFields
        let settings: ChatHTTPSettings
        let address: IPAddress?
        let headers: HTTPFields
        let ids: RequestIDs
        let received: Duration
        var wantsJSON: Bool

        /// The field that names the member in this request. Errors name the same field.
        var memberField: FormField { form.hasValue(.udid) || !form.has(.userID) ? .udid : .userID }

        /// A member that a request names. Only ``ChatAPI/admit(_:_:price:)`` reads its id.
        struct Claim: Sendable {
            fileprivate let member: MemberID
        }

        func claim() throws(ChatError) -> Claim {
            Claim(member: try MemberID(parsing: form.required(memberField), field: memberField.key))
        }

        /// Returns the request's description of its client.
        ///
        /// - Parameter isBrowser: Whether to take missing values from the `User-Agent`.
        func client(isBrowser: Bool = false) throws(ChatError) -> ClientInfo {
            let browser = isBrowser ? UserAgent(headers.first(.userAgent) ?? "") : nil
            return ClientInfo(
                address: address?.description, appVersion: try optional(.appVersion),
                osVersion: try optional(.osVersion) ?? browser?.system,
                deviceModel: try optional(.deviceModel) ?? browser?.browser)
        }

        /// Returns a field that may be absent or blank.
        func optional(_ field: FormField) throws(ChatError) -> String? {
            guard let text = try form.text(field) else { return nil }
            return try ClientInfo.text(text, field: field.key)
        }

        /// Returns a field of digits that may be absent or blank.
        func number(_ field: FormField, _ range: ClosedRange<Int64>, _ rule: String) throws(ChatError) -> Int64? {
            guard let text = try form.text(field) else { return nil }
            let digits = FieldText.trimmed(text)
            guard !digits.isEmpty else { return nil }
            guard let number = Int64(digits: digits), range.contains(number) else { throw .invalid(field.key, rule) }
            return number
        }

        /// Returns the number of items on a page.
        func limit() throws(ChatError) -> Int {
            let limits = HTTPLimits.page
            let limit = try number(
                .limit, Int64(limits.lowerBound)...Int64(limits.upperBound),
                "must be a whole number from \(limits.lowerBound) to \(limits.upperBound)")
            return limit.map { Int($0) } ?? HTTPLimits.defaultPage
        }

        func cursor() throws(ChatError) -> Int64? {
            try number(.cursor, 0...Int64.max, "must be the next of the previous page")
        }

        /// Returns the id of the message that the command concerns.
        func message() throws(ChatError) -> MessageID {
            guard let id = try number(.id, 0...MessageID.max, "must be a whole number, 0 or more") else {
                throw .missing(FormField.id.key)
            }
            return id
        }

        /// Returns the metadata of a log line: the request, its address, the first digits of the udid, and `more`.
        func metadata(_ member: AdmittedMember, _ more: Logger.Metadata) -> Logger.Metadata {
            var metadata = ids.metadata(more)
            metadata[LogKeys.member] = "\(member.id.text.prefix(8))…"
            metadata[LogKeys.address] = "\(address?.description ?? "unknown")"
            return metadata
        }
    }
}
