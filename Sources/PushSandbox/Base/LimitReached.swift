/// The sandbox has reached a limit. The text names it.
struct LimitReached: Error {
    let text: String
}
