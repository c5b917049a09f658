import Foundation

/// The kernel's wall clock.
enum KernelClock {
    /// Whether the kernel says that a time service has set the clock. `false` also where the system does not let the process ask.
    ///
    /// Setting the clock in another way ends it, and so do some hours without a time service (adjtimex(2): STA_UNSYNC).
    static var isSynchronized: Bool {
        // Not in the module of every C library.
        guard let symbol = dlsym(nil, "adjtimex") else { return false }
        let adjtimex = unsafeBitCast(symbol, to: (@convention(c) (UnsafeMutableRawPointer) -> CInt).self)
        // A `struct timex` of zeros, which only reads. It has 208 bytes.
        var request = [UInt64](repeating: 0, count: 64)
        let state = request.withUnsafeMutableBytes { $0.baseAddress.map(adjtimex) ?? -1 }
        return (0..<unsynchronized).contains(state)
    }

    /// TIME_ERROR. The states below tell of leap seconds.
    private static let unsynchronized: CInt = 5
}
