import ChatDispatch
import ChatDomain
import ChatHTTP

/// The parts that run beside the HTTP server, as the server sees them.
struct RunningParts: RelayState {
    let runningApps: RunningApps
    let browserRuntime: BrowserRuntime
    let log: LogSettings
    let upkeep: any StoreUpkeep
    let watch: DispatchWatch

    var apps: [AppStatus] { runningApps.all.map(\.status) + [browserRuntime.status].compactMap(\.self) }
    var browsers: (any SubscriptionReader)? { browserRuntime.subscriptions }
    var recentWarnings: [JSONValue] { log.recentWarnings }

    /// Checks all conditions for readiness except that the database can be read.
    func readiness() async -> [ReadinessCheck] {
        var cause: String?
        do throws(ChatError) {
            try await upkeep.tryWriting()
        } catch {
            cause = "\(error)"
        }
        let stalled = watch.stalled.map { "app \($0.app) has not moved for \($0.time.components.seconds) s" }
        return [
            ReadinessCheck(name: "disk", problem: cause.map { _ in "takes no writes" }, cause: cause),
            ReadinessCheck(
                name: "dispatcher", problem: stalled.isEmpty ? nil : "does not move",
                cause: stalled.isEmpty ? nil : stalled.joined(separator: ", ")),
        ]
    }
}
