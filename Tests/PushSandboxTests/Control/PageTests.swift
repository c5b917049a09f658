import Foundation
import Hummingbird
import PushWire
import Testing

@testable import PushSandbox

/// Compares the tables and lists of the sandbox's pages with the code.
@Suite("The sandbox's pages")
struct PageTests {
    /// The part of a page below a heading of the second level.
    private static func section(_ heading: String, of page: String) throws -> [Substring] {
        let root = URL(filePath: #filePath).appending(path: "../../../..").standardized
        let text = try String(contentsOf: root.appending(path: "docs/\(page)"), encoding: .utf8)
        let lines = text.split(separator: "\n").drop { $0 != "## \(heading)" }.dropFirst()
        try #require(!lines.isEmpty, "\(page) has no heading \(heading)")
        return lines.prefix { !$0.hasPrefix("## ") }
    }

    /// The cells of the section's tables with this first column.
    private static func rows(_ column: String, _ heading: String, of page: String) throws -> [[String]] {
        let rows = try section(heading, of: page).drop { !$0.hasPrefix("| \(column) |") }.prefix { $0.hasPrefix("|") }
        try #require(rows.count > 2)
        return rows.dropFirst(2).map { row in
            row.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
        }
    }

    /// The words in code of a text.
    private static func code(_ text: some StringProtocol) -> [String] {
        String(text).matches(of: /`([^`]+)`/).map { String($0.1) }
    }

    @Test("sandbox-control.md lists every call")
    func calls() async throws {
        let listed = try Self.rows("call", "Calls", of: "sandbox-control.md").flatMap { Self.code($0[0]) }
        let routes = try await TestSandbox.with { sandbox in
            let api = ControlAPI(
                state: sandbox.state, configuration: .forTests(directory: ""), credentials: sandbox.credentials,
                pushOrigin: "", randomBytes: { _ in [] })
            return api.router().routes.map(\.description)
        }
        // Without the files of the page and the WebSocket of browsers.
        let calls = routes.filter { !$0.contains(".") && !["GET /", "GET /push"].contains($0) }
        #expect(listed.sorted() == calls.sorted())
    }

    @Test("sandbox-control.md lists the faults of each protocol, with their fields")
    func faults() throws {
        let all = GatewayProtocol.allCases.map(\.rawValue)
        var listed: [String: [String: Set<String>]] = [:]
        for row in try Self.rows("action, its fields", "Faults", of: "sandbox-control.md") {
            let form = Self.code(row[0])
            let apple = row[1].contains("Apple") ? ["http2", "broadcast", "channels"] : []
            for gateway in row[1] == "all" ? all : Self.code(row[1]) + apple {
                #expect(listed[gateway]?[form[0]] == nil, "\(gateway) \(form[0]) appears twice")
                listed[gateway, default: [:]][form[0]] = Set(form.dropFirst())
            }
        }
        for gateway in GatewayProtocol.allCases {
            let forms = gateway.faults.map { ($0.name, Set($0.fields.map(\.rawValue))) }
            #expect(listed[gateway.rawValue] == Dictionary(uniqueKeysWithValues: forms), "\(gateway)")
        }
    }

    @Test("sandbox-control.md lists the reasons of refused connections")
    func refusals() throws {
        let items = try Self.section("Counts", of: "sandbox-control.md").filter { $0.hasPrefix("- ") }
        let listed = items.compactMap { Self.code($0).first }
        #expect(listed.sorted() == RefusedConnection.Reason.allCases.map(\.rawValue).sorted())
    }

    /// The statuses and reasons of a numbered list such as "1. 400 `BadPriority`: …".
    private static func reasons(_ heading: String, of page: String) throws -> [(status: Int, reason: String)] {
        try section(heading, of: page).flatMap { line in
            guard let item = line.prefixMatch(of: /1\. (\d{3})((,? `\w+`)+):/) else { return [(Int, String)]() }
            return code(item.2).map { (Int(item.1) ?? 0, $0) }
        }
    }

    @Test("sandbox-apple.md lists the reasons with their statuses, and names those that only a fault produces")
    func appleReasons() throws {
        let listed = try Self.reasons("Reasons", of: "sandbox-apple.md")
        for (status, reason) in listed { #expect(ProviderReason(rawValue: reason)?.status == status, "\(reason)") }
        let section = try Self.section("Reasons", of: "sandbox-apple.md")
        let others = try #require(section.firstIndex { $0.hasPrefix("Only [faults]") })
        let named = Self.code(section[others...].joined(separator: " ").split(separator: ". ")[0])
        #expect(Set(listed.map(\.reason) + named) == Set(ProviderReason.allCases.map(\.rawValue)))
        #expect(Set(listed.map(\.reason)).isDisjoint(with: named))
    }

    @Test("sandbox-apple.md lists the reasons of broadcasts and channels with their statuses")
    func broadcastReasons() throws {
        let listed = try Self.reasons("Broadcasts and channels", of: "sandbox-apple.md")
        for (status, reason) in listed { #expect(BroadcastReason(rawValue: reason)?.status == status, "\(reason)") }
        let missing = Set(BroadcastReason.allCases.map(\.rawValue)).subtracting(listed.map(\.reason))
        // Only a fault produces these.
        #expect(missing == ["TooManyRequests", "Service Unavailable"])
    }

    @Test("sandbox-firebase.md lists the errors with their statuses")
    func firebaseErrors() throws {
        let listed = try Self.reasons("Errors", of: "sandbox-firebase.md")
        #expect(listed.count == 3)
        for (status, code) in listed {
            #expect(FCMRefusal.Code(rawValue: code).map { FCMRefusal($0).status } == status, "\(code)")
        }
    }

    @Test("sandbox.md lists the hosts that the proxy leads to the sandbox")
    func hosts() throws {
        let played = ServiceHost.all.map { host in
            let ports = host.ports.map { "\($0)" }.joined(separator: ", ")
            return "\(host.name) \(ports) \(host.listener.standard)"
        }
        let listed = try Self.rows("host", "Point your library at it", of: "sandbox.md").flatMap { row in
            Self.code(row[0]).map { "\($0) \(row[1]) \(row[2])" }
        }
        #expect(listed.filter { !$0.hasPrefix("localhost") && !$0.hasPrefix("--host") }.sorted() == played.sorted())
    }
}
