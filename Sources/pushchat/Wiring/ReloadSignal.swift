import Foundation
import Synchronization
import UnixSignals

/// SIGHUP, from the first instruction of the process on, when nobody can listen yet and it would end the process.
enum ReloadSignal {
    private static let hasCome = Atomic(false)

    /// Notes that it came, from now on.
    /// - Returns: what it meant before, for ``release(_:)``.
    static func hold() -> sighandler_t? {
        // Made here, because a signal's handler must not.
        hasCome.store(false, ordering: .relaxed)
        return signal(SIGHUP) { _ in ReloadSignal.hasCome.store(true, ordering: .relaxed) }
    }

    /// It means what it did before, also if it has come meanwhile.
    static func release(_ meaning: sighandler_t?) {
        signal(SIGHUP, meaning)
        if hasCome.exchange(false, ordering: .relaxed) { raise(SIGHUP) }
    }

    /// Calls `act` for each from now on, and once for those since ``hold()``. Those that come while it acts are one. Kept for
    /// as long as `signals` is.
    static func forEach(
        _ signals: some AsyncSequence<some Sendable, Never> & Sendable, _ act: () async -> Void
    ) async {
        // What came before `signals` was made is noted here, and what came after it is there.
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
