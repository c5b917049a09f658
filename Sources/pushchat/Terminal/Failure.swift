/// An error that ends a command with status 1 and its text on standard error.
struct Failure: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }

    /// Converts every error of `work` into a ``Failure`` with the same text.
    static func catching<Result>(_ work: () throws -> Result) throws -> Result {
        do {
            return try work()
        } catch {
            throw Failure("\(error)")
        }
    }
}
