import Hummingbird
import NIOCore

/// The pages for people.
struct Pages: Sendable {
    let settings: @Sendable () -> ChatHTTPSettings
    let health: Health

    func chat(_ request: Request, _ context: ChatContext) -> Response {
        WebFiles.chat(textLimit: settings().textLimit).answer(request)
    }

    func testIndex(_ request: Request, _ context: ChatContext) throws(ErrorAnswer) -> Response {
        try requireDevelopment()
        return Answers.html(TestIndexPage.html)
    }

    /// The tutorial's test of the database.
    func database(_ request: Request, _ context: ChatContext) async throws(ErrorAnswer) -> Response {
        try requireDevelopment()
        guard let problem = await health.databaseProblem(context) else {
            return Answers.html(DatabasePage.success)
        }
        return Answers.html(DatabasePage.failure(problem), status: .serviceUnavailable)
    }

    func handler(of form: TestForm) -> @Sendable (Request, ChatContext) throws -> Response {
        let page = form.html
        return { _, _ in
            try requireDevelopment()
            return Answers.html(page)
        }
    }

    private func requireDevelopment() throws(ErrorAnswer) {
        guard settings().isDevelopment else { throw .notFound }
    }
}
