import ChatDomain
import HTTPTypes
import Testing

@testable import ChatHTTP

@Suite("Errors")
struct ErrorResponseTests {
    @Test(
        "Each code has its status",
        arguments: [
            (.unknownCommand, 400), (.missingField, 400), (.invalidField, 400), (.malformedRequest, 400),
            (.notJoined, 404), (.forbidden, 403), (.tooLarge, 413), (.unsupportedMediaType, 415),
            (.idempotencyConflict, 422),
            (.notFound, 404), (.ambiguous, 409), (.conflict, 409), (.unauthorized, 401), (.tooManyRequests, 429),
            (.internalError, 500),
            (.unavailable, 503),
        ] as [(ChatError.Code, Int)])
    func statuses(code: ChatError.Code, status: Int) async throws {
        let relay = Relay(
            ScriptedStore(post: { () throws(ChatError) in throw ChatError(code, "why", cause: "secret") }))
        let answer = try await relay.form(Sample.message)
        #expect(answer.status.code == status)
        #expect(answer.header("X-Error-Description") != nil)
        #expect(!answer.text.contains("secret"))
        #expect(answer.headers[.cacheControl] == "no-store")
    }

    @Test("The table of the test has every code")
    func complete() {
        #expect(ChatError.Code.allCases.count == 16)
    }

    @Test("The cause of an internal error is only in the log")
    func internalError() async throws {
        let relay = Relay(
            ScriptedStore(post: { () throws(ChatError) in
                throw ChatError(.internalError, "table messages is gone", cause: "SQLITE_CORRUPT")
            }))
        for headers in [[:], [.accept: "application/json"]] as [HTTPFields] {
            let answer = try await relay.form(Sample.message, headers: headers)
            #expect(answer.status == .internalServerError)
            #expect(!"\(answer.headers)\(answer.text)".contains("table messages"))
            #expect(!"\(answer.headers)\(answer.text)".contains("SQLITE"))
        }
        let line = try #require(relay.log.lines.first { $0.hasPrefix("error request failed") })
        #expect(line.contains("cause=table messages is gone (SQLITE_CORRUPT)"))
        #expect(line.contains("request_id="))
    }

    @Test(
        "Retry-After is in whole seconds, rounded up",
        arguments: [(.milliseconds(1), "1"), (.seconds(2), "2"), (.milliseconds(2001), "3"), (.zero, "1")]
            as [(Duration, String)])
    func retryAfter(wait: Duration, seconds: String) async throws {
        let relay = Relay(
            ScriptedStore(post: { () throws(ChatError) in throw .unavailable(retryAfter: wait, cause: "disk full") }))
        let answer = try await relay.form(Sample.message)
        #expect(answer.status == .serviceUnavailable)
        #expect(answer.headers[.retryAfter] == seconds)
        #expect(!answer.text.contains("disk full"))
    }

    @Test("With Accept: application/json an error is JSON and still has its header")
    func json() async throws {
        let answer = try await Relay().form("cmd=leave", headers: [.accept: "application/json"])
        #expect(answer.status == .badRequest)
        #expect(answer.headers[.contentType] == "application/json")
        #expect(answer.text == #"{"error":{"code":"missing_field","message":"Missing udid","field":"udid"}}"#)
        #expect(answer.header("X-Error-Description") == "Missing udid")
        let missing = try await Relay().send(.get, "/nowhere", headers: [.accept: "application/json"])
        #expect(
            missing.text == #"{"error":{"code":"not_found","message":"There is nothing at this address"}}"#)
    }

    @Test("An error's header is one line of ASCII, whatever the message contains")
    func headerIsASCII() {
        let headers = ErrorResponse(ChatError(.invalidField, "näme\r\nSet-Cookie: x\u{0}😀")).headers
        #expect(headers[.errorDescription] == "n?me??Set-Cookie: x??")
    }

    @Test("An unknown address gets a 404 in the same style, for any method", arguments: ["GET", "POST", "DELETE"])
    func notFound(method: String) async throws {
        let answer = try await Relay().send(try #require(HTTPRequest.Method(method)), "/nowhere/at/all")
        #expect(answer.status == .notFound)
        #expect(answer.text == "There is nothing at this address\n")
        #expect(answer.header("X-Error-Description") == "There is nothing at this address")
        #expect(answer.header("X-Request-Id") != nil)
    }

    @Test(
        "A browser that opens an unknown address gets a page",
        arguments: ["/nowhere", "/v1/nowhere", "/admin/x", "/%3Cscript%3E"])
    func page(path: String) async throws {
        let accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
        let page = try await Relay().send(.get, path, headers: [.accept: accept])
        #expect(page.status == .notFound)
        #expect(page.headers[.contentType] == "text/html; charset=utf-8")
        #expect(page.text.hasPrefix("<!DOCTYPE html>") && page.text.contains("Open the chat</a>"))
        #expect(!page.text.contains("nowhere") && !page.text.contains("script"))
        #expect(page.header("Content-Security-Policy")?.contains("default-src 'none'") == true)
        #expect(page.headers[.cacheControl] == "no-store")
        #expect(page.header("X-Error-Description") == "There is nothing at this address")
        for (method, accept) in [(HTTPRequest.Method.post, accept), (.get, "*/*"), (.get, "text/plain")] {
            let answer = try await Relay().send(method, path, headers: [.accept: accept])
            #expect(answer.status == .notFound && answer.headers[.contentType] != "text/html; charset=utf-8")
        }
    }

    @Test("A missing thing at a known address is an error in JSON or text, for browsers as well")
    func missingThing() async throws {
        let answer = try await Relay().send(.get, "/webpush/key", headers: [.accept: "text/html"])
        #expect(answer.status == .notFound)
        #expect(answer.text.contains("This relay sends no pushes to browsers"))
    }

    @Test(
        "A known address with another method gets a 405 with the methods that it supports",
        arguments: [
            ("GET", "/api.php", "POST"), ("HEAD", "/api.php", "POST"), ("PUT", "/api", "POST"),
            ("OPTIONS", "/api.php", "POST"), ("PUT", "/", "GET, HEAD, POST"), ("DELETE", "/healthz", "GET, HEAD"),
        ])
    func methodNotAllowed(method: String, path: String, allow: String) async throws {
        let answer = try await Relay().send(try #require(HTTPRequest.Method(method)), path)
        #expect(answer.status == .methodNotAllowed)
        #expect(answer.headers[.allow] == allow)
        #expect(answer.text == (method == "HEAD" ? "" : "This address accepts only \(allow)\n"))
    }

    @Test("A valid X-Request-Id is kept, an invalid one replaced", arguments: [true, false])
    func requestID(isValid: Bool) async throws {
        let name = try #require(HTTPField.Name("X-Request-Id"))
        for given in isValid
            ? ["abc-123", "A/b+c=", "01J:x@y.z_"] : ["", "a b", "ü", String(repeating: "x", count: 129)]
        {
            let relay = Relay(ScriptedStore(leave: { true }))
            let answer = try await relay.form(Sample.leave, headers: [name: given])
            let id = try #require(answer.headers[name])
            #expect((id == given) == isValid)
            #expect(!id.isEmpty)
            #expect(relay.log.lines.contains { $0.contains("request_id=\(id)") })
        }
    }
}
