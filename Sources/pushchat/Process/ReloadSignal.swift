import Foundation
import Synchronization
import UnixSignals

/// Catches SIGHUP from the first instruction of the process, before any code can listen for it. Otherwise the signal
/// would end the process.
enum ReloadSignal {
    private static let hasCome = Atomic(false)

    /// Records the signal from now on.
    ///
    /// - Returns: The previous handler, for ``release(_:)``.
    static func hold() -> sighandler_t? {
        // Initialize the flag here, because a signal handler must not.
        hasCome.store(false, ordering: .relaxed)
        return signal(SIGHUP) { _ in ReloadSignal.hasCome.store(true, ordering: .relaxed) }
    }

    /// Restores the previous handler. A signal that has arrived since ``hold()`` is raised again.
    static func release(_ meaning: sighandler_t?) {
        signal(SIGHUP, meaning)
        if hasCome.exchange(false, ordering: .relaxed) { raise(SIGHUP) }
    }

    /// Calls `act` for each signal from now on, and once for signals since ``hold()``. Signals that arrive during `act`
    /// count as one. Runs until `signals` ends.
    static func forEach(
        _ signals: some AsyncSequence<some Sendable, Never> & Sendable, _ act: () async -> Void
    ) async {
        // The flag has signals from before `signals` was created. Later ones are in `signals`.
        if hasCome.exchange(false, ordering: .relaxed) { await act() }
        let (latest, latestSignal) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        async let reading: Void = {
            for await _ in signals { latestSignal.yield() }
            latestSignal.finish()
        }()
        for await _ in latest { await act() }
        await reading
    }
}
