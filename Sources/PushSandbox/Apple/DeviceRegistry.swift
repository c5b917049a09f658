import Foundation
import PushWire

/// A simulated device with one app, encoded as in the response to `GET /devices`.
struct SandboxDevice: Sendable, Hashable, JSONRecord, RegistryItem {
    static let plural = "devices"

    let id: Int
    let token: [UInt8]
    /// The app's topic, as the client certificate names it.
    let topic: String
    /// Apple's environment to which the token belongs. The sandbox simulates development.
    let environment: PushEnvironment
    /// The time at which the token expires. `nil` if it never expires.
    let expiresAt: Date?
    /// The major version of the device's system. `nil` if it is a current one.
    let system: Int?
    /// The time of the app's latest installation.
    let createdAt: Date
    /// The time at which the app was removed. `nil` while it is installed.
    var removedAt: Date?

    var key: [UInt8] { token }

    var json: JSONMembers {
        [
            "id": id, "token": token.hex, "topic": topic,
            "environment": environment == .development ? nil : environment,
            "system": system, "created_at": createdAt, "expires_at": expiresAt, "removed_at": removedAt,
        ]
    }

    /// Whether the token is all zeros. No device has such a token, neither in the sandbox nor at Apple.
    static func isAllZeros(_ token: [UInt8]) -> Bool { token.allSatisfy { $0 == 0 } }
}

/// The devices that were created through the control API.
typealias DeviceRegistry = Registry<SandboxDevice>

extension Registry<SandboxDevice> {
    /// Whether notifications to this token reach the topic's app. `nil` if the token is unknown.
    func isInstalled(_ token: [UInt8], topic: String?, at now: Date) -> Bool? {
        guard let device = self[token] else { return Item.isAllZeros(token) ? false : nil }
        return device.environment == .development && device.removedAt == nil && device.topic == topic
            && device.expiresAt.map { $0 > now } != false
    }

    /// Installs the app on a device. If the token is known, reinstalls the app there with the new values.
    mutating func install(
        token: [UInt8], topic: String, environment: PushEnvironment = .development, expiresAt: Date? = nil,
        system: Int? = nil, at now: Date
    ) throws(LimitReached) -> SandboxDevice {
        try add(token) { id in
            SandboxDevice(
                id: id, token: token, topic: topic, environment: environment, expiresAt: expiresAt, system: system,
                createdAt: now)
        }
    }

    /// Removes the app.
    /// - Returns: The device, and whether this call removed the app. `nil` if the token is unknown.
    mutating func remove(token: [UInt8], at now: Date) -> (device: SandboxDevice, removedNow: Bool)? {
        guard let index = index(of: token) else { return nil }
        let removedNow = remove(index: index, at: now)
        return (items[index], removedNow)
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
