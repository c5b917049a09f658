import ChatDomain

/// GitLab's webhooks of projects and groups.
enum GitLabFormat: HookFormat {
    static let name = "gitlab"
    static let title = "GitLab"
    static let isSigned = true

    /// GitLab sends its secret token itself, and signs with its signing token as Standard Webhooks describe. A secret of
    /// that form is valid as either.
    static func verify(_ request: HookRequest, secret: String, now: Timestamp) -> Bool {
        HookSignature.isSecret(request.headers["x-gitlab-token"], secret)
            || HookSignature.isStandard(request, secret: secret, now: now)
    }

    /// The signature covers the first of the two headers.
    static func deliveryID(_ request: HookRequest) -> String? { request.deliveryID("webhook-id", "idempotency-key") }

    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft {
        let body = try request.object()
        let details = body.object("object_attributes") ?? [:]
        let project = ForgeProject(
            prefix: "gl",
            name: body.text("project", "path_with_namespace") ?? body.text("project", "name")
                ?? body.text("project_name") ?? "project")
        let person = body.text("user", "username") ?? body.text("user_username") ?? body.text("user_name") ?? "someone"
        let link = details.text("url")
        switch body.text("object_kind") {
        case nil: throw .unreadable("the JSON has no object_kind")
        case "push", "tag_push":
            let commits = body.objects("commits")
            return project.push(
                by: person, to: body.text("ref") ?? "", commits.compactMap { $0.text("message") },
                count: body.value(["total_commits_count"])?.integer.map { Int(clamping: $0) } ?? commits.count,
                isDeleted: ForgeProject.isNothing(body.text("after")), isForced: false,
                link: commits.last?.text("url") ?? body.text("project", "web_url"))
        case "merge_request": return try change("merge request", details, project, person)
        case "issue", "work_item": return try change("issue", details, project, person)
        case "note":
            let thing = body.text("merge_request", "iid") ?? body.text("issue", "iid")
            return project.comment(
                on: thing.map { "commented on #\($0)" } ?? "commented", details.text("note"), by: person, link: link
            )
        case "pipeline": return try pipeline(body, details, project)
        case "build": return try job(body, project)
        case "release":
            guard body.text("action") == "create" else { throw .ignored("a change of a release") }
            return project.release(
                body.text("tag") ?? "a version", body.text("description") ?? body.text("name"),
                link: body.text("url"))
        case let kind?: throw .ignored("the event \(kind) is not shown")
        }
    }

    private static func pipeline(
        _ body: JSONObject, _ details: JSONObject, _ project: ForgeProject
    ) throws(HookRefusal) -> HookDraft {
        let status = details.text("status") ?? ""
        guard ["failed", "success"].contains(status) else { throw .ignored("a pipeline that is \(status)") }
        let (id, main) = (details.text("id") ?? "", body.text("project", "default_branch"))
        var branch = details.text("ref") ?? "a branch"
        var isMain = main.map { $0 == branch } ?? true
        // Anyone can open a merge request from the main branch of a fork. GitLab then names that branch.
        if let merge = body.object("merge_request") {
            let source = merge.text("source_project_id")
            if source == nil || source != merge.text("target_project_id") {
                (branch, isMain) = ("\(branch) of !\(merge.text("iid") ?? "?")", false)
            }
        }
        return project.build(
            "Pipeline", of: branch, isMain: isMain, hasPassed: status == "success", run: id,
            text: body.text("commit", "title") ?? body.text("commit", "message"),
            link: details.text("url") ?? body.text("project", "web_url").map { "\($0)/-/pipelines/\(id)" })
    }

    /// Returns the message about a job that failed, which a success of the same pipeline resolves. The event does not say
    /// whether a fork's branch is meant, so a job neither wakes people nor ends what another pipeline began.
    private static func job(_ body: JSONObject, _ project: ForgeProject) throws(HookRefusal) -> HookDraft {
        let (name, status) = (body.text("build_name") ?? "a job", body.text("build_status") ?? "")
        guard ["failed", "success"].contains(status), body["build_allow_failure"] != .bool(true) else {
            throw .ignored("a job that is \(status)")
        }
        let id = body.text("build_id") ?? ""
        return project.build(
            "Job \(name)", id: "job \(body.text("pipeline_id") ?? id) \(name)", of: body.text("ref") ?? "a branch",
            isMain: false, hasPassed: status == "success", run: id, text: body.text("commit", "message"),
            link: body.text("project", "web_url").map { "\($0)/-/jobs/\(id)" })
    }

    private static func change(
        _ kind: String, _ details: JSONObject, _ project: ForgeProject, _ person: String
    ) throws(HookRefusal) -> HookDraft {
        guard let number = details.text("iid") else { throw .unreadable("the JSON has no object_attributes.iid") }
        let action = details.text("action") ?? ""
        let verbs = [
            "open": "opened", "reopen": "reopened", "close": "closed", "merge": "merged", "approved": "approved",
        ]
        guard let verb = verbs[action] else { throw .ignored("\(action) of a \(kind)") }
        return project.change(
            of: kind, number, details.text("title"), verb, by: person, link: details.text("url"),
            hasEnded: ["close", "merge"].contains(action))
    }
}
