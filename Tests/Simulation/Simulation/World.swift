import CSimulation
import Foundation

/// One run of a seed: everything outside of the relay, and the relay's lives.
///
/// This class and the parts need no locks, because there is one thread.
final class World: @unchecked Sendable {
    private static let parts: [any Part.Type] = [
        Clients.self, Programs.self, Keys.self, Schedules.self, Notifications.self, Operator.self, OtherProgram.self,
        Retention.self, Reloads.self, Stops.self, Crashes.self, DiskFaults.self, Promptness.self,
    ]
    /// Half of the seeds have no bytes, which take most of the time.
    private static let services: [any PushService.Type] = [
        ScriptedService.self, ScriptedService.self, ScriptedService.self, ScriptedService.self, AppleHTTP2.self,
        AppleBinary.self, Firebase.self, Browsers.self,
    ]
    /// The time after a fault in which the relay may still log its consequences as errors.
    private static let recovery = Duration.seconds(20)
    /// The time after the last fault in which every push ends.
    private static let patience = Duration.seconds(1800)

    let choices: Choices
    let ledger = Ledger()
    /// For peers and clients, while the world runs.
    let dice = Dice(stream: simulation_peers)
    private let folder: String
    private let options: SeedOptions
    private let end: (World) -> Never
    private(set) var service: (any PushService)!
    private(set) var parts: [any Part] = []
    private(set) lazy var calls = Calls(self)

    private var number = 0
    private var life: Life?
    /// Nothing of a dead relay may be released, because that would run its code.
    private var graveyard: [Life] = []

    private(set) var problems: [(property: Property, text: String)] = []
    private(set) var crashes = 0
    private(set) var powerCuts = 0
    /// The time until which the relay may log errors, and end unasked.
    private var errorsEnd: Moment?
    private(set) var isCalm = false
    private var isOver = false

    init(folder: String, _ options: SeedOptions, end: @escaping (World) -> Never) {
        (self.folder, self.options, self.end) = (folder, options, end)
        choices = Choices(kept: options.kept)
        service = choices.dice.among(Self.services).init(self)
        parts = Self.parts.map { $0.init(self) } + [service]
        ledger.onAcceptance = { [unowned self] push in for part in parts { part.accepted(push) } }
    }

    // MARK: - What parts use

    /// The relay while it serves calls.
    var relay: Life? { life.flatMap { $0.isReady ? $0 : nil } }
    var clients: Clients { part() }
    var programs: Programs { part() }
    var schedules: Schedules { part() }
    var retention: Retention { part() }
    var queueOperator: Operator { part() }
    var diskFaults: DiskFaults { part() }
    private func part<Kind: Part>() -> Kind { parts.lazy.compactMap { $0 as? Kind }.first! }
    var path: String { "\(folder)/life\(number).db" }

    func log(_ text: @autoclosure () -> String) { if options.logs { print(Moment.now, text()) } }

    func violate(_ property: Property, _ text: String) {
        problems.append((property, text))
        log("VIOLATION of \(property): \(text)")
        if options.stopsEarly { end(self) }
    }

    /// The relay may log errors from now on, because a fault begins that lasts for a time.
    func expectErrors(for length: Duration) {
        let end = Moment.now + length + Self.recovery
        errorsEnd = max(errorsEnd ?? end, end)
    }

    var expectsErrors: Bool { errorsEnd.map { .now <= $0 } ?? false }

    /// Ends the relay's process at once, and starts another one on the files that it leaves.
    func crash(powerCut: Bool) {
        crashes += 1
        powerCuts += powerCut ? 1 : 0
        log(powerCut ? "the power fails" : "the relay is killed")
        ledger.relayDied()
        calls.relayDied()
        for part in parts { part.relayDied() }
        if let life { graveyard.append(life) }
        life = nil
        simulation_crash()
        let old = path
        number += 1
        simulation_disk_survive(old, path, powerCut)
        start(after: dice.within(.milliseconds(50)...(.seconds(2))))
    }

    /// The relay has stopped, or could not start.
    func stopped(_ life: Life) {
        guard life === self.life else { return }
        if !life.isStopping, !expectsErrors { violate(.theRelayRunsOn, "life \(life.number) ends unasked") }
        // With a disk that fails, the last outcomes cannot be recorded.
        if expectsErrors { ledger.relayDied() }
        for part in parts { part.relayDied() }
        self.life = nil
        start(after: dice.within(.milliseconds(50)...(.seconds(2))))
    }

    private func start(after delay: Duration) {
        let number = number
        simulation_world.run(after: delay) { if self.number == number { self.start() } }
    }

    private func start() {
        do {
            let life = try Life(self, number: number)
            self.life = life
            life.run()
        } catch {
            log("the store does not open: \(error)")
            if !expectsErrors { violate(.theRelayComesBack, "the store does not open: \(error)") }
            start(after: .milliseconds(200))
        }
    }

    /// Lets the relay die instead of its write or sync after `operations` others.
    func die(after operations: Int, powerCut: Bool) {
        Self.running = (self, powerCut)
        simulation_disk_die(UInt64(operations)) {
            guard let (world, powerCut) = World.running else { return }
            world.log("within a write or sync:")
            world.crash(powerCut: powerCut)
            world.run()
        }
    }

    // C calls back without a context.
    nonisolated(unsafe) private static var running: (world: World, powerCut: Bool)?

    // MARK: - The run

    func begin() {
        for part in parts { part.plan(choices) }
        choices.begin(in: self)
        start()
        for part in parts { part.begin() }
        simulation_world.run(at: choices.end) { self.calmDown() }
    }

    /// Runs everything to its end. A relay that dies within a write calls this again, above its own dead calls.
    func run() -> Never {
        let limit = choices.end + Self.patience
        while !isOver {
            if simulation_step(limit.nanoseconds) { continue }
            violate(.nothingWaitsForever, "nothing is left to do")
            isOver = true
        }
        end(self)
    }

    private func calmDown() {
        log("the faults end")
        isCalm = true
        for part in parts { part.calmDown() }
        awaitEnd()
    }

    /// Waits until every part has finished and every push has ended.
    private func awaitEnd() {
        let again = { simulation_world.run(after: .milliseconds(500)) { self.awaitEnd() } }
        guard Moment.now < choices.end + Self.patience else {
            violate(relay == nil ? .theRelayComesBack : .nothingWaitsForever, "waited for \(Self.patience)")
            isOver = true
            return
        }
        guard let relay, !relay.isStopping, calls.areSettled, parts.allSatisfy(\.isSettled) else { return again() }
        relay.call { stores in
            try await stores.read { db in try StoredRows.areSettled(db) ? StoredRows(db) : nil }
        } then: { result in
            guard case .success(let rows?) = result else { return again() }
            for part in self.parts { part.check(rows) }
            FinalCheck(world: self, rows: rows).run()
            self.isOver = true
        }
    }
}
