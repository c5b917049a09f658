import Synchronization

/// How many connections each address has open, so that one client cannot take them all.
final class ConnectionCensus: Sendable {
    private let limit: Int
    private let trustedProxies: @Sendable () -> [AddressRange]
    private let open = Mutex<[IPAddress: Int]>([:])

    init(
        limit: Int = HTTPLimits.connectionsPerAddress, trustedProxies: @escaping @Sendable () -> [AddressRange] = { [] }
    ) {
        self.limit = limit
        self.trustedProxies = trustedProxies
    }

    /// Whether an address is one of many: not this machine, and not a proxy that speaks for many.
    func counts(_ address: IPAddress) -> Bool {
        !address.isLoopback && !trustedProxies().contains { $0.contains(address) }
    }

    /// Counts a connection; false, and not counted, when there are too many.
    func enter(_ address: IPAddress) -> Bool {
        open.withLock { open in
            guard open[address, default: 0] < limit else { return false }
            open[address, default: 0] += 1
            return true
        }
    }

    func leave(_ address: IPAddress) {
        open.withLock { open in
            guard let count = open[address] else { return }
            open[address] = count > 1 ? count - 1 : nil
        }
    }
}
