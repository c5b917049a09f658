import ChatDomain

/// Messages about the events of a project, in the same words for all forges.
struct ForgeProject {
    /// The prefix of keys.
    let prefix: String
    /// The name of the project, such as `owner/project`.
    let name: String

    /// The maximum number of commits whose subjects are shown.
    private static let commitLimit = 5
    /// The maximum number of bytes of a comment or a description.
    private static let quoteLimit = 1000

    /// - Parameters:
    ///   - ref: The branch or the tag, such as `refs/heads/main`.
    ///   - commits: The messages of the commits.
    ///   - count: The number of commits.
    func push(
        by person: String, to ref: String, _ commits: [String], count: Int, isDeleted: Bool, isForced: Bool,
        link: String?
    ) -> HookDraft {
        let isTag = ref.hasPrefix("refs/tags/")
        let place = String(
            ref.dropFirst(isTag ? "refs/tags/".count : ref.hasPrefix("refs/heads/") ? "refs/heads/".count : 0))
        var lines: [String] = []
        if isDeleted {
            lines = ["\(person) deleted \(isTag ? "tag" : "branch") \(place)"]
        } else if isTag {
            lines = ["\(person) pushed tag \(place)"]
        } else {
            let what = count == 0 ? "" : count == 1 ? "1 commit " : "\(count) commits "
            lines = ["\(person) \(isForced ? "force-pushed" : "pushed") \(what)to \(place)"]
            let shown = commits.prefix(Self.commitLimit).map { "• \(HookText.firstLine($0))" }
            lines += shown
            if !shown.isEmpty, count > shown.count { lines.append("… and \(count - shown.count) more") }
        }
        return HookDraft(title: name, text: lines.joined(separator: "\n"), link: link)
    }

    /// Returns the message about an issue or a request to merge, which later events change.
    ///
    /// - Parameters:
    ///   - kind: The words for the thing, such as `pull request`.
    ///   - verb: The words for the change, such as `opened`.
    func change(
        of kind: String, _ number: String, _ title: String?, _ verb: String, by person: String, link: String?,
        hasEnded: Bool
    ) -> HookDraft {
        HookDraft(
            key: HookKey.make(prefix, name, kind, number), title: "\(title ?? kind) (#\(number))",
            text: "\(person) \(verb) \(kind) #\(number) in \(name)", link: link, state: hasEnded ? .resolved : .event)
    }

    func comment(on thing: String, _ text: String?, by person: String, link: String?) -> HookDraft {
        HookDraft(title: "\(person) \(thing) in \(name)", text: Self.quote(text), link: link)
    }

    /// Returns the message about a build that ended. The next success of the same branch resolves a failure.
    ///
    /// - Parameters:
    ///   - id: The name that no other build of the project has. `nil` for `build`.
    ///   - isMain: Whether the branch is the one that must always build.
    ///   - run: The id of the run.
    func build(
        _ build: String, id: String? = nil, of branch: String, isMain: Bool, hasPassed: Bool, run: String,
        text: String?, link: String?
    ) -> HookDraft {
        let rank = isMain ? HookSeverity.urgent : HookSeverity.usual
        return HookDraft(
            key: HookKey.make(prefix, name, "build", id ?? build, branch),
            title: "\(build) \(hasPassed ? "passed" : "failed") on \(branch)",
            text: [text.map(HookText.firstLine), name].compactMap(\.self).joined(separator: "\n"), link: link,
            rank: rank, state: hasPassed ? .resolved : .firing, firing: [HookKey.id([run]): rank], standsAlone: false)
    }

    func release(_ tag: String, _ text: String?, link: String?) -> HookDraft {
        HookDraft(title: "\(name) released \(tag)", text: Self.quote(text), link: link)
    }

    private static func quote(_ text: String?) -> String { FieldText.fitting(text ?? "", limit: quoteLimit) }

    /// Whether a commit's name says that a branch does not exist.
    static func isNothing(_ commit: String?) -> Bool { commit?.utf8.allSatisfy { $0 == UInt8(ascii: "0") } ?? false }
}
