import Foundation
import Testing

/// The texts of the pages, in one file per language.
@Suite("Texts of the pages")
struct PageTextsTests {
    private static let sources = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../Sources")
    private static let languages = ["en", "de"]
    /// A text, or its plural forms.
    fileprivate typealias Texts = [String: any Sendable]

    /// A page with its scripts.
    struct Page: Sendable, CustomTestStringConvertible {
        let folder: String
        let html: String
        let scripts: [String]
        /// The names of the files with texts begin with this.
        let texts: String
        /// Keys that scripts or the server compose begin with one of these.
        let composed: [String]

        var testDescription: String { html }

        fileprivate func source(_ name: String) throws -> String {
            try String(contentsOf: PageTextsTests.sources.appending(path: "\(folder)/\(name)"), encoding: .utf8)
        }

        fileprivate func texts(_ language: String) throws -> Texts {
            let source = try source("\(texts)-\(language).js")
            let start = try #require(source.firstIndex(of: "{"))
            let end = try #require(source.lastIndex(of: "}"))
            let object = try JSONSerialization.jsonObject(with: Data(source[start...end].utf8))
            return try #require(object as? Texts)
        }
    }

    private static let pages = [
        Page(
            folder: "ChatHTTP/Web", html: "chat.html",
            scripts: [
                "chat.js", "rooms.js", "notify.js", "apps.js", "sheets.js", "markdown.js", "sw.js",
                "../../WebAssets/texts.js",
            ],
            texts: "texts", composed: []),
        Page(
            folder: "PushSandbox/Web", html: "inbox.html",
            scripts: ["inbox.js", "inbox-tools.js", "inbox-preview.js", "../../WebAssets/texts.js"],
            texts: "inbox", composed: ["action.", "fields.", "protocols.", "unknown."]),
        Page(
            folder: "ChatHTTP/Web", html: "admin.html",
            scripts: [
                "admin.js", "admin-charts.js", "admin-day.js", "admin-lists.js", "admin-queue.js", "admin-rooms.js",
                "admin-tokens.js", "admin-usage.js", "admin-verdict.js", "admin-webhooks.js",
                "../../WebAssets/texts.js",
            ],
            texts: "admin", composed: ["action.", "check.", "state.", "tabs.", "to.", "waits.", "webhook."]),
    ]

    /// Returns the placeholders of a text, for example `{count}`.
    private static func placeholders(_ text: any Sendable) -> Set<String> {
        if let forms = text as? Texts { return placeholders(forms["other"] ?? "") }
        return Set("\(text)".matches(of: #/\{\w+\}/#).map { String($0.output) })
    }

    @Test("Each language has the same keys, and the same placeholders in each text", arguments: pages, languages)
    func isComplete(page: Page, language: String) throws {
        let english = try page.texts("en")
        let texts = try page.texts(language)
        #expect(Set(texts.keys) == Set(english.keys))
        for (key, text) in texts {
            #expect(Self.placeholders(text) == Self.placeholders(english[key] ?? ""), "\(key)")
        }
    }

    @Test("The page and its scripts use each key, and no other", arguments: pages)
    func isUsed(page: Page) throws {
        let html = try page.source(page.html)
        let scripts = try page.scripts.map(page.source).joined()
        let known = try Set(page.texts("en").keys)
        let inPage = html.matches(of: #/data-(?:text|label|placeholder)="([^"{]+)"/#).map { String($0.output.1) }
        let quoted = scripts.matches(of: #/"([a-zA-Z]+[0-9]?(?:\.[a-zA-Z]+)?)"/#).map { String($0.output.1) }
        // A script may choose a key and look it up later.
        let subjects = Set(known.filter { $0.contains(".") }.map { $0.prefix { $0 != "." } })
        let chosen = quoted.filter { $0.contains(".") && subjects.contains($0.prefix { $0 != "." }) }
            .filter { !$0.hasSuffix(".js") }
        #expect(Set(chosen).subtracting(known) == [])
        // The lines for another app have keys that a script composes.
        let composed = scripts.matches(of: #/\["([a-z]+)", /#).map { "apps." + $0.output.1 }
        #expect(Set(inPage).subtracting(known) == [])
        #expect(Set(scripts.matches(of: #/words\("([^"]+)"[,)]/#).map { String($0.output.1) }).subtracting(known) == [])
        for prefix in page.composed { #expect(scripts.contains("\"\(prefix)\" +") || html.contains("\(prefix){{")) }
        let left = known.subtracting(inPage).subtracting(quoted).subtracting(composed)
        #expect(left.filter { key in !page.composed.contains { key.hasPrefix($0) } } == [])
    }

    @Test("The page itself has the English texts, which a browser shows before the scripts run", arguments: pages)
    func isEnglish(page: Page) throws {
        let html = try page.source(page.html)
        let english = try page.texts("en")
        let elements = html.matches(of: #/data-text="([^"{]+)"[^>]*>([^<]*)</#)
        #expect(elements.count > 30)
        for element in elements {
            #expect(english[String(element.output.1)] as? String == String(element.output.2))
        }
        for label in html.matches(of: #/data-label="([^"]+)" aria-label="([^"]*)"/#) {
            #expect(english[String(label.output.1)] as? String == String(label.output.2))
        }
    }

    /// An action of the sandbox without a text would stop the page's script.
    @Test("The inbox has a text for each action of its list of faults, and for each of their fields")
    func actionsOfFaults() throws {
        let page = Self.pages[1]
        let script = try page.source("inbox-tools.js")
        let known = try Set(page.texts("en").keys)
        let actions = try #require(script.firstMatch(of: #/const actions = \{([^}]*)\}/#)).output.1
        let names = actions.matches(of: #/([a-z_]+): (?:"|apple)/#).map { "action." + $0.output.1 }
        #expect(names.count == 17 && Set(names).subtracting(known) == [])
        let fields = try #require(script.firstMatch(of: #/const actionFields = \{(.*?)\n\};/#.dotMatchesNewlines()))
            .output.1
        let fieldNames = fields.matches(of: #/([a-z_]+): (?:"|[0-9])/#).map { "fields." + $0.output.1 }
        #expect(fieldNames.count > 6 && Set(fieldNames).subtracting(known) == [])
    }
}
