import ChatDomain
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("The admin API: the queue by hand")
struct QueueTests {
    private static let administrator = Moderator(name: "admin", address: nil)
    private static let second = AppName("second")
    private static let depths = AdminResponses(depths: { [QueueDepth(app: second, due: 3, delayed: 1, written: 1)] })

    private func call(
        _ method: HTTPRequest.Method, _ path: String, _ json: String? = nil, to relay: Relay = relay()
    ) async throws -> (TestResponse, [FakeQueue.Call]) {
        (try await AdminTests.call(method, path, json, to: relay), relay.store.queue.calls)
    }

    private static func relay() -> Relay { Relay(ScriptedStore(admin: depths)) }

    @Test("The listing has the filter of the changes")
    func listing() async throws {
        let (answer, calls) = try await call(
            .get,
            "/v1/pushes?app=default&state=failed,expired&reason=Busy&queued_before=2026-01-01T00:00:00Z"
                + "&queued_after=2025-01-01T00:00:00Z&ids=7,-8&limit=3&cursor=-2")
        #expect(answer.status == .ok, "\(answer.text)")
        let filter = QueueFilter(
            app: .default, states: [.failed, .expired], reason: "Busy",
            queuedBefore: Timestamp(rfc3339: "2026-01-01T00:00:00Z"),
            queuedAfter: Timestamp(rfc3339: "2025-01-01T00:00:00Z"), ids: [7, -8])
        #expect(calls == [.pushes(filter, after: -2, limit: 3)])
        #expect(answer.text.hasPrefix(#"{"pushes":[{"id":7,"#) && answer.text.hasSuffix(#""next":7}"#))
        // An app that is no longer configured may have pushes.
        #expect(
            try await call(.get, "/v1/pushes?app=gone").1 == [
                .pushes(QueueFilter(app: AppName("gone")), after: nil, limit: HTTPLimits.defaultPage)
            ])
        for (query, field) in [
            ("state=lost", "state"), ("state=", "state"), ("reason=", "reason"), ("queued_before=now", "queued_before"),
            ("ids=", "ids"), ("ids=1,x", "ids"), ("cursor=x", "cursor"), ("limit=0", "limit"), ("app=", "app"),
            ("token=aa", "token"),
        ] {
            let (refused, none) = try await call(.get, "/v1/pushes?\(query)")
            #expect(refused.status == .badRequest && none.isEmpty, "\(query)")
            #expect(refused.text.contains(#""field":"\#(field)""#), "\(query): \(refused.text)")
        }
    }

    @Test("A change needs a filter or all, runs in parts, and is recorded with the caller")
    func change() async throws {
        for (path, change, action) in [
            ("/v1/queue:retry", QueueChange.retry, ModerationRecord.Action.retry),
            ("/v1/queue:cancel", .cancel, .cancel),
        ] {
            let filter = QueueFilter(app: .default, states: [.failed], reason: "Busy", ids: [1, 2])
            let body = #"{"app":"default","state":"failed","reason":"Busy","ids":[1,2]"#
            let (answer, calls) = try await call(.post, path, body + "}")
            #expect(answer.text == #"{"pushes":10,"dry_run":false,"next":null}"#)
            let subject = "app default, state failed, reason Busy, 2 push ids"
            #expect(
                calls == [
                    .record(action, subject, Self.administrator),
                    .change(change, filter, after: nil, isDryRun: false),
                    .change(change, filter, after: 50, isDryRun: false), .amend("\(subject): 10 pushes"),
                ])
            let (counted, reads) = try await call(.post, path, body + #","dry_run":true,"cursor":9}"#)
            #expect(counted.text == #"{"pushes":5,"dry_run":true,"next":null}"#)
            #expect(reads == [.change(change, filter, after: 9, isDryRun: true)])
            #expect(try await call(.post, path, #"{"all":true}"#).0.status == .ok)
            for (wrong, field) in [
                ("{}", "all"), (#"{"all":false}"#, "all"), (#"{"all":true,"app":"default"}"#, "all"),
                (#"{"ids":[]}"#, "ids"), (#"{"ids":[1.5]}"#, "ids"), (#"{"ids":"1"}"#, "ids"),
                (#"{"state":"failed","dry_run":1}"#, "dry_run"), (#"{"state":["failed"]}"#, "state"),
                (#"{"all":true,"cursor":"1"}"#, "cursor"), (#"{"al":true}"#, "al"),
            ] {
                let (refused, none) = try await call(.post, path, wrong)
                #expect(refused.status == .badRequest && none.isEmpty, "\(wrong)")
                #expect(refused.text.contains(#""field":"\#(field)""#), "\(wrong): \(refused.text)")
            }
        }
    }

    @Test("One call makes a limited number of steps, and tells where to go on")
    func limit() async throws {
        let (answer, calls) = try await call(.post, "/v1/queue:cancel", #"{"reason":"endless"}"#)
        #expect(answer.text == #"{"pushes":50,"dry_run":false,"next":50}"#)
        #expect(calls.count == HTTPLimits.queueParts + 2)
    }

    @Test("An app is paused with a reason and resumed, and a dry run changes nothing")
    func pause() async throws {
        let relay = Self.relay()
        let unpaused = #""paused_at":null,"paused_by":null,"pause_reason":null}"#
        let dry = try await call(
            .post, "/v1/queue:pause", #"{"app":"98Z3R5XU29.com.51work6.PushChat","dry_run":true}"#, to: relay)
        #expect(dry.0.text == #"{"app":"second","pushes":5,"dry_run":true,"# + unpaused)
        #expect(dry.1.isEmpty)
        let paused = try await call(
            .post, "/v1/queue:pause", #"{"app":"98Z3R5XU29.com.51work6.PushChat","reason":" a bad build "}"#, to: relay)
        #expect(
            paused.0.text
                == #"{"app":"second","pushes":5,"dry_run":false,"paused_at":"\#(Sample.time.rfc3339)","#
                + #""paused_by":"admin","pause_reason":"a bad build"}"#)
        #expect(paused.1 == [.pause(Self.second, "a bad build", Self.administrator)])
        let kept = try await call(
            .post, "/v1/queue:resume", #"{"app":"98Z3R5XU29.com.51work6.PushChat","dry_run":true}"#, to: relay)
        #expect(kept.0.text.contains(#""paused_by":"admin""#) && kept.1.count == 1)
        let resumed = try await call(
            .post, "/v1/queue:resume", #"{"app":"98Z3R5XU29.com.51work6.PushChat"}"#, to: relay)
        #expect(resumed.0.text == #"{"app":"second","pushes":5,"dry_run":false,"# + unpaused)
        #expect(resumed.1.last == .resume(Self.second, Self.administrator))
        // Resuming twice succeeds, and writes no second record.
        #expect(
            try await call(.post, "/v1/queue:resume", #"{"app":"98Z3R5XU29.com.51work6.PushChat"}"#, to: relay).1.count
                == 2)
        #expect(try await call(.post, "/v1/queue:pause", #"{"app":"webpush"}"#).0.status == .ok)
        for path in ["/v1/queue:pause", "/v1/queue:resume"] {
            for body in ["{}", #"{"app":""}"#, #"{"app":"gone"}"#, #"{"app":7}"#] {
                let (refused, none) = try await call(.post, path, body)
                #expect(refused.status == .badRequest && none.isEmpty, "\(body)")
                #expect(refused.text.contains(#""field":"app""#), "\(refused.text)")
            }
        }
    }
}
