import Foundation
import PushWire

/// Devices and the feedback service.
extension SandboxState {
    /// Removes the app from the device. Its token is rejected from now on, and the feedback service lists it.
    ///
    /// An unknown token counts as a device of `topic`, unless the sandbox is strict.
    /// - Returns: The device. `nil` if there is no such device.
    mutating func removeDevice(
        token: [UInt8], topic: String, at now: Date
    ) throws(LimitReached) -> SandboxDevice? {
        if !configuration.strict, devices[token] == nil {
            _ = try devices.install(token: token, topic: topic, at: now)
        }
        guard let (device, removedNow) = devices.remove(token: token, at: now) else { return nil }
        if removedNow {
            let seconds = UInt32(clamping: Int64(now.timeIntervalSince1970))
            feedback.append(FeedbackTuple(timestamp: seconds, token: token), topic: device.topic)
        }
        return device
    }

    /// Returns the feedback list for a reader. `nil` if the reader's certificate names no topic.
    mutating func readFeedback(topic: String?) -> FeedbackList.Reading? {
        guard let topic else { return nil }
        let reading = feedback.reading(topic: topic)
        if configuration.clearFeedbackOnHandshake { clearFeedback(reading) }
        return reading
    }

    mutating func feedbackSent(tuples: Int) {
        counts.feedback.sent += tuples
    }

    /// Clears the tuples that a reader has received completely.
    mutating func clearFeedback(_ reading: FeedbackList.Reading) {
        let before = feedback.count
        feedback.clear(reading)
        counts.feedback.cleared += before - feedback.count
    }
}
