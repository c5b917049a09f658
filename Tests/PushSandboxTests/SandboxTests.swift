import Foundation
import Logging
import NIOCore
import PushWire
import ServiceLifecycle
import TestSupport
import Testing

@testable import PushSandbox

@Suite("The sandbox", .timeLimit(.minutes(10)))
struct SandboxTests {
    @Test("The error names a port in use and the flag that changes it", arguments: SandboxPort.allCases)
    func takenPort(listener: SandboxPort) async throws {
        try await TestSandbox.with { sandbox in
            try await withTemporaryDirectory { directory in
                var configuration = SandboxConfiguration.forTests(directory: directory)
                let port = sandbox.addresses[listener].port
                configuration.ports[listener] = port
                let second = Sandbox(configuration: configuration, logger: .silent)
                await #expect {
                    _ = try await second.start()
                } throws: { error in
                    "\(error)".contains("port \(port)") && "\(error)".contains("--\(listener.rawValue)-port")
                }
            }
        }
    }

    @Test("An invalid port number is refused", arguments: [-1, 65_536])
    func noPort(port: Int) async throws {
        try await withTemporaryDirectory { directory in
            var configuration = SandboxConfiguration.forTests(directory: directory)
            configuration.ports[.binary] = port
            let sandbox = Sandbox(configuration: configuration, logger: .silent)
            await #expect(throws: SandboxError.self) { _ = try await sandbox.start() }
        }
    }

    @Test("The error names an address that is not this machine's")
    func foreignAddress() async throws {
        try await withTemporaryDirectory { directory in
            var configuration = SandboxConfiguration.forTests(directory: directory)
            configuration.host = "192.0.2.1"
            let sandbox = Sandbox(configuration: configuration, logger: .silent)
            await #expect {
                _ = try await sandbox.start()
            } throws: { error in
                "\(error)".contains("192.0.2.1") && "\(error)".contains("--host")
            }
        }
    }

    @Test("As a service it runs until its group stops, and then closes all connections")
    func service() async throws {
        try await TestSandbox.with { sandbox in
            let group = ServiceGroup(services: [sandbox.sandbox], logger: .silent)
            async let running: Void = group.run()
            let client = try await sandbox.gateway()
            try await client.send(.good(1))
            // Then the server has finished its handshake as well. The client may finish its own first.
            try await eventually { try await sandbox.notifications().count == 1 }
            let hanging = try await sandbox.gateway()
            try await hanging.stopReading()
            await group.triggerGracefulShutdown()
            try await running
            #expect(try await client.end().isClean)
            hanging.channel.close(promise: nil)
        }
    }

    @Test("Cancellation closes all connections as well")
    func cancellation() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.gateway()
            try await client.send(.good(1))
            try await eventually { try await sandbox.notifications().count == 1 }
            let running = Task { try await sandbox.sandbox.run() }
            running.cancel()
            try await running.value
            #expect(try await client.end().isClean)
        }
    }

    @Test("A sandbox cannot be started twice")
    func twice() async throws {
        try await TestSandbox.with { sandbox in
            _ = await #expect(throws: SandboxError.self) { try await sandbox.sandbox.start() }
        }
    }
}
