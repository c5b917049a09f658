/// A condition on topics, for example `'a' in topics && ('b' in topics || 'c' in topics)`.
struct FCMCondition: Sendable, Hashable {
    private enum Token: Sendable, Hashable {
        case open, close, not, and, or
        case topic(String)
    }

    /// An expression in parentheses that is being evaluated.
    private struct Frame {
        var result: Bool?
        var isAnd = true
        var isNegated = false

        mutating func take(_ operand: Bool) {
            let value = operand != isNegated
            isNegated = false
            result = result.map { isAnd ? $0 && value : $0 || value } ?? value
        }
    }

    private static let maxTopics = 5

    private let tokens: [Token]

    /// Parses a condition. `nil` unless the text is topics in quotes, joined by `&&`, `||`, `!` and parentheses.
    init?(_ text: String) {
        var (rest, tokens, topics, depth, wantsOperand) = (Substring(text), [Token](), 0, 0, true)
        while true {
            rest = rest.drop { $0 == " " }
            guard let first = rest.first else { break }
            switch (first, wantsOperand) {
            case ("(", true):
                depth += 1
                tokens.append(.open)
                rest.removeFirst()
            case (")", false) where depth > 0:
                depth -= 1
                tokens.append(.close)
                rest.removeFirst()
            case ("!", true):
                tokens.append(.not)
                rest.removeFirst()
            case ("'", true):
                let name = rest.dropFirst().prefix { $0 != "'" }
                rest = rest.dropFirst(name.count + 1)
                guard FCMMessage.isTopic(name), rest.hasPrefix("'") else { return nil }
                rest = rest.dropFirst().drop { $0 == " " }
                guard rest.hasPrefix("in topics") else { return nil }
                rest = rest.dropFirst("in topics".count)
                tokens.append(.topic(String(name)))
                (topics, wantsOperand) = (topics + 1, false)
            case ("&", false), ("|", false):
                guard rest.hasPrefix("\(first)\(first)") else { return nil }
                tokens.append(first == "&" ? .and : .or)
                rest = rest.dropFirst(2)
                wantsOperand = true
            default: return nil
            }
        }
        guard depth == 0, !wantsOperand, topics <= Self.maxTopics else { return nil }
        self.tokens = tokens
    }

    /// Whether the condition holds for an app that has subscribed to these topics.
    ///
    /// FCM evaluates parentheses first and then from left to right, so `&&` does not come before `||`.
    func holds(for topics: [String: some Any]) -> Bool {
        // A stack, because parentheses may be nested as deep as a request is long.
        var frames = [Frame()]
        for token in tokens {
            switch token {
            case .open: frames.append(Frame())
            case .close:
                let value = frames.removeLast().result ?? false
                frames[frames.count - 1].take(value)
            case .not: frames[frames.count - 1].isNegated.toggle()
            case .and: frames[frames.count - 1].isAnd = true
            case .or: frames[frames.count - 1].isAnd = false
            case .topic(let name): frames[frames.count - 1].take(topics[name] != nil)
            }
        }
        return frames[0].result ?? false
    }
}
