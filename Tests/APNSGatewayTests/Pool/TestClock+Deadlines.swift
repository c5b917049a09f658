import NIOCore
import TestSupport

@testable import APNSGateway
@testable import GatewayPool

extension TestClock {
    /// The clock as the pool uses it.
    var clock: MonotonicClock {
        let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
        return MonotonicClock(
            now: { start + TimeAmount(self.now.offset) },
            sleep: { try await self.sleep(until: Instant(offset: .nanoseconds(($0 - start).nanoseconds))) })
    }
}
