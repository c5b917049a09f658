import ChatDomain
import NIOCore

/// One open connection to the provider API, as the pool sees it; what happens on it happens in its handler.
final class ProviderConnection: PooledConnection {
    let epoch: ConnectionEpoch
    private let channel: any Channel
    private let handler: NIOLoopBound<ProviderConnectionHandler>
    private let desk: ProviderDesk
    private let retirement: EventLoopFuture<Void>
    private let template: ProviderRequestTemplate
    private let temper: ServiceTemper

    /// To be called on the channel's event loop.
    init(
        epoch: ConnectionEpoch, channel: any Channel, handler: ProviderConnectionHandler,
        template: ProviderRequestTemplate, temper: ServiceTemper
    ) {
        self.epoch = epoch
        self.channel = channel
        self.handler = NIOLoopBound(handler, eventLoop: channel.eventLoop)
        self.desk = handler.desk
        self.retirement = handler.retirement.futureResult
        self.template = template
        self.temper = temper
    }

    var slot: ConnectionSlot? {
        guard channel.isActive else { return nil }
        return desk.slot(on: epoch)
    }

    /// It is fresh again as soon as everything is answered.
    var canBeSpared: Bool { false }

    var isSaturated: Bool { desk.isSaturated }
    var isHeld: Bool { desk.isHeld }

    /// Builds the requests here, so that the event loop has less to do, and hands them over.
    func write(_ lease: Lease, now: Timestamp) {
        guard let last = lease.pushes.last else { return }
        temper.noteWritten()
        desk.noteLeased(through: last.identifier, isProbe: lease.isProbe)
        let requests = lease.pushes.map(template.request)
        let handler = handler
        channel.eventLoop.execute { handler.value.write(requests) }
    }

    func drain() async {
        let handler = handler
        channel.eventLoop.execute { handler.value.drain() }
        await closed()
    }

    func retired() async {
        try? await retirement.get()
    }

    func closed() async {
        try? await channel.closeFuture.get()
    }

    func merit() async -> ReconnectPacing.Merit {
        let handler = handler
        return (try? await channel.eventLoop.submit { handler.value.merit }.get()) ?? .nothing
    }
}
