import Foundation

/// The kernel's wall clock.
enum KernelClock {
    /// Whether the kernel reports that a time service has set the clock. `false` also if the system does not permit the
    /// query.
    ///
    /// The kernel drops this state when the clock is set in another way, and after some hours without a time service
    /// (adjtimex(2): STA_UNSYNC).
    static var isSynchronized: Bool {
        // Find the function by its name, because not every C library's module contains it.
        guard let symbol = dlsym(nil, "adjtimex") else { return false }
        let adjtimex = unsafeBitCast(symbol, to: (@convention(c) (UnsafeMutableRawPointer) -> CInt).self)
        // A `struct timex` of zeros only reads. It has 208 bytes.
        var request = [UInt64](repeating: 0, count: 64)
        let state = request.withUnsafeMutableBytes { $0.baseAddress.map(adjtimex) ?? -1 }
        return (0..<unsynchronized).contains(state)
    }

    /// TIME_ERROR. The lower states report leap seconds.
    private static let unsynchronized: CInt = 5
}
