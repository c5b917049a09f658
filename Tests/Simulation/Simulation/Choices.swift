import CSimulation

/// The decisions of a seed before its run begins: sizes, faults, and the events of the script.
///
/// Each choice can be dropped without effect on the others, because all of them draw their numbers first. So the fewest
/// choices that still fail are found without knowing any of them (``Runner``).
final class Choices {
    struct Choice {
        let moment: Moment
        let text: String
        let act: () -> Void
    }

    /// For deciding. Not for peers and clients, which roll their own dice while the world runs.
    let dice = Dice(stream: simulation_plan)
    private(set) var all: [Choice] = []
    /// The numbers of the choices that take effect. `nil` for all.
    private let kept: NumberSet?
    /// The time from which the script is calm.
    let end: Moment
    /// Moments around which events gather, because faults matter most while much is under way.
    private let busy: [Moment]

    init(kept: NumberSet?) {
        self.kept = kept
        let length = Duration.seconds(dice.among([5, 20, 45, 90]))
        end = .now + length
        busy = (0..<dice.within(1...5)).map { [dice] _ in .now + dice.within(.zero...length) }
    }

    /// Adds something that holds from the beginning, or happens at a moment.
    func add(at moment: Moment = .now, _ text: String, _ act: @escaping () -> Void) {
        all.append(Choice(moment: moment, text: text, act: act))
    }

    /// Adds an event at each of some random moments of the script.
    func add(_ count: Int, _ event: (Dice) -> (text: String, act: () -> Void)) {
        for _ in 0..<count {
            let rest = Duration.nanoseconds(end.nanoseconds - Moment.now.nanoseconds)
            let any = Moment.now + dice.within(.zero...rest)
            let nearby = dice.among(busy) + dice.within(.zero...(.milliseconds(500)))
            let moment = dice.chance(50) ? any : min(nearby, end)
            let (text, act) = event(dice)
            add(at: moment, text, act)
        }
    }

    /// Performs the choices from now on, each at its moment, until the faults end.
    func begin(in world: World) {
        for (number, choice) in all.enumerated() where kept?.contains(number) ?? true {
            let perform = {
                // Time may pass beyond both moments at once.
                guard !world.isCalm else { return }
                world.log("choice \(number): \(choice.text)")
                choice.act()
            }
            if choice.moment <= .now { perform() } else { simulation_world.run(at: choice.moment, perform) }
        }
    }
}

/// Numbers, written as `1-3,7` or `none`.
struct NumberSet: CustomStringConvertible {
    private(set) var numbers: Set<Int>

    init(_ numbers: some Sequence<Int> = []) { self.numbers = Set(numbers) }

    /// `nil` if the text has another form.
    init?(parsing text: some StringProtocol) {
        numbers = []
        if text == "none" { return }
        for part in text.split(separator: ",") {
            let ends = part.split(separator: "-").map { Int($0) }
            guard let first = ends.first ?? nil, let last = ends.last ?? nil, ends.count < 3, first <= last else {
                return nil
            }
            numbers.formUnion(first...last)
        }
    }

    func contains(_ number: Int) -> Bool { numbers.contains(number) }

    var description: String {
        var runs: [ClosedRange<Int>] = []
        for number in numbers.sorted() {
            if let last = runs.last, last.upperBound + 1 == number {
                runs[runs.count - 1] = last.lowerBound...number
            } else {
                runs.append(number...number)
            }
        }
        return runs.isEmpty
            ? "none"
            : runs.map { $0.count == 1 ? "\($0.lowerBound)" : "\($0.lowerBound)-\($0.upperBound)" }
                .joined(separator: ",")
    }
}
