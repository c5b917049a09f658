import CSimulation
import GatewayPool
import Glibc
import NIOCore

/// The network between the relay and the servers of one push service, in all lives of the relay.
final class Network {
    /// The relay's side in one life.
    private final class Sockets: Connector, @unchecked Sendable {
        let eventLoops: any EventLoopGroup = SimulatedEventLoops()
        private unowned let network: Network

        init(_ network: Network) { self.network = network }

        func connect(
            to peer: ConnectorPeer, on eventLoop: any EventLoop, timeout: TimeAmount,
            prepare: @escaping @Sendable (any Channel) throws -> Void
        ) -> EventLoopFuture<any Channel> {
            network.connect(to: peer, on: eventLoop, timeout: timeout, prepare: prepare)
        }
    }

    private unowned let world: World
    private let protocolName: String?
    private let accept: (Link) -> any Peer
    private var links: [Link] = []
    /// Nothing of a dead relay may be released, because that would run its code.
    private var graveyard: [Link] = []
    private var count = 0

    private var latency = Duration.milliseconds(20)
    /// Percents of the attempts to connect.
    private var refusals = 0
    private var timeouts = 0
    private var silentHandshakes = 0
    private var severalAddresses = 0
    /// The names of servers that refuse connections now.
    var refusing: Set<String> = []
    private var downUntil = Moment.now
    /// The time of the slowest handshakes.
    private var handshake = Duration.milliseconds(60)

    /// - Parameters:
    ///   - protocolName: The protocol that the servers speak over TLS. `nil` for the binary protocol.
    ///   - accept: Creates a server's side of a connection.
    init(_ world: World, protocolName: String?, accept: @escaping (Link) -> any Peer) {
        (self.world, self.protocolName, self.accept) = (world, protocolName, accept)
    }

    func plan(_ choices: Choices) {
        let dice = choices.dice
        choices.maybe(50, 1...300, { "latency \($0) ms" }, { self.latency = .milliseconds($0) })
        choices.maybe(20, 1...60, { "\($0) % of connects are refused" }, { self.refusals = $0 })
        choices.maybe(20, 1...40, { "\($0) % of connects get no response" }, { self.timeouts = $0 })
        choices.maybe(20, 1...30, { "\($0) % of handshakes get no response" }, { self.silentHandshakes = $0 })
        choices.maybe(20, 1...100, { "\($0) % of names have two addresses" }, { self.severalAddresses = $0 })
        choices.maybe(20, 1...9000, { "handshakes take up to \($0) ms" }, { self.handshake = .milliseconds($0) })
        if dice.chance(60) {
            choices.add(dice.below(20)) { dice in
                let isSilent = dice.chance(30)
                let text = isSilent ? "a connection is lost without notice" : "a connection is lost"
                return (text, { self.loseOne(isSilent) })
            }
        }
        if dice.chance(15) {
            choices.add(dice.within(1...2)) { dice in
                let length = dice.within(.seconds(1)...(.seconds(60)))
                return ("the network is down for \(length)", { self.goDown(for: length) })
            }
        }
    }

    private func goDown(for length: Duration) {
        downUntil = .now + length
        for link in links where link.isOpen { link.lose(isSilent: world.dice.chance(20)) }
    }

    private func loseOne(_ isSilent: Bool) {
        let open = links.filter(\.isOpen)
        if !open.isEmpty { world.dice.among(open).lose(isSilent: isSilent) }
    }

    func connector() -> any Connector { Sockets(self) }

    func relayDied() {
        for link in links { link.relayDies() }
        graveyard += links
        links = []
    }

    func calmDown() {
        (refusals, timeouts, silentHandshakes, handshake, downUntil) = (0, 0, 0, .milliseconds(60), .now)
    }

    // MARK: - Connecting

    private func connect(
        to peer: ConnectorPeer, on eventLoop: any EventLoop, timeout: TimeAmount,
        prepare: @escaping @Sendable (any Channel) throws -> Void
    ) -> EventLoopFuture<any Channel> {
        let dice = world.dice
        let promise = eventLoop.makePromise(of: (any Channel).self)
        eventLoop.execute {
            do {
                let channel = try self.channel(on: eventLoop, prepare: prepare)
                channel.link.host = peer.serverName ?? ""
                if dice.chance(self.severalAddresses) {
                    // The other address is tried as well, and is not needed.
                    let other = try self.channel(on: eventLoop, prepare: prepare)
                    let time = TimeAmount(dice.within(.zero...(.seconds(1))))
                    eventLoop.scheduleTask(in: time) { other.close(promise: nil) }
                }
                self.connect(channel, timeout, promise)
            } catch {
                promise.fail(error)
            }
        }
        return promise.futureResult
    }

    private func channel(
        on eventLoop: any EventLoop, prepare: @escaping @Sendable (any Channel) throws -> Void
    ) throws -> SimulatedChannel {
        let dice = world.dice
        count += 1
        let link = Link(
            world, number: count, latency: .microseconds(10)...latency,
            handshake: dice.chance(silentHandshakes) ? nil : dice.within(.milliseconds(1)...handshake))
        let channel = SimulatedChannel(on: eventLoop, link, dice)
        link.socket = channel
        channel.register(promise: nil)
        try channel.pipeline.syncOperations.addHandler(SimulatedTLS(link, agreed: protocolName, dice))
        do {
            try prepare(channel)
        } catch {
            channel.close(promise: nil)
            throw error
        }
        return channel
    }

    private func connect(_ channel: SimulatedChannel, _ timeout: TimeAmount, _ promise: EventLoopPromise<any Channel>) {
        let dice = world.dice
        let link = channel.link
        func fail(after delay: Duration, _ error: any Error) {
            channel.eventLoop.scheduleTask(in: TimeAmount(delay)) {
                promise.fail(error)
                channel.close(promise: nil)
            }
        }
        if dice.chance(refusals) || refusing.contains(link.host) || .now < downUntil {
            fail(after: dice.within(.zero...latency), IOError(errnoCode: ECONNREFUSED, reason: "connect"))
        } else if dice.chance(timeouts) {
            fail(after: .nanoseconds(timeout.nanoseconds), ChannelError.connectTimeout(timeout))
        } else {
            channel.eventLoop.scheduleTask(in: TimeAmount(dice.within(.zero...latency))) {
                self.links.removeAll(where: \.isOver)
                self.links.append(link)
                self.world.log("\(link): connected")
                link.peer = self.accept(link)
                channel.connected()
                promise.succeed(channel)
            }
        }
    }
}

extension Choices {
    /// Adds a rate that holds from the beginning, in some of the seeds.
    func maybe(
        _ percent: Int, _ range: ClosedRange<Int>, _ text: (Int) -> String, _ set: @escaping (Int) -> Void
    ) {
        let number = dice.within(range)
        if dice.chance(percent) { add(text(number)) { set(number) } }
    }
}
