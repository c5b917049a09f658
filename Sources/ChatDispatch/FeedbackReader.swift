package import ChatDomain
package import Logging
import ServiceLifecycle
import Synchronization

/// Reads from an app's feedback service which devices are gone, at the start and then at an interval.
///
/// Reading clears the list at the service. So each chunk is stored before the next one is read, and before the reader
/// acts on it.
package struct FeedbackReader: Service {
    /// The delay before a failed reading is retried. It doubles with each failure, up to the interval.
    private static let firstRetryDelay = Duration.seconds(15)
    /// The maximum number of reports in one reading. An app does not lose this many devices in an hour. Without a
    /// limit, an endless list would fill the disk.
    package static let maxReports = 100_000

    /// The service has sent ``maxReports`` reports, and its list may go on.
    private struct ListTooLong: Error {}

    private let app: AppName
    private let store: any FeedbackStore
    private let source: @Sendable () -> (any FeedbackSource)?
    private let interval: @Sendable () -> Duration
    private let logger: Logger

    /// Creates the reader of one app.
    /// - Parameters:
    ///   - source: Called before each reading. Returns `nil` while there is nothing to read from, for example without
    ///     credentials.
    ///   - interval: Called after each reading. Returns the time until the next one.
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
        // Act on reports that an earlier process stored but did not process.
        await act(tokens: 0)
        var pause = Self.firstRetryDelay
        while !Task.isShuttingDownGracefully, !Task.isCancelled {
            // A shutdown does not interrupt a reading, because the service forgets reports as they are read.
            let isDone = await readOnce()
            // Without a source, check again soon, so that credentials from a reload need not wait for the whole
            // interval.
            let hasSource = source() != nil
            pause =
                isDone ? (hasSource ? interval() : min(Self.firstRetryDelay, interval())) : min(pause * 2, interval())
            await cancelWhenGracefulShutdown { [pause] in try? await Task.sleep(for: pause) }
            if isDone { pause = Self.firstRetryDelay }
        }
    }

    /// Reads the list once, and acts on all stored reports, including those from interrupted readings. A list that is
    /// too long ends the reading. The next reading, after the interval, gets the reports that the service still has.
    /// - Returns: Whether the reading succeeded, or there was nothing to read from.
    package func readOnce() async -> Bool {
        guard let source = source() else { return true }
        let count = Mutex(0)
        do {
            let leftover = try await source.read { reports in
                try await record(reports)
                let total = count.withLock { count in
                    count += reports.count
                    return count
                }
                if total >= Self.maxReports { throw ListTooLong() }
            }
            if leftover > 0 {
                logger.warning("feedback ended inside a tuple", metadata: ["bytes": "\(leftover)"])
            }
            return await act(tokens: count.withLock { $0 })
        } catch is ListTooLong {
            let total = count.withLock { $0 }
            logger.warning("feedback list is too long: the next reading continues it", metadata: ["tokens": "\(total)"])
            return await act(tokens: total)
        } catch {
            await act(tokens: count.withLock { $0 })
            logger.warning(
                "feedback could not be read", metadata: ["error": "\(error)", "tokens": "\(count.withLock { $0 })"])
            return false
        }
    }

    /// Acts on the stored reports.
    /// - Parameter tokens: The number of reports that were just read, for the log.
    /// - Returns: Whether it succeeded.
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
            logger.warning("stored feedback could not be processed", metadata: ["error": "\(error)"])
            return false
        }
    }

    /// Stores reports, and retries until that succeeds or the task is cancelled: the service has already forgotten
    /// them.
    private func record(_ reports: [FeedbackReport]) async throws {
        var backoff = Backoff()
        while true {
            do throws(ChatError) {
                return try await store.record(reports, app: app)
            } catch {
                logger.error("feedback could not be stored, retrying", metadata: ["error": "\(error)"])
                guard await backoff.pause() else { throw error }
            }
        }
    }
}
