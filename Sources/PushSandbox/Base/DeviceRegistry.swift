import Foundation
import PushWire

/// A simulated device with one app, encoded as in the response to `GET /devices`.
struct SandboxDevice: Sendable, Hashable, Encodable {
    enum Environment: String, Sendable, Hashable, Encodable {
        case development
        case production
    }

    /// The device's id: from 1, in the order of creation.
    let id: Int
    let token: [UInt8]
    /// The app's topic, as the client certificate names it.
    let topic: String
    /// Apple's environment to which the token belongs. The sandbox simulates development.
    let environment: Environment
    /// The time at which the token expires. `nil` if it never expires.
    let expiresAt: Date?
    /// The major version of the device's system. `nil` if it is a current one.
    let system: Int?
    /// The time of the app's latest installation.
    let createdAt: Date
    /// The time at which the app was removed. `nil` while it is installed.
    fileprivate(set) var removedAt: Date?

    private enum CodingKeys: String, CodingKey {
        case id, token, topic, environment, system
        case createdAt = "created_at"
        case expiresAt = "expires_at"
        case removedAt = "removed_at"
    }

    func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: CodingKeys.self)
        try fields.encode(id, forKey: .id)
        try fields.encode(token.hex, forKey: .token)
        try fields.encode(topic, forKey: .topic)
        if environment != .development { try fields.encode(environment, forKey: .environment) }
        try fields.encodeIfPresent(system, forKey: .system)
        try fields.encode(createdAt.rfc3339, forKey: .createdAt)
        try fields.encodeIfPresent(expiresAt?.rfc3339, forKey: .expiresAt)
        try fields.encodeIfPresent(removedAt?.rfc3339, forKey: .removedAt)
    }
}

/// The devices that were created through the control API. Removed devices stay, so that their tokens remain rejected.
struct DeviceRegistry: Sendable {
    /// The maximum number of devices, including removed ones.
    static let limit = 100_000
    /// The size in bytes of a token that the sandbox creates.
    static let tokenSize = 32

    private var devices: [SandboxDevice] = []
    private var indices: [[UInt8]: Int] = [:]

    var count: Int { devices.count }
    private(set) var installedCount = 0

    /// The device with this token, even if it was removed.
    subscript(token: [UInt8]) -> SandboxDevice? {
        guard !indices.isEmpty, let index = indices[token] else { return nil }
        return devices[index]
    }

    /// Whether the token is all zeros. No device has such a token, neither in the sandbox nor at Apple.
    static func isAllZeros(_ token: [UInt8]) -> Bool { token.allSatisfy { $0 == 0 } }

    /// Whether notifications to this token reach the topic's app. `nil` if the token is unknown.
    func isInstalled(_ token: [UInt8], topic: String?, at now: Date) -> Bool? {
        guard let device = self[token] else { return Self.isAllZeros(token) ? false : nil }
        return device.environment == .development && device.removedAt == nil && device.topic == topic
            && device.expiresAt.map { $0 > now } != false
    }

    /// Installs the app on a device. If the token is known, reinstalls the app there with the new values.
    mutating func install(
        token: [UInt8], topic: String, environment: SandboxDevice.Environment = .development, expiresAt: Date? = nil,
        system: Int? = nil, at now: Date
    ) throws(LimitReached) -> SandboxDevice {
        let index = indices[token] ?? devices.count
        guard index < Self.limit else {
            throw LimitReached(
                text: "there are \(Self.limit) devices, which is the limit; restart the sandbox to remove them")
        }
        let device = SandboxDevice(
            id: index + 1, token: token, topic: topic, environment: environment, expiresAt: expiresAt, system: system,
            createdAt: now, removedAt: nil)
        if index == devices.count {
            indices[token] = index
            devices.append(device)
            installedCount += 1
        } else {
            if devices[index].removedAt != nil { installedCount += 1 }
            devices[index] = device
        }
        return device
    }

    /// Removes the app.
    /// - Returns: The device, and whether this call removed the app. `nil` if the token is unknown.
    mutating func remove(token: [UInt8], at now: Date) -> (device: SandboxDevice, removedNow: Bool)? {
        guard let index = indices[token] else { return nil }
        guard devices[index].removedAt == nil else { return (devices[index], false) }
        devices[index].removedAt = now
        installedCount -= 1
        return (devices[index], true)
    }

    /// Returns at most `limit` devices with an id above `since`, and the `since` of the next page.
    func page(since: Int, limit: Int) -> (devices: [SandboxDevice], next: Int) {
        let page = devices.dropFirst(max(0, since)).prefix(limit)
        return (Array(page), page.last?.id ?? devices.count)
    }
}

/// Counts notifications per device and second.
struct DeviceRate: Sendable {
    /// The maximum number of devices that are counted in one second. Notifications to further devices are not counted.
    private static let limit = 100_000

    private var second: Int64 = 0
    private var counts: [[UInt8]: Int] = [:]

    /// Counts one notification.
    /// - Returns: The number of notifications to this token in the current second, including this one.
    mutating func count(_ token: [UInt8], at now: Date) -> Int {
        let current = Int64(now.timeIntervalSince1970.rounded(.down))
        if current != second {
            second = current
            counts.removeAll(keepingCapacity: true)
        }
        guard counts.count < Self.limit || counts[token] != nil else { return 1 }
        counts[token, default: 0] += 1
        return counts[token, default: 0]
    }
}

/// Parses device tokens.
enum TokenText {
    /// The maximum size of a token in bytes. Apple never named a larger one.
    static let maxSize = BinaryNotification.longestToken

    /// Parses a token in any form that Apple's documents print: with spaces, angle brackets, and digits in either case.
    /// - Returns: The token. `nil` unless the text is 1 to ``maxSize`` bytes in hexadecimal digits.
    static func bytes(of text: some StringProtocol) -> [UInt8]? {
        // A byte takes three characters if spaces separate the bytes. Allow four.
        guard text.utf8.count <= 4 * maxSize else { return nil }
        var digits: [UInt8] = []
        for character in text.utf8 where !" <>".utf8.contains(character) {
            guard let digit = character.hexDigit else { return nil }
            digits.append(digit)
        }
        guard digits.count % 2 == 0, (1...maxSize).contains(digits.count / 2) else { return nil }
        return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }
}

extension Date {
    /// Parses a time in the form of RFC 3339, with or without fractions of a second.
    init?(rfc3339 text: String) {
        let date = [true, false].lazy.compactMap { fractions in
            try? Date(text, strategy: Date.ISO8601FormatStyle(includingFractionalSeconds: fractions))
        }.first
        guard let date else { return nil }
        self = date
    }

    /// The time in the form of HTTP's headers (RFC 9110 §5.6.7), in whole seconds.
    var httpDate: String {
        var (time, parts) = (time_t(timeIntervalSince1970), tm())
        gmtime_r(&time, &parts)
        let text = [CChar](unsafeUninitializedCapacity: 32) { buffer, count in
            count = strftime(buffer.baseAddress, buffer.count, "%a, %d %b %Y %H:%M:%S GMT", &parts)
        }
        return String(decoding: text.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }

    /// The time in the form of RFC 3339, in UTC and with milliseconds.
    var rfc3339: String { formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true)) }
}
