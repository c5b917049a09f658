import ChatDomain
import Foundation
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("Routes")
struct RoutesTests {
    /// All routes except the files of the pages and the tutorial's pages.
    static let routes = Relay().server().routes.filter { !isFile($0) && !$0.path.hasPrefix("/test") }

    private static func isFile(_ route: Route) -> Bool {
        !route.path.hasPrefix("/v1") && WebFiles.all.contains { $0.path == route.path }
    }

    /// The rows of the page's table. The scope `admin` has no row.
    private static let rows: [Route.Access] = [
        .anyone, .scope(.figures), .scope(.post), .scope(.read), .scope(.send), .client(.post), .client(.read), .holder,
        .hook,
    ]
    /// The methods in the order in which the table names them.
    private static let methods: [HTTPRequest.Method] = [.get, .post, .put, .patch, .delete]

    @Test("docs/security.md lists every call that needs less than the scope admin, by what it needs")
    func documented() throws {
        var table = "| needed | calls |\n| --- | --- |\n"
        for access in Self.rows {
            var paths: [String] = []
            for route in Self.routes where route.access == access && !paths.contains(route.path) {
                paths.append(route.path)
            }
            let calls = paths.map { path in
                let methods = Self.methods.filter { method in
                    Self.routes.contains { $0.access == access && $0.path == path && $0.method == method }
                }
                return "`\(methods.map(\.rawValue).joined(separator: ", ")) \(path)`"
            }
            table += "| \(Self.text(access)) | \(calls.joined(separator: ", ")) |\n"
        }
        #expect(Set(Self.routes.map(\.method)).isSubset(of: Self.methods))
        let root = URL(filePath: #filePath).appending(path: "../../..").standardized
        let page = try String(contentsOf: root.appending(path: "docs/security.md"), encoding: .utf8)
        #expect(page.contains("\n\n\(table)\n"), "The table in docs/security.md must be:\n\(table)")
    }

    @Test("A call that the table leaves out needs the scope admin and is under /v1")
    func missing() {
        let left = Self.routes.filter { !Self.rows.contains($0.access) }
        #expect(!left.isEmpty && left.allSatisfy { $0.access == .scope(.admin) && $0.path.hasPrefix("/v1/") })
    }

    private static func text(_ access: Route.Access) -> String {
        switch access {
        case .anyone: "no token"
        case .development: "development"
        case .scope(let scope): "`\(scope.rawValue)`"
        case .client(let scope): "`\(scope.rawValue)`, or a credential"
        case .holder: "any token, or a credential"
        case .hook: "the token of [a webhook](webhooks.md), in the path"
        }
    }

    @Test("Anyone may read the files of the pages; the tutorial's pages are for development")
    func pages() {
        let routes = Relay().server().routes
        #expect(
            routes.filter(Self.isFile).allSatisfy { $0.method == .get && $0.access == .anyone })
        let test = routes.filter { $0.path.hasPrefix("/test") }
        #expect(!test.isEmpty && test.allSatisfy { $0.method == .get && $0.access == .development })
    }

    @Test(
        "The address of a new record is correct at the relay's root and below a proxy's path",
        arguments: ["http://127.0.0.1:44447", "https://example.org/chat"],
        ["/v1/notifications", "/v1/notifications/"])
    func location(relay: String, path: String) async throws {
        let answer = try await AdminTests.call(
            .post, path, #"{"to":{"tokens":["\#(Sample.token)"]},"alert":"Hi"}"#, to: AdminTests.scripted())
        let made = URL(string: try #require(answer.headers[.location]), relativeTo: URL(string: relay + path))
        #expect(made?.absoluteString == relay + "/v1/notifications/5")
        let document = try await AdminTests.call(.get, "/v1/openapi.json", to: Relay(ScriptedStore()))
        let servers = try #require(try JSONValue(parsing: document.text).object?["servers"]?.array)
        let addresses = servers.map {
            URL(string: $0.object?["url"]?.text ?? "", relativeTo: URL(string: relay + "/v1/openapi.json"))
        }
        #expect(addresses.map(\.?.absoluteString) == [relay + "/"])
    }

    @Test("The OpenAPI document has each path and method, and no others, and names the scope of each")
    func described() async throws {
        let answer = try await AdminTests.call(.get, "/v1/openapi.json", to: Relay(ScriptedStore()))
        let document = try #require(try JSONValue(parsing: answer.text).object)
        let paths = try #require(document["paths"]?.object)
        let known = Dictionary(grouping: Self.routes, by: \.path)
        #expect(Set(paths.members.map(\.name)) == Set(known.keys))
        for (path, routes) in known {
            let described = paths[path]?.object?.members.filter { $0.name != "parameters" } ?? []
            #expect(Set(described.map(\.name)) == Set(routes.map { $0.method.rawValue.lowercased() }), "\(path)")
            for (method, operation) in described {
                let accesses = Set(routes.filter { $0.method.rawValue.lowercased() == method }.map(\.access))
                let (security, text) = (operation.object?["security"]?.array, operation.object?["description"]?.text)
                // A call that anyone may make, with or without a token, allows to omit the token.
                let isOpen = security.map { $0.isEmpty || $0.contains(.object([:])) } ?? false
                #expect(isOpen == !accesses.isDisjoint(with: [.anyone, .hook]), "\(method) \(path)")
                for case .scope(let scope) in accesses where scope != .admin {
                    #expect(text?.contains("`\(scope.rawValue)`") == true, "\(method) \(path): \(scope)")
                }
            }
            // The server knows exactly these methods: it rejects any other method and names it.
            let real = path.replacing("{token}", with: Sample.token).replacing("{id}", with: "5").replacing(
                "{topic}", with: "room")
            let refused =
                path == HooksAPI.path
                ? try await HooksTests.relay().send(.options, "/hooks/pct_json/json")
                : try await AdminTests.call(.options, real, to: Relay(ScriptedStore()))
            let allow =
                refused.headers[.allow]?.lowercased().split(separator: ", ").filter {
                    $0 != "head" && $0 != "options"
                } ?? []
            #expect(Set(allow.map(String.init)) == Set(described.map(\.name)), "\(path)")
        }
    }
}
