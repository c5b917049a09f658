import ChatHTTP
import Foundation
import ServiceLifecycle
import Synchronization
import TestSupport
import Testing

@testable import pushchat

/// Tests with services that fail when the test says so. Nothing sends a signal.
@Suite("Services whose failure stops the relay", .timeLimit(.minutes(1)))
struct VitalServicesTests {
    /// The moment and the way in which a service fails.
    enum Failing: CaseIterable {
        case throwsAtStart, endsAtStart, throwsLater, endsLater

        var isLater: Bool { self == .throwsLater || self == .endsLater }
        var error: String {
            switch self {
            case .throwsAtStart, .throwsLater: "broken"
            case .endsAtStart, .endsLater: "it has ended unexpectedly"
            }
        }
    }

    /// The place of a service among the others.
    enum Place: CaseIterable {
        /// First to start, or last.
        case first, last
        /// Beside services that stop at the same moment.
        case concurrent
        /// In a nested group, as the services of an app are.
        case nested
    }

    private struct Dispatcher: Service {
        let failing: Failing
        /// Ends when all other services run.
        let othersRun: AsyncStream<Void>

        func run() async throws {
            if failing.isLater { for await _ in othersRun {} }
            if failing == .throwsAtStart || failing == .throwsLater { throw Failure("broken") }
        }
    }

    /// Works until a graceful shutdown, and then finishes its work.
    private final class Worker: Service {
        private let running: AsyncStream<Void>.Continuation
        private let finished = Atomic(false)
        var hasFinished: Bool { finished.load(ordering: .relaxed) }

        init(running: AsyncStream<Void>.Continuation) {
            self.running = running
        }

        func run() async throws {
            running.yield()
            try await gracefulShutdown()
            finished.store(!Task.isCancelled, ordering: .relaxed)
        }
    }

    private let recorder = LogRecorder()

    private func fail(_ failing: Failing, at place: Place) async throws -> (Failure?, workers: [Worker]) {
        let (started, start) = AsyncStream.makeStream(of: Void.self)
        let (othersRun, allRun) = AsyncStream.makeStream(of: Void.self)
        let vital = VitalServices(signals: [], logger: recorder.logger)
        let workers = (0..<3).map { _ in Worker(running: start) }
        let failing = vital.vital(Dispatcher(failing: failing, othersRun: othersRun), app: "news")
        let concurrent = vital.vital(workers[1])
        let services: [any Service] =
            switch place {
            case .first: [failing, workers[0], ConcurrentServices(services: [concurrent]), workers[2]]
            case .last: [workers[0], ConcurrentServices(services: [concurrent]), workers[2], failing]
            case .concurrent: [workers[0], ConcurrentServices(services: [concurrent, failing]), workers[2]]
            case .nested:
                [
                    workers[0],
                    ConcurrentServices(services: [
                        concurrent,
                        vital.vital(
                            ServiceGroup(services: [ConcurrentServices(services: [failing])], logger: .silent)),
                    ]), workers[2],
                ]
            }
        async let failure = #expect(throws: Failure.self) { try await vital.run(services) }
        for await _ in started.prefix(workers.count) {}
        allRun.finish()
        return (await failure, workers)
    }

    @Test(
        "The others finish their work, and the error and the log name the service and its app",
        arguments: Failing.allCases, Place.allCases)
    func failure(failing: Failing, place: Place) async throws {
        let (failure, workers) = try await fail(failing, at: place)
        #expect(failure?.description == "the relay has stopped, because Dispatcher of app news failed")
        #expect(workers.allSatisfy { $0.hasFinished })
        #expect(
            recorder.lines.filter { !$0.hasPrefix("debug") } == [
                "critical a service failed, the relay stops error=\(failing.error) service=Dispatcher of app news"
            ])
    }

    @Test("A server that cannot listen is returned as the error that says what to do, and is not logged")
    func cannotListen() async throws {
        struct Server: Service {
            func run() async throws { throw ChatServer.CannotListen(description: "cannot listen on :80") }
        }
        let vital = VitalServices(signals: [], logger: recorder.logger)
        let error = await #expect(throws: Failure.self) { try await vital.run([Server()]) }
        #expect(error?.description == "cannot listen on :80")
        #expect(recorder.lines.allSatisfy { $0.hasPrefix("debug") })
    }

    @Test("Of two failures, the first is the one that is returned, and both are logged")
    func two() async throws {
        struct First: Service { func run() async throws { throw Failure("one") } }
        struct Second: Service {
            func run() async throws {
                try await gracefulShutdown()
                throw Failure("two")
            }
        }
        let vital = VitalServices(signals: [], logger: recorder.logger)
        let error = await #expect(throws: Failure.self) { try await vital.run([First(), Second()]) }
        #expect(error?.description == "the relay has stopped, because First failed")
        #expect(recorder.lines.filter { $0.hasPrefix("critical") }.count == 2)
    }

    @Test("Without a failure, a graceful shutdown ends the services without an error")
    func stops() async throws {
        let (started, start) = AsyncStream.makeStream(of: Void.self)
        let worker = Worker(running: start)
        let vital = VitalServices(signals: [], logger: recorder.logger)
        let services = ServiceGroup(services: [Caller(vital: vital, worker: worker)], logger: .silent)
        async let work: Void = services.run()
        for await _ in started.prefix(1) {}
        await services.triggerGracefulShutdown()
        try await work
        #expect(worker.hasFinished)
    }

    @Test("The systemd unit restarts the relay whatever its status is")
    func unit() throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../..")
        let unit = try String(contentsOf: root.appending(path: "packaging/pushchat.service"), encoding: .utf8)
        let lines = Set(unit.split(separator: "\n"))
        #expect(lines.isSuperset(of: ["Restart=always", "StartLimitIntervalSec=0"]))
        #expect(!unit.contains("RestartPreventExitStatus"))
    }

    private struct Caller: Service {
        let vital: VitalServices
        let worker: Worker

        func run() async throws { try await vital.run([worker]) }
    }
}
