/// The limits of requests to the control API.
enum ControlLimits {
    /// The maximum size of a request body in bytes.
    static let body = 64 << 10
    /// The maximum size of a topic in bytes.
    static let topic = 255
    /// The maximum number of Live Activities. The oldest are forgotten.
    static let activities = 10_000
    /// The maximum number of states of an activity. The oldest are forgotten.
    static let activityStates = 100
    /// The maximum size of all activities' contents in bytes. The oldest activities are forgotten.
    static let activityBytes = 16 << 20
    /// The maximum number of channels of all apps together.
    static let channels = 20_000
    /// The maximum size of a channel's id in bytes. Apple's have 24; a longer one than this is BadChannelId.
    static let channelID = 128
    /// The maximum size of all messages that channels keep, in bytes. Further messages are not kept.
    static let channelBytes = 16 << 20
}
