import ChatDomain
import Synchronization

/// Performs the requests of many callers in one transaction: requests that arrive while one runs share the next.
final class GroupCommit<Request: Sendable, Response: Sendable>: Sendable {
    typealias Work = @Sendable ([Request], PostgresTransaction) throws -> [Result<Response, ChatError>]

    private struct Waiting: Sendable {
        let request: Request
        let answer: @Sendable (Result<Response, ChatError>) -> Void
    }

    private struct State {
        var waiting: [Waiting] = []
        var isRunning = false
    }

    private let database: PostgresDatabase
    private let limit: Int
    private let work: Work
    private let state = Mutex(State())

    /// - Parameters:
    ///   - limit: The maximum number of requests that share a transaction.
    ///   - work: Returns a response for each request, in order. It may run several times, as described at
    ///     ``PostgresDatabase/write(_:operations:isRepeatable:_:)``. If the server refuses a statement, each request
    ///     runs in a transaction of its own, so that only the faulty one fails.
    init(database: PostgresDatabase, limit: Int = 512, work: @escaping Work) {
        self.database = database
        self.limit = limit
        self.work = work
    }

    func callAsFunction(_ request: Request) async throws(ChatError) -> Response {
        let result: Result<Response, ChatError> = await withCheckedContinuation { caller in
            let waiting = Waiting(request: request) { caller.resume(returning: $0) }
            let (isAccepted, mustStart) = state.withLock { state in
                guard state.waiting.count < PostgresPool.waitingLimit else { return (false, false) }
                state.waiting.append(waiting)
                defer { state.isRunning = true }
                return (true, !state.isRunning)
            }
            if !isAccepted {
                database.measures.refuse(1)
                caller.resume(returning: .failure(.unavailable(cause: "too many calls wait for the database")))
            }
            if mustStart { Task { await self.run() } }
        }
        return try result.get()
    }

    private func run() async {
        while true {
            let batch = state.withLock { state in
                let batch = Array(state.waiting.prefix(limit))
                state.waiting.removeFirst(batch.count)
                state.isRunning = !batch.isEmpty
                return batch
            }
            guard !batch.isEmpty else { return }
            await perform(batch)
        }
    }

    private func perform(_ batch: [Waiting]) async {
        let requests = batch.map(\.request)
        do throws(ChatError) {
            let answers = try await database.write(operations: requests.count) { [work] transaction in
                let answers = try work(requests, transaction)
                guard answers.count == requests.count else {
                    throw PostgresError(
                        kind: .unexpected, message: "\(answers.count) results for \(requests.count) requests")
                }
                return answers
            }
            for (waiting, answer) in zip(batch, answers) { waiting.answer(answer) }
        } catch {
            if error.code == .unavailable || batch.count == 1 {
                for waiting in batch { waiting.answer(.failure(error)) }
            } else {
                for waiting in batch { await perform([waiting]) }
            }
        }
    }
}
