import APNSWire

/// What a connection has to do after a request.
struct ProviderVerdict: Sendable, Hashable {
    /// What is written; nil: nothing, and unless ``effect`` ends it the stream stays open.
    var answer: ProviderAnswer?
    var effect: Effect?
    /// The client showed that it is who it says.
    var isAuthenticated = false
    var outcome = Outcome.neutral
    /// Why a provider token was refused, for the log.
    var why: String?

    /// What a fault does beside, or instead of, the answer.
    enum Effect: Sendable, Hashable {
        /// The answer is written so many milliseconds later.
        case late(milliseconds: Int)
        /// Judge the request again after so many milliseconds, this time without faults.
        case postpone(milliseconds: Int)
        /// Neither read nor write for so many milliseconds (nil: ever); the answer comes after that.
        case pause(milliseconds: Int?)
        /// Allow so many streams, for so many milliseconds (nil: ever).
        case limitStreams(Int, milliseconds: Int?)
        case resetStream(code: Int)
        /// Streams above `lastStream` are not processed; the connection closes when the others have their answers.
        case goAway(reason: String?, lastStream: Int?, code: Int)
        /// Close, without an answer.
        case close
        /// Reset the connection.
        case reset
    }

    /// What the notification means for the number of streams that the connection may open.
    enum Outcome: Sendable, Hashable {
        case accepted
        /// Refused for a reason for which Apple lowers the limit: 4xx, but for 410 and 429.
        case refused
        case neutral
    }
}

/// An answer: 200, or a refusal.
struct ProviderAnswer: Sendable, Hashable {
    /// The value of `apns-id`.
    var id: String
    /// Nil: accepted.
    var refusal: ProviderRefusal?

    var status: Int { refusal?.status ?? 200 }

    /// Nil where there is none.
    var body: String? {
        guard let refusal, refusal.reason != ProviderFault.noReason else { return nil }
        return refusal.body
    }
}
