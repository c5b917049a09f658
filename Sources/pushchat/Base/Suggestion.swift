/// Finds the known word that is most similar to an unknown one.
enum Suggestion {
    /// Longer words are not compared, because the time grows with the product of both lengths.
    private static let maxLength = 100

    /// Returns the nearest known word. `nil` if none is near: one difference per three letters counts as a typing
    /// error, more as another word.
    static func nearest(to word: String, among known: some Sequence<String>) -> String? {
        let plain = normalised(word)
        guard plain.count <= maxLength else { return nil }
        var best: (word: String, distance: Int)?
        for candidate in known {
            let other = normalised(candidate)
            let distance = distance(plain, other)
            let tolerance = max(1, min(plain.count, other.count) / 3)
            if distance <= tolerance, distance < best?.distance ?? .max {
                best = (candidate, distance)
            }
        }
        return best?.word
    }

    /// Returns the number of letters to insert, remove, replace, or swap with their neighbor.
    static func distance(_ left: [Character], _ right: [Character]) -> Int {
        var beforeLast: [Int] = []
        var last = Array(0...right.count)
        for row in left.indices {
            var current = [row + 1]
            for column in right.indices {
                var cost = min(
                    last[column] + (left[row] == right[column] ? 0 : 1), last[column + 1] + 1, current[column] + 1)
                if row > 0, column > 0, left[row] == right[column - 1], left[row - 1] == right[column] {
                    cost = min(cost, beforeLast[column - 1] + 1)
                }
                current.append(cost)
            }
            (beforeLast, last) = (last, current)
        }
        return last[right.count]
    }

    private static func normalised(_ word: String) -> [Character] {
        Array(word.lowercased().replacing("-", with: "_"))
    }
}
