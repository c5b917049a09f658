import APNSGateway
import ChatDispatch
import ChatDomain
import Logging
import ServiceLifecycle
import Synchronization

/// Sends straight to an app's gateway, with the parts that the relay does it with: what they are asked to repeat, they repeat.
struct DirectSending {
    let app: AppConfiguration
    let content: NotificationContent
    let composed: ComposedNotification
    let tokens: [DeviceToken]
    let patience: Duration

    /// - Throws: ``Failure``, where the gateway cannot be reached or does not want us.
    func run() async throws -> [DirectResult] {
        let credentials = try usable()
        if app.isRetired { Output.note("warning: " + AppConfiguration.retirement) }
        do throws(GatewayUnreachable) {
            try await credentials.push?.probe()
        } catch {
            throw Failure(error.description)
        }
        let deadline = ContinuousClock.now + patience
        let queue = DirectQueue(content, composed, to: tokens)
        let (epochs, keys) = (ConnectionEpochs(), MemoryTokenStore())
        // What a gateway that is being closed could not take, the next one gets.
        while queue.hasWaiting, ContinuousClock.now < deadline {
            let gateway = app.gateway.kind.gateway(
                GatewayParts(
                    app: app, credentials: credentials, tokens: keys, epochs: epochs, logger: Self.warnings))
            let dispatcher = Dispatcher(
                app: app.name, queue: queue, gateway: gateway, lifeCycle: DirectQueue.lifeCycle,
                logger: Logger(label: "direct") { _ in
                    SwiftLogNoOpLogHandler()
                })
            let services = ServiceGroup(
                services: [dispatcher], logger: Logger(label: "direct") { _ in SwiftLogNoOpLogHandler() })
            async let work: Void = services.run()
            await wait(for: queue, until: deadline)
            await services.triggerGracefulShutdown()
            try await work
        }
        return queue.results
    }

    private func usable() throws -> AppCredentials {
        do throws(CredentialsError) {
            return try app.credentials()
        } catch {
            throw Failure(error.description)
        }
    }

    /// Until all is answered; where silence is the only yes, until all is written: closing asks for the answers.
    private func wait(for queue: DirectQueue, until deadline: ContinuousClock.Instant) async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask {
                for await _ in queue.arrivals() {
                    let isOver = app.gateway == .binary ? !queue.hasWaiting : queue.isSettled
                    if isOver { break }
                }
            }
            group.addTask { try? await Task.sleep(until: deadline) }
            await group.next()
            group.cancelAll()
        }
    }

    /// Why a gateway cannot be reached goes to standard error while it is tried again.
    private static var warnings: Logger {
        let settings = LogSettings(level: .warning, format: .text)
        return Logger(label: LogRecord.relay) { LineLogHandler(label: $0, settings: settings) }
    }
}

/// Provider tokens for as long as a command runs.
private final class MemoryTokenStore: ProviderTokenStore {
    private let token = Mutex<IssuedToken?>(nil)

    func providerToken(
        for key: ProviderKeyName, refused: String?, sign: @escaping @Sendable (Timestamp) throws -> String
    ) throws(ChatError) -> IssuedToken {
        if let token = token.withLock({ $0 }) { return token }
        let now = Timestamp.now()
        do {
            let made = IssuedToken(text: try sign(now), issuedAt: now)
            token.withLock { $0 = made }
            return made
        } catch {
            throw ChatError(.unavailable, "the key cannot sign: \(error)")
        }
    }
}
