public import Foundation

#if canImport(ActivityKit) && os(iOS)
public import ActivityKit
#endif

/// The attributes of a Live Activity that needs no type of the app's own: a title, a text, a progress, steps and an end.
///
/// The relay's call `POST /v1/activities` starts activities of this type unless it names another. With ActivityKit, the
/// type is an `ActivityAttributes`.
public struct PushChatActivityAttributes: Sendable, Hashable, Codable {
    /// The type's name, as the call names it in `type`.
    public static let typeName = "PushChatActivityAttributes"

    /// The content that updates change. All members are optional, and unknown members are ignored.
    public struct ContentState: Sendable, Hashable, Codable {
        /// The steps of something that is done one after another.
        public struct Steps: Sendable, Hashable, Codable {
            /// The number of steps that are done.
            public var done: Int
            /// The number of all steps.
            public var total: Int

            public init(done: Int, total: Int) {
                self.done = done
                self.total = total
            }
        }

        public var title: String?
        public var text: String?
        /// The progress, from 0 to 1.
        public var progress: Double?
        public var steps: Steps?
        /// The time at which the activity is expected to end. The JSON has it as `ends_at` in Unix seconds, because
        /// ActivityKit's decoder knows no other form for certain.
        public var endsAt: Date?

        public init(
            title: String? = nil, text: String? = nil, progress: Double? = nil, steps: Steps? = nil,
            endsAt: Date? = nil
        ) {
            self.title = title
            self.text = text
            self.progress = progress
            self.steps = steps
            self.endsAt = endsAt
        }

        private enum CodingKeys: String, CodingKey {
            case title, text, progress, steps
            case endsAt = "ends_at"
        }

        public init(from decoder: any Decoder) throws {
            let members = try decoder.container(keyedBy: CodingKeys.self)
            title = try members.decodeIfPresent(String.self, forKey: .title)
            text = try members.decodeIfPresent(String.self, forKey: .text)
            progress = try members.decodeIfPresent(Double.self, forKey: .progress)
            steps = try members.decodeIfPresent(Steps.self, forKey: .steps)
            endsAt = try members.decodeIfPresent(Double.self, forKey: .endsAt).map(Date.init(timeIntervalSince1970:))
        }

        public func encode(to encoder: any Encoder) throws {
            var members = encoder.container(keyedBy: CodingKeys.self)
            try members.encodeIfPresent(title, forKey: .title)
            try members.encodeIfPresent(text, forKey: .text)
            try members.encodeIfPresent(progress, forKey: .progress)
            try members.encodeIfPresent(steps, forKey: .steps)
            try members.encodeIfPresent(endsAt?.timeIntervalSince1970, forKey: .endsAt)
        }
    }

    /// The activity's tag, which the relay adds to the attributes of a start. The app needs it to report the update token.
    public var tag: String
    /// The name of the activity, which does not change.
    public var name: String?

    public init(tag: String, name: String? = nil) {
        self.tag = tag
        self.name = name
    }
}

#if canImport(ActivityKit) && os(iOS)
@available(iOS 16.1, *)
extension PushChatActivityAttributes: ActivityAttributes {}
#endif
