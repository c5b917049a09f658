import ChatDomain
import Testing

@testable import ChatHooks

@Suite("GitLab's events")
struct GitLabTests {
    private static let common =
        #""project":{"id":1,"path_with_namespace":"g/p","web_url":"https://lab.example/g/p","default_branch":"main"},"user":{"username":"ann","name":"Ann"}"#

    private static func event(_ kind: String, _ members: String) -> HookOutcome {
        read("gitlab", #"{"object_kind":"\#(kind)",\#(members),\#(common)}"#, headers: ["x-gitlab-event": "X Hook"])
    }

    private static func only(_ outcome: HookOutcome) -> HookDraft? { outcome.draft }

    @Test("A pipeline that fails and then succeeds is one message")
    func pipeline() throws {
        func pipeline(_ id: Int, _ status: String) -> HookOutcome {
            Self.event(
                "pipeline",
                #""object_attributes":{"id":\#(id),"ref":"main","status":"\#(status)"},"commit":{"title":"Mend"}"#)
        }
        let failed = try #require(Self.only(pipeline(31, "failed")))
        #expect(failed.title == "Pipeline failed on main" && failed.text == "Mend\ng/p")
        #expect(failed.link == "https://lab.example/g/p/-/pipelines/31" && failed.urgency == .urgent)
        let passed = try #require(Self.only(pipeline(32, "success")))
        #expect(passed.key == failed.key && passed.state == .resolved && !passed.standsAlone)
        #expect(pipeline(33, "running") == .ignored("a pipeline that is running"))
    }

    @Test("A pipeline of a fork neither wakes people nor ends the alarm of the project's own branch")
    func fork() throws {
        func pipeline(_ status: String, _ merge: String) throws -> HookDraft {
            let outcome = Self.event(
                "pipeline",
                #""object_attributes":{"id":31,"ref":"main","status":"\#(status)"},"merge_request":\#(merge)"#)
            return try #require(outcome.draft)
        }
        let own = try pipeline("failed", "null")
        #expect(own.urgency == .urgent)
        #expect(try pipeline("failed", #"{"iid":4,"source_project_id":1,"target_project_id":1}"#) == own)
        for merge in [
            #"{"iid":4,"source_project_id":2,"target_project_id":1}"#,
            // The fork has been deleted.
            #"{"iid":4,"source_project_id":null,"target_project_id":1}"#, #"{"iid":4}"#,
        ] {
            let failed = try pipeline("failed", merge)
            #expect(failed.urgency == .usual && failed.title == "Pipeline failed on main of !4", "\(merge)")
            let passed = try pipeline("success", merge)
            #expect(passed.key == failed.key && passed.key != own.key && passed.state == .resolved, "\(merge)")
        }
    }

    @Test("A failed job is one message, which a success of the same pipeline resolves")
    func job() throws {
        func job(_ id: Int, _ status: String, pipeline: Int = 7, name: String = "unit", mayFail: Bool = false)
            -> HookOutcome
        {
            let members =
                #""ref":"main","build_id":\#(id),"build_name":"\#(name)","build_status":"\#(status)","#
                + #""build_allow_failure":\#(mayFail),"pipeline_id":\#(pipeline),"commit":{"message":"Mend\n\nIt"}"#
            return Self.event("build", members)
        }
        let failed = try #require(job(1, "failed").draft)
        #expect(failed.title == "Job unit failed on main" && failed.text == "Mend\ng/p" && failed.urgency == .usual)
        #expect(failed.link == "https://lab.example/g/p/-/jobs/1" && failed.state == .firing)
        let passed = try #require(job(2, "success").draft)
        #expect(passed.key == failed.key && passed.state == .resolved && !passed.standsAlone)
        // Another pipeline may be a fork's.
        #expect(job(3, "success", pipeline: 8).draft?.key != failed.key)
        #expect(job(3, "success", name: "lint").draft?.key != failed.key)
        #expect(job(1, "running") == .ignored("a job that is running") && job(1, "failed", mayFail: true).draft == nil)
    }

    @Test("A merge request is one message from its opening to its end")
    func mergeRequest() throws {
        func merge(_ action: String) -> HookOutcome {
            Self.event(
                "merge_request",
                #""object_attributes":{"id":99,"iid":4,"title":"Mend","url":"https://lab.example/4","action":"\#(action)"}"#
            )
        }
        let opened = try #require(Self.only(merge("open")))
        #expect(opened.title == "Mend (#4)" && opened.text == "ann opened merge request #4 in g/p")
        let merged = try #require(Self.only(merge("merge")))
        #expect(merged.key == opened.key && merged.state == .resolved && merged.text.hasPrefix("ann merged"))
        #expect(merge("update") == .ignored("update of a merge request"))
    }

    @Test("Pushes, comments, issues and releases")
    func others() {
        let push = Self.only(
            Self.event(
                "push",
                #""ref":"refs/heads/main","after":"1","user_username":"ann","total_commits_count":30,"commits":[{"message":"One","url":"https://lab.example/c/1"}]"#
            ))
        #expect(
            push?.text == "ann pushed 30 commits to main\n• One\n… and 29 more"
                && push?.link == "https://lab.example/c/1")
        let note = Self.only(
            Self.event(
                "note", #""object_attributes":{"note":"Fine","url":"https://lab.example/n"},"merge_request":{"iid":4}"#)
        )
        #expect(note?.title == "ann commented on #4 in g/p" && note?.text == "Fine")
        let issue = Self.only(Self.event("issue", #""object_attributes":{"iid":2,"title":"Leak","action":"close"}"#))
        #expect(issue?.text == "ann closed issue #2 in g/p" && issue?.state == .resolved)
        let release = Self.only(
            Self.event("release", #""action":"create","tag":"v1","description":"New","url":"https://lab.example/v1""#))
        #expect(release?.title == "g/p released v1" && release?.text == "New")
        #expect(Self.event("wiki_page", #""id":1"#) == .ignored("the event wiki_page is not shown"))
        guard case .ignored(let reason) = Self.event(String(repeating: "x", count: 9999), #""a":1"#) else {
            Issue.record("not ignored")
            return
        }
        #expect(reason.utf8.count <= 300)
        #expect(read("gitlab", "{}") == .unreadable("the JSON has no object_kind"))
    }
}
