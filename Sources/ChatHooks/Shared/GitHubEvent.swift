import ChatDomain

/// An event of GitHub. Gitea and Forgejo send the same, with a few other members.
struct GitHubEvent {
    private let name: String
    private let body: JSONObject
    private let project: ForgeProject

    /// - Parameters:
    ///   - name: The event's name, of a header.
    ///   - prefix: The prefix of keys.
    init(_ name: String?, _ request: HookRequest, prefix: String) throws(HookRefusal) {
        let body = try request.object(in: "payload")
        guard let event = HookText.shortWord(name) else {
            throw .unreadable("the request has no header with the event's name")
        }
        self.name = event
        self.body = body
        let name = body.text("repository", "full_name") ?? body.text("run", "repository", "full_name")
        project = ForgeProject(prefix: prefix, name: name ?? "repository")
    }

    private var action: String { body.text("action") ?? "" }
    private var person: String { body.text("sender", "login") ?? body.text("pusher", "name") ?? "someone" }

    func draft() throws(HookRefusal) -> HookDraft {
        switch name {
        case "ping": throw .ignored("a test of the connection")
        case "push": return push
        case "pull_request": return try change("pull request", "pull_request")
        case "issues": return try change("issue", "issue")
        case "issue_comment", "pull_request_comment": return try comment()
        case "pull_request_review", "pull_request_approved", "pull_request_rejected": return try review()
        case "workflow_run": return try build()
        case "action_run_failure", "action_run_recover", "action_run_success": return run
        case "release":
            guard action == "published" else { throw ignored }
            let release = body.object("release") ?? [:]
            return project.release(
                release.text("tag_name") ?? "a version", release.text("body") ?? release.text("name"),
                link: release.text("html_url"))
        default: throw ignored
        }
    }

    private var ignored: HookRefusal {
        .ignored(action.isEmpty ? "the event \(name) is not shown" : "\(action) of the event \(name) is not shown")
    }

    private var push: HookDraft {
        let commits = body.objects("commits")
        let isDeleted = ForgeProject.isNothing(body.text("after"))
        return project.push(
            by: body.text("pusher", "name") ?? person, to: body.text("ref") ?? "",
            commits.compactMap { $0.text("message") },
            count: body.value(["total_commits"])?.integer.map { Int(clamping: $0) } ?? commits.count,
            isDeleted: isDeleted, isForced: body["forced"] == .bool(true),
            // Nothing is left to compare with a branch that is gone.
            link: isDeleted ? body.text("repository", "html_url") : body.text("compare") ?? body.text("compare_url"))
    }

    private func change(_ kind: String, _ member: String) throws(HookRefusal) -> HookDraft {
        let thing = body.object(member) ?? [:]
        let isMerged = thing["merged"] == .bool(true)
        guard let number = body.text("number") ?? thing.text("number") else {
            throw .unreadable("the JSON has no \(member).number")
        }
        let verb: String? =
            switch action {
            case "opened", "reopened": action
            case "closed": isMerged ? "merged" : "closed"
            case "ready_for_review": "finished the draft of"
            default: nil
            }
        guard let verb else { throw ignored }
        return project.change(
            of: kind, number, thing.text("title"), verb, by: person, link: thing.text("html_url"),
            hasEnded: action == "closed")
    }

    private func comment() throws(HookRefusal) -> HookDraft {
        guard action == "created" else { throw ignored }
        let number = body.text("issue", "number") ?? body.text("pull_request", "number") ?? "?"
        return project.comment(
            on: "commented on #\(number)", body.text("comment", "body"), by: person,
            link: body.text("comment", "html_url"))
    }

    private func review() throws(HookRefusal) -> HookDraft {
        let state = body.text("review", "state") ?? body.text("review", "type") ?? name
        // A review with only comments is announced by its comments.
        let verb: String
        if state.hasSuffix("approved") {
            verb = "approved"
        } else if state == "changes_requested" || state.hasSuffix("rejected") {
            verb = "requested changes on"
        } else {
            throw ignored
        }
        let number = body.text("pull_request", "number") ?? "?"
        return project.comment(
            on: "\(verb) #\(number)", body.text("review", "body") ?? body.text("review", "content"), by: person,
            link: body.text("review", "html_url") ?? body.text("pull_request", "html_url"))
    }

    private func build() throws(HookRefusal) -> HookDraft {
        let run = body.object("workflow_run") ?? [:]
        let conclusion = run.text("conclusion") ?? ""
        let hasPassed = conclusion == "success"
        guard action == "completed", hasPassed || ["failure", "timed_out", "startup_failure"].contains(conclusion)
        else {
            throw ignored
        }
        var branch = run.text("head_branch") ?? "a branch"
        let main = body.text("repository", "default_branch")
        var isMain = main.map { $0 == branch } ?? true
        // Anyone can open a pull request from the main branch of a fork, and delete the fork: then the value is null.
        let fork = run.text("head_repository", "full_name")
        if run["head_repository"] != nil, fork != body.text("repository", "full_name") {
            (branch, isMain) = ("\(fork ?? "a deleted fork"):\(branch)", false)
        }
        return project.build(
            run.text("name") ?? body.text("workflow", "name") ?? "A workflow",
            id: run.text("workflow_id") ?? body.text("workflow", "id"), of: branch, isMain: isMain,
            hasPassed: hasPassed,
            run: "\(run.text("id") ?? "").\(run.text("run_attempt") ?? "1")", text: run.text("display_title"),
            link: run.text("html_url"))
    }

    /// The message about a run of Forgejo's actions. The event's name has the result.
    private var run: HookDraft {
        let run = body.object("run") ?? [:]
        let isFork = run["is_fork_pull_request"] == .bool(true)
        let (branch, main) = (run.text("prettyref") ?? "a branch", run.text("repository", "default_branch"))
        return project.build(
            run.text("workflow_id") ?? "A workflow", of: isFork ? "\(branch) of a fork" : branch,
            isMain: !isFork && main.map { $0 == branch } ?? true, hasPassed: name != "action_run_failure",
            run: run.text("id") ?? "", text: run.text("title"), link: run.text("html_url"))
    }
}
