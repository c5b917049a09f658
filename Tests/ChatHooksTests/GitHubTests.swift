import ChatDomain
import Testing

@testable import ChatHooks

@Suite("Events of GitHub, Gitea and Forgejo")
struct GitHubTests {
    /// The event of a forge, with the members that every event has.
    private static func event(_ name: String, _ members: String, forge: String = "github") -> HookOutcome {
        let repository = #""repository":{"full_name":"o/r","default_branch":"main"},"sender":{"login":"ann"}"#
        return read(forge, "{\(members),\(repository)}", headers: ["x-\(forge)-event": name])
    }

    private static func only(_ outcome: HookOutcome) -> HookDraft? { outcome.draft }

    @Test("A push shows its commits", arguments: ["github", "gitea"])
    func push(forge: String) throws {
        let commits = (1...7).map { #"{"id":"a\#($0)","message":"Step \#($0)\n\nBody"}"# }.joined(separator: ",")
        let push = try #require(
            Self.only(
                Self.event(
                    "push",
                    #""ref":"refs/heads/main","before":"1","after":"2","forced":false,"compare":"https://example/c","compare_url":"https://example/c","commits":[\#(commits)],"pusher":{"name":"ann"}"#,
                    forge: forge)))
        #expect(push.title == "o/r" && push.link == "https://example/c" && push.key == nil)
        #expect(
            push.text == "ann pushed 7 commits to main\n• Step 1\n• Step 2\n• Step 3\n• Step 4\n• Step 5\n… and 2 more")
    }

    @Test(
        "Branches and tags come and go",
        arguments: [
            (
                #""ref":"refs/heads/x","after":"0000000000000000000000000000000000000000","head_commit":null,"commits":[]"#,
                "ann deleted branch x"
            ),
            (#""ref":"refs/tags/v1","after":"a1","commits":[]"#, "ann pushed tag v1"),
            (
                #""ref":"refs/heads/x","after":"a1","forced":true,"commits":[{"message":"One"}]"#,
                "ann force-pushed 1 commit to x\n• One"
            ),
            (#""ref":"refs/heads/x","after":"a1","commits":[]"#, "ann pushed to x"),
        ])
    func refs(members: String, text: String) {
        let links = #","pusher":{"name":"ann"},"compare":"https://example/c""#
        let push = Self.only(Self.event("push", members + links))
        // A comparison with a branch that is gone is not there.
        #expect(push?.text == text && (push?.link == "https://example/c") != text.contains("deleted"))
    }

    @Test("A pull request is one message from its opening to its end", arguments: ["github", "gitea"])
    func pullRequest(forge: String) throws {
        func pull(_ action: String, merged: Bool = false) -> HookOutcome {
            Self.event(
                "pull_request",
                #""action":"\#(action)","number":5,"pull_request":{"number":5,"title":"Mend the door","html_url":"https://example/5","merged":\#(merged),"user":{"login":"bob"}}"#,
                forge: forge)
        }
        let opened = try #require(Self.only(pull("opened")))
        #expect(opened.title == "Mend the door (#5)" && opened.text == "ann opened pull request #5 in o/r")
        #expect(opened.state == .event && opened.link == "https://example/5")
        let merged = try #require(Self.only(pull("closed", merged: true)))
        #expect(merged.text == "ann merged pull request #5 in o/r" && merged.state == .resolved)
        #expect(merged.key == opened.key && opened.key != nil)
        #expect(Self.only(pull("closed"))?.text == "ann closed pull request #5 in o/r")
        #expect(pull("synchronize") == .ignored("synchronize of the event pull_request is not shown"))
    }

    @Test("The next success of a branch resolves its failed workflow")
    func workflow() throws {
        func run(
            _ id: Int, _ conclusion: String, branch: String = "main", action: String = "completed",
            from: String = #"{"full_name":"o/r"}"#,
            workflow: Int = 1
        ) -> HookOutcome {
            Self.event(
                "workflow_run",
                #""action":"\#(action)","workflow_run":{"id":\#(id),"workflow_id":\#(workflow),"head_repository":\#(from),"name":"CI","conclusion":"\#(conclusion)","html_url":"https://example/r/\#(id)","head_branch":"\#(branch)","run_attempt":1,"display_title":"Mend"}"#
            )
        }
        let failed = try #require(Self.only(run(7, "failure")))
        #expect(
            failed.title == "CI failed on main" && failed.text == "Mend\no/r" && failed.link == "https://example/r/7")
        #expect(failed.state == .firing && failed.urgency == .urgent)
        let again = try #require(Self.only(run(8, "timed_out")))
        #expect(again.key == failed.key && again.firing.keys != failed.firing.keys)
        let passed = try #require(Self.only(run(9, "success")))
        #expect(passed.title == "CI passed on main" && passed.state == .resolved && passed.key == failed.key)
        #expect(!passed.standsAlone)
        // Another workflow of the same name.
        #expect(Self.only(run(9, "success", workflow: 2))?.key != failed.key)
        #expect(
            Self.only(run(9, "success", branch: "2x", workflow: 1))?.key
                != Self.only(run(9, "success", branch: "x", workflow: 12))?.key)
        let other = try #require(Self.only(run(9, "failure", branch: "door")))
        #expect(other.key != failed.key && other.urgency == .usual)
        // A pull request from a fork's main branch neither wakes people nor ends the alarm.
        for (from, branch) in [(#"{"full_name":"eve/r"}"#, "eve/r:main"), ("null", "a deleted fork:main")] {
            let fork = try #require(Self.only(run(10, "failure", from: from)))
            #expect(fork.key != failed.key && fork.urgency == .usual && fork.title == "CI failed on \(branch)")
            #expect(Self.only(run(11, "success", from: from))?.key == fork.key)
        }
        #expect(Self.only(run(9, "cancelled")) == nil && Self.only(run(9, "", action: "requested")) == nil)
    }

    @Test("Forgejo's recovery of a branch resolves its failed run, and a fork's does not")
    func action() throws {
        func run(_ event: String, _ ref: String = "main", isFork: Bool = false) throws -> HookDraft {
            let repository = #"{"full_name":"o/r","default_branch":"main"}"#
            let body =
                #"{"action":"x","run":{"id":7,"title":"Mend","workflow_id":"ci.yml","prettyref":"\#(ref)","#
                + #""is_fork_pull_request":\#(isFork),"html_url":"https://example/r/7","repository":\#(repository)}}"#
            return try #require(draft("forgejo", body, headers: ["x-forgejo-event": "action_run_\(event)"]))
        }
        let failed = try run("failure")
        #expect(failed.title == "ci.yml failed on main" && failed.text == "Mend\no/r" && failed.urgency == .urgent)
        #expect(failed.state == .firing && failed.link == "https://example/r/7")
        for event in ["recover", "success"] {
            let passed = try run(event)
            #expect(passed.key == failed.key && passed.state == .resolved && !passed.standsAlone, "\(event)")
            #expect(try run(event, isFork: true).key != failed.key && run(event, "#5").key != failed.key)
        }
        #expect(try run("failure", isFork: true).urgency == .usual && run("failure", "#5").urgency == .usual)
    }

    @Test("Issues, comments, reviews and releases")
    func others() {
        let issue = Self.only(
            Self.event(
                "issues", #""action":"opened","issue":{"number":3,"title":"It leaks","html_url":"https://example/3"}"#))
        #expect(issue?.title == "It leaks (#3)" && issue?.text == "ann opened issue #3 in o/r")
        let comment = Self.only(
            Self.event(
                "issue_comment",
                #""action":"created","issue":{"number":3},"comment":{"body":"Me too","html_url":"https://example/c"}"#))
        #expect(comment?.title == "ann commented on #3 in o/r" && comment?.text == "Me too" && comment?.key == nil)
        let review = Self.only(
            Self.event(
                "pull_request_review",
                #""action":"submitted","pull_request":{"number":5},"review":{"state":"approved","body":null,"html_url":"https://example/v"}"#
            ))
        #expect(review?.text == "ann approved #5 in o/r")
        let release = Self.only(
            Self.event(
                "release",
                #""action":"published","release":{"tag_name":"v1","name":"One","body":"","html_url":"https://example/v1"}"#
            ))
        #expect(release?.title == "o/r released v1" && release?.text == "One")
    }

    @Test("Tests of the connection and other events post nothing")
    func ignored() {
        #expect(Self.event("ping", #""zen":"Keep it simple.","hook_id":1"#) == .ignored("a test of the connection"))
        #expect(Self.event("star", #""action":"created""#) == .ignored("created of the event star is not shown"))
        #expect(
            Self.event("pull_request_review_comment", #""action":"created""#)
                == .ignored("created of the event pull_request_review_comment is not shown"))
        let rejected = Self.only(
            Self.event(
                "pull_request_rejected",
                #""action":"reviewed","pull_request":{"number":5},"review":{"type":"pull_request_review_rejected","content":"No"}"#,
                forge: "gitea"))
        #expect(rejected?.title == "ann requested changes on #5 in o/r" && rejected?.text == "No")
        #expect(read("github", "{}") == .unreadable("the request has no header with the event's name"))
    }

    @Test("The JSON may be in the field of a form or in the query")
    func form() {
        let json = #"{"ref":"refs/tags/v1","after":"1","pusher":{"name":"ann"},"repository":{"full_name":"o/r"}}"#
        for format in ["github", "gitea"] {
            let headers = ["x-\(format)-event": "push"]
            let body = "payload=%7B"
            #expect(draft(format, body, headers: headers, form: ["payload": json])?.text == "ann pushed tag v1")
            #expect(draft(format, "", headers: headers, query: ["payload": json])?.text == "ann pushed tag v1")
        }
    }
}
