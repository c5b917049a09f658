/// Performs pieces of work that do not depend on each other. An error in one does not prevent the others.
///
/// - Throws: The first error, after the last piece.
package func performAll(_ pieces: [() async throws(ChatError) -> Void]) async throws(ChatError) {
    var failure: ChatError?
    for piece in pieces {
        do throws(ChatError) {
            try await piece()
        } catch {
            failure = failure ?? error
        }
    }
    if let failure { throw failure }
}
