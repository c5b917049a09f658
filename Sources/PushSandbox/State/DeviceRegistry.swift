import APNSWire
import Foundation

/// A simulated device with one app, in JSON as `GET /devices` shows it.
struct SandboxDevice: Sendable, Hashable, Encodable {
    enum Environment: String, Sendable, Hashable, Encodable {
        case development
        case production
    }

    /// From 1, in the order of making.
    let id: Int
    let token: [UInt8]
    /// The app, as the client certificate names it.
    let topic: String
    /// To which of Apple's environments the token belongs. The sandbox plays development.
    let environment: Environment
    /// From when on the token has expired; nil: never.
    let expiresAt: Date?
    /// When the app was installed, last.
    let createdAt: Date
    /// When the app was removed; nil while it is installed.
    fileprivate(set) var removedAt: Date?

    private enum CodingKeys: String, CodingKey {
        case id, token, topic, environment
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
        try fields.encode(createdAt.rfc3339, forKey: .createdAt)
        try fields.encodeIfPresent(expiresAt?.rfc3339, forKey: .expiresAt)
        try fields.encodeIfPresent(removedAt?.rfc3339, forKey: .removedAt)
    }
}

/// The devices that were made through the control API. Removed ones stay, so that their tokens stay refused.
struct DeviceRegistry: Sendable {
    /// Devices, removed ones too.
    static let limit = 100_000
    /// Bytes of a token that the sandbox makes.
    static let tokenSize = 32

    private var devices: [SandboxDevice] = []
    private var indices: [[UInt8]: Int] = [:]

    var count: Int { devices.count }
    private(set) var installedCount = 0

    /// The device with this token.
    subscript(token: [UInt8]) -> SandboxDevice? {
        guard !indices.isEmpty, let index = indices[token] else { return nil }
        return devices[index]
    }

    /// Whether a token is none that a device could have, for Apple too: all zeros.
    static func isImpossible(_ token: [UInt8]) -> Bool { token.allSatisfy { $0 == 0 } }

    /// Whether notifications for the topic's app reach the device; nil: nothing is known of the token.
    func isInstalled(_ token: [UInt8], topic: String?, at now: Date) -> Bool? {
        guard let device = self[token] else { return Self.isImpossible(token) ? false : nil }
        return device.environment == .development && device.removedAt == nil && device.topic == topic
            && device.expiresAt.map { $0 > now } != false
    }

    /// Installs the app; where it was removed before, once more, under the same token.
    mutating func install(
        token: [UInt8], topic: String, environment: SandboxDevice.Environment = .development, expiresAt: Date? = nil,
        at now: Date
    ) throws(LimitReached) -> SandboxDevice {
        let index = indices[token] ?? devices.count
        guard index < Self.limit else {
            throw LimitReached(text: "there are \(Self.limit) devices already, and no more can be made")
        }
        let device = SandboxDevice(
            id: index + 1, token: token, topic: topic, environment: environment, expiresAt: expiresAt, createdAt: now,
            removedAt: nil)
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
    /// - Returns: the device, and whether it was this call that removed it; nil for a token of which nothing is known.
    mutating func remove(token: [UInt8], at now: Date) -> (device: SandboxDevice, removedNow: Bool)? {
        guard let index = indices[token] else { return nil }
        guard devices[index].removedAt == nil else { return (devices[index], false) }
        devices[index].removedAt = now
        installedCount -= 1
        return (devices[index], true)
    }

    /// At most `limit` devices with a higher id than `since`, and the id to ask from next.
    func page(since: Int, limit: Int) -> (devices: [SandboxDevice], next: Int) {
        let page = devices.dropFirst(max(0, since)).prefix(limit)
        return (Array(page), page.last?.id ?? devices.count)
    }
}

/// Counts notifications by device and second.
struct DeviceRate: Sendable {
    /// Devices that are counted in a second; the rest pass uncounted.
    private static let limit = 100_000

    private var second: Int64 = 0
    private var counts: [[UInt8]: Int] = [:]

    /// Counts one more.
    /// - Returns: how many there have been in this second, this one included.
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

/// Reads device tokens as text.
enum TokenText {
    /// Bytes of a token: Apple never named more.
    static let longest = BinaryNotification.longestToken

    /// The bytes of a token in any form that Apple's documents print: spaces, angle brackets, either case.
    /// - Returns: nil for anything else than 1 to ``longest`` bytes in hexadecimal digits.
    static func bytes(of text: some StringProtocol) -> [UInt8]? {
        // Three characters a byte with spaces, and some room.
        guard text.utf8.count <= 4 * longest else { return nil }
        var digits: [UInt8] = []
        for character in text.utf8 where !" <>".utf8.contains(character) {
            guard let digit = character.hexDigit else { return nil }
            digits.append(digit)
        }
        guard digits.count % 2 == 0, (1...longest).contains(digits.count / 2) else { return nil }
        return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }
}

extension Date {
    /// Reads RFC 3339, with or without fractions of a second.
    init?(rfc3339 text: String) {
        let date = [true, false].lazy.compactMap { fractions in
            try? Date(text, strategy: Date.ISO8601FormatStyle(includingFractionalSeconds: fractions))
        }.first
        guard let date else { return nil }
        self = date
    }

    /// RFC 3339 in UTC, with milliseconds.
    var rfc3339: String { formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true)) }
}
