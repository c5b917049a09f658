package import ChatDomain
package import Logging
import ServiceLifecycle
import Synchronization

/// Asks the feedback service of an app which devices are gone: at start, and then every interval.
///
/// Reading clears the list at the service, so every piece is stored before the next is read and before anything is
/// done about it.
package struct FeedbackReader: Service {
    /// Before a reading that failed is tried again; doubles, up to the interval.
    private static let firstRepeat = Duration.seconds(15)
    /// Reports that one reading stores: more than an app loses devices in an hour. A list without an end would fill the disk.
    package static let mostReports = 100_000

    /// The service sent ``mostReports``, and goes on.
    private struct ListTooLong: Error {}

    private let app: AppName
    private let store: any FeedbackStore
    private let source: @Sendable () -> (any FeedbackSource)?
    private let interval: @Sendable () -> Duration
    private let logger: Logger

    /// - Parameters:
    ///   - source: asked before each reading; nil while the app has no credentials.
    ///   - interval: asked after each reading.
    package init(
        app: AppName, store: any FeedbackStore, source: @escaping @Sendable () -> (any FeedbackSource)?,
        interval: @escaping @Sendable () -> Duration, logger: Logger
    ) {
        self.app = app
        self.store = store
        self.source = source
        self.interval = interval
        var logger = logger
        logger[metadataKey: "app"] = "\(app)"
        self.logger = logger
    }

    package func run() async throws {
        // What an earlier process stored and had not processed.
        await act(tokens: 0)
        var pause = Self.firstRepeat
        while !Task.isShuttingDownGracefully, !Task.isCancelled {
            // Not cut short by a shutdown: what was read is forgotten at the service.
            let isDone = await readOnce()
            // Credentials that come by a reload are not kept waiting for the whole interval.
            let hasSource = source() != nil
            pause = isDone ? (hasSource ? interval() : min(Self.firstRepeat, interval())) : min(pause * 2, interval())
            await cancelWhenGracefulShutdown { [pause] in try? await Task.sleep(for: pause) }
            if isDone { pause = Self.firstRepeat }
        }
    }

    /// One reading, and what follows from it and from readings that were interrupted. A list that is too long ends it: the next
    /// reading, after the interval, takes what the service still has.
    /// - Returns: whether it worked.
    package func readOnce() async -> Bool {
        guard let source = source() else { return true }
        let count = Mutex(0)
        do {
            let rest = try await source.read { reports in
                try await record(reports)
                let total = count.withLock { count in
                    count += reports.count
                    return count
                }
                if total >= Self.mostReports { throw ListTooLong() }
            }
            if rest > 0 {
                logger.warning("feedback ended inside a tuple", metadata: ["bytes": "\(rest)"])
            }
            return await act(tokens: count.withLock { $0 })
        } catch is ListTooLong {
            let total = count.withLock { $0 }
            logger.warning("feedback list is too long: the rest is read next time", metadata: ["tokens": "\(total)"])
            return await act(tokens: total)
        } catch {
            await act(tokens: count.withLock { $0 })
            logger.warning(
                "feedback could not be read", metadata: ["error": "\(error)", "tokens": "\(count.withLock { $0 })"])
            return false
        }
    }

    /// Acts on what is stored.
    /// - Returns: whether it worked.
    @discardableResult
    private func act(tokens: Int) async -> Bool {
        do throws(ChatError) {
            let result = try await store.actOnFeedback()
            guard tokens > 0 || result != FeedbackResult() else { return true }
            logger.info(
                "feedback read",
                metadata: [
                    "tokens": "\(tokens)", "deactivated": "\(result.deactivated)", "kept": "\(result.kept)",
                    "unknown": "\(result.unknown)",
                ])
            return true
        } catch {
            logger.warning("feedback could not be acted on", metadata: ["error": "\(error)"])
            return false
        }
    }

    /// Tries until it is stored: the service has already forgotten what was read.
    private func record(_ reports: [FeedbackReport]) async throws {
        var backoff = Backoff()
        while true {
            do throws(ChatError) {
                return try await store.record(reports, app: app)
            } catch {
                logger.error("feedback could not be stored, trying again", metadata: ["error": "\(error)"])
                guard await backoff.pause() else { throw error }
            }
        }
    }
}
