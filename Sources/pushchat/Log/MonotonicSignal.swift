import Dispatch
import Foundation

/// A semaphore whose timed waits follow the monotonic clock.
///
/// On Linux, `DispatchSemaphore` waits until a time of the wall clock (`sem_timedwait`). If that clock is set back by
/// an hour, a wait of 20 milliseconds takes an hour.
///
/// `@unchecked Sendable` is sound: `count` is read and written only while `mutex` is held, and the pointers never
/// change.
final class MonotonicSignal: @unchecked Sendable {
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    private var count = 0

    init() {
        pthread_mutex_init(mutex, nil)
        var attributes = pthread_condattr_t()
        pthread_condattr_init(&attributes)
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        pthread_cond_init(condition, &attributes)
        pthread_condattr_destroy(&attributes)
    }

    deinit {
        pthread_cond_destroy(condition)
        pthread_mutex_destroy(mutex)
        condition.deallocate()
        mutex.deallocate()
    }

    func signal() {
        pthread_mutex_lock(mutex)
        count += 1
        pthread_cond_signal(condition)
        pthread_mutex_unlock(mutex)
    }

    func wait() {
        pthread_mutex_lock(mutex)
        while count == 0 { pthread_cond_wait(condition, mutex) }
        count -= 1
        pthread_mutex_unlock(mutex)
    }

    /// Waits for a signal until a deadline.
    /// - Returns: `false` if there was no signal before `deadline`.
    func wait(until deadline: DispatchTime) -> Bool {
        // On Linux the uptime of `DispatchTime` is CLOCK_MONOTONIC.
        let (seconds, rest) = deadline.uptimeNanoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
        var time = timespec(tv_sec: Int(seconds), tv_nsec: Int(rest))
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        while count == 0 {
            if pthread_cond_timedwait(condition, mutex, &time) == ETIMEDOUT { break }
        }
        guard count > 0 else { return false }
        count -= 1
        return true
    }
}
