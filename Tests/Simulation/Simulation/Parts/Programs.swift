import CSimulation
import ChatDomain
import GRDB

/// Programs that post to rooms, each with a token. The last one's token is revoked in some seeds.
final class Programs: Part {
    private static let count = 3

    private unowned let world: World
    private var isUsed = false
    private var tokens: [Int64?] = Array(repeating: nil, count: count)
    private var busy = 0
    /// The time at which the revocation began.
    private(set) var revoking: Moment?
    private var texts = 0

    init(_ world: World) { self.world = world }

    /// Returns a program's identity. `nil` if it has no token yet, or no longer. Program 0 is the operator.
    func author(_ program: Int) -> MemberID? {
        if program == 0 { return .administrator }
        return isRevoked(program) ? nil : tokens[program].map { .program(token: $0) }
    }

    static var all: Range<Int> { 0..<count }
    func isRevoked(_ program: Int) -> Bool { program == Self.count - 1 && revoking != nil }

    /// Returns the number of a new text.
    func nextText() -> Int {
        texts += 1
        return texts
    }

    /// Lets the programs get their tokens when the world begins.
    func use() { isUsed = true }

    func plan(_ choices: Choices) {
        guard choices.dice.chance(50) else { return }
        choices.add(1) { _ in ("a token is revoked", { self.revoke() }) }
    }

    func begin() {
        guard isUsed else { return }
        for program in Self.all.dropFirst() {
            busy += 1
            world.calls.insist("token of program \(program)") { stores -> Int64? in
                let name = Nickname(stored: "program \(program)")
                do {
                    return try await stores.tokens.create(name, AccessGrant(scopes: [.post]), expiresAt: nil).token.id
                } catch let error as ChatError where error.code == .conflict {
                    // An earlier attempt has succeeded.
                    return try await stores.tokens.tokens(after: nil, limit: 10).items.first { $0.name == name }?.id
                }
            } then: { [self] result in
                busy -= 1
                if case .success(let id) = result { tokens[program] = id }
            }
        }
    }

    private func revoke() {
        guard let token = tokens[Self.count - 1], revoking == nil else { return }
        revoking = .now
        busy += 1
        let isIdle = world.schedules.isIdle(Self.count - 1)
        world.calls.insist("revocation of token \(token)") { stores in
            _ = try await stores.tokens.revoke(token, by: .commandLine)
            let author = MemberID.program(token: token).text
            return try await stores.read { db in
                let sql = "SELECT count(*) FROM scheduled_messages WHERE author = ?"
                return try Int.fetchOne(db, sql: sql, arguments: [author]) ?? 0
            }
        } then: { [self] result in
            busy -= 1
            // A message may have been scheduled since.
            if isIdle, case .success(let count) = result, count > 0 {
                world.violate(.schedulesEndWithTheirToken, "\(count) messages of a revoked token are scheduled")
            }
        }
    }

    var isSettled: Bool { busy == 0 }
}
