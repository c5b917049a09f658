package import Foundation

/// A simulated device with one app.
package struct SandboxDevice: Sendable, Hashable {
    package enum Environment: String, Sendable, Hashable, CaseIterable {
        case development
        case production
    }

    /// From 1, in the order of making.
    package let id: Int
    package let token: [UInt8]
    /// The app, as the client certificate names it.
    package let topic: String
    /// To which of Apple's environments the token belongs. The sandbox plays development.
    package var environment = Environment.development
    /// From when on the token has expired; nil: never.
    package var expiresAt: Date?
    /// When the app was installed, last.
    package internal(set) var createdAt: Date
    /// When the app was removed; nil while it is installed.
    package internal(set) var removedAt: Date?
}

/// The devices of which the sandbox was told. Removed ones stay, so that their tokens stay refused.
package struct DeviceRegistry: Sendable {
    /// Devices, removed ones too.
    package static let limit = 100_000
    /// Bytes of a token that the sandbox makes.
    static let tokenSize = 32

    /// What the registry knows of a token, asked for a topic.
    enum Standing: Hashable {
        case unknown
        case installed
        case removed
        /// The token is another app's.
        case otherTopic
        /// The token is for production.
        case otherEnvironment
        case expired
    }

    /// The registry is full.
    struct Full: Error {}

    private var devices: [SandboxDevice] = []
    private var places: [[UInt8]: Int] = [:]

    var count: Int { devices.count }
    private(set) var installedCount = 0

    /// The device with this token.
    subscript(token: [UInt8]) -> SandboxDevice? {
        guard !places.isEmpty, let place = places[token] else { return nil }
        return devices[place]
    }

    func standing(of token: [UInt8], topic: String?, at now: Date) -> Standing {
        guard let device = self[token] else { return .unknown }
        if device.environment != .development { return .otherEnvironment }
        if device.removedAt != nil { return .removed }
        if let expiry = device.expiresAt, expiry <= now { return .expired }
        return device.topic == topic ? .installed : .otherTopic
    }

    /// Installs the app; where it was removed before, once more, under the same token.
    mutating func install(
        token: [UInt8], topic: String, environment: SandboxDevice.Environment = .development, expiresAt: Date? = nil,
        at now: Date
    ) throws(Full) -> SandboxDevice {
        guard let place = places[token] else {
            guard devices.count < Self.limit else { throw Full() }
            let device = SandboxDevice(
                id: devices.count + 1, token: token, topic: topic, environment: environment, expiresAt: expiresAt,
                createdAt: now, removedAt: nil)
            places[token] = devices.count
            devices.append(device)
            installedCount += 1
            return device
        }
        if devices[place].removedAt != nil { installedCount += 1 }
        devices[place] = SandboxDevice(
            id: devices[place].id, token: token, topic: topic, environment: environment, expiresAt: expiresAt,
            createdAt: now, removedAt: nil)
        return devices[place]
    }

    /// Removes the app.
    /// - Returns: the device, and whether it was this call that removed it; nil for a token of which nothing is known.
    mutating func remove(token: [UInt8], at now: Date) -> (device: SandboxDevice, removedNow: Bool)? {
        guard let place = places[token] else { return nil }
        guard devices[place].removedAt == nil else { return (devices[place], false) }
        devices[place].removedAt = now
        installedCount -= 1
        return (devices[place], true)
    }

    /// At most `limit` devices with a higher id than `since`, and the id to ask from next.
    func page(since: Int, limit: Int) -> (devices: [SandboxDevice], next: Int) {
        let page = devices.dropFirst(max(0, since)).prefix(limit)
        return (Array(page), page.last?.id ?? devices.count)
    }
}
