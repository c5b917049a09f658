/// Performs pieces of work that do not depend on each other. An error in one does not prevent the others.
package struct FirstError {
    private var error: ChatError?

    package init() {}

    package mutating func collect(_ piece: () async throws(ChatError) -> Void) async {
        do throws(ChatError) {
            try await piece()
        } catch {
            self.error = self.error ?? error
        }
    }

    /// Throws the first error of the pieces, if there was one.
    package func rethrow() throws(ChatError) {
        if let error { throw error }
    }
}
