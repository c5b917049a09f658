import Foundation
import Testing

/// In each target, the values that the rest uses are below the subjects, and what knows them all is above. These tests
/// read the code as text: a file uses another folder if it names a type that a file there declares.
/// Members that an extension adds are not seen.
@Suite("The floors of a target")
struct FolderTests {
    /// For each target, the folders that each of its folders may use. `.` has the files outside of folders.
    private static let allowed: [String: [String: String]] = [
        "APNSGateway": [
            "Format": "",
            "Credentials": "",
            "Binary": "Format",
            "HTTP2": "",
            "Broadcast": "HTTP2",
        ],
        "FCMGateway": [
            "Base": "",
            "Sending": "Base",
            "Format": "Sending",
        ],
        "GatewayPool": [
            "Base": "",
            "Pool": "Base",
            "HTTP2": "Base Pool",
        ],
        "ChatDomain": [
            "Base": "",
            "Devices": "Base",
            "JSON": "Base",
            "Rooms": "Base JSON",
            "Push": "Base Devices JSON Rooms",
            "Access": "Base Devices JSON Rooms Push",
            "Webhooks": "Base JSON Rooms",
            "Ports": "Base Devices Rooms Push Access Webhooks",
            "Store": "Base Devices JSON Rooms Push Ports",
        ],
        "ChatHTTP": [
            "Base": "",
            "Form": "Base",
            "Responses": "Base",
            "Routing": "Base Responses",
            "Address": "Base Responses",
            "Monitoring": "Base Responses Routing",
            "Admin": "Base Form Responses Address Monitoring Routing",
            "Chat": "Base Form Responses Address Routing",
            "Pages": "Base Responses Monitoring Routing",
            "Events": "Base Responses Chat Routing",
            "Posting": "Base Form Responses Address Admin Routing",
            "Gotify": "Base Form Responses Address Admin Events Posting Routing",
            "Ntfy": "Base Form Responses Address Admin Posting Events Routing",
            "Hooks": "Base Responses Address Posting Routing",
            "Server": "Base Responses Address Monitoring Admin Chat Pages Events Posting Gotify Hooks Ntfy Routing",
        ],
        "ChatHooks": [
            "Base": "",
            "Shared": "Base",
            "Formats": "Base Shared",
            ".": "Base Formats",
        ],
        "ChatSQL": [
            ".": "",
            "Devices": ".",
            "Notifications": ".",
            "Queue": ".",
            "Records": ".",
            "Rooms": ". Devices Records",
            "Upkeep": ". Devices Records Rooms Webhooks",
            "Webhooks": ".",
        ],
        "ChatStore": [
            "Devices": "File",
            "Queue": "File",
            "Fanout": "Queue File",
            "Rooms": "Queue Fanout File",
            "Administration": "Queue Fanout File",
            "File": "",
            "Notifications": "Queue Fanout File",
            "Records": "Queue File",
            "Upkeep": "Queue Fanout Rooms File Records",
            ".": "Devices Queue Fanout Rooms Administration File Notifications Records Upkeep",
        ],
        "ChatStorePostgres": [
            "Connection": "",
            "Relays": "Connection",
            "Server": "Connection Relays",
            "Devices": "Server",
            "Fanout": "Connection Server",
            "Queue": "Connection Server",
            "Records": "Server",
            "Administration": "Connection Relays Server Fanout Queue",
            "Notifications": "Server Fanout",
            "Rooms": "Connection Server Fanout",
            "Upkeep": "Server Fanout Queue",
            ".": "Connection Server Devices Fanout Queue Records Administration Notifications Rooms Upkeep",
        ],
        "PushSandbox": [
            "Base": "",
            "Credentials": "Base",
            "Inbox": "Base",
            "Apple": "Base Credentials Faults Inbox",
            "Browsers": "Base Faults Inbox",
            "Firebase": "Base Credentials Faults Inbox",
            "State": "Apple Base Browsers Faults Firebase Inbox",
            "Listener": "Base State",
            "Control": "Apple Base Browsers Browsers/Server Credentials Faults Inbox State",
            "Proxy": "Base State",
            "Apple/Binary": "Apple Base Inbox Listener State",
            "Apple/Feedback": "Apple Base Listener State",
            "Apple/HTTP2": "Apple Base Credentials Inbox Listener State",
            "Browsers/Server": "Base Browsers Inbox Listener State",
            "Faults": "Base",
            "Firebase/Server": "Base Control Credentials Firebase Inbox Listener State",
            ".":
                "Apple/Binary Apple/Feedback Apple/HTTP2 Base Browsers/Server Control Credentials "
                + "Firebase Firebase/Server Listener Proxy State",
        ],
        "PushWire": [
            ".": "",
            "Apple/Binary": "",
            "Apple/Provider": ".",
            "WebPush": ".",
        ],
        "pushchat": [
            "Base": "",
            "Process": "",
            "Log": "",
            "Import": "",
            "Sessions": "",
            "Upstream": "",
            "Webhooks": "Base",
            "Configuration": "Base Log",
            "Terminal": "",
            "Client": "Base Configuration Terminal",
            "Wiring": "Base Process Log Sessions Upstream Webhooks Configuration Terminal",
            "Chat": "Base Terminal",
            "Commands/Options": "Base Log Configuration Terminal Wiring",
            "Direct": "Log Configuration Terminal Client",
            "Commands/Data": "Base Import Terminal Client Wiring Commands/Options",
            "Commands/Messages": "Base Configuration Terminal Client Chat Commands/Options Direct",
            "Commands/Running": "Base Log Sessions Configuration Terminal Client Wiring Commands/Options Direct",
            ".": "Base Process Commands/Options Commands/Data Commands/Messages Commands/Running",
        ],
    ]

    @Test("Folders use what the table allows, and nothing in it is unused", arguments: allowed.keys.sorted())
    func uses(target: String) throws {
        let table = try #require(Self.allowed[target]).mapValues { Set($0.split(separator: " ").map(String.init)) }
        let uses = try Target(target).uses
        #expect(Set(uses.keys) == Set(table.keys), "the folders of \(target)")
        for (folder, used) in uses {
            for (other, example) in used where table[folder]?.contains(other) != true {
                Issue.record("\(target)/\(folder) uses \(other): \(example)")
            }
            let unused = (table[folder] ?? []).subtracting(used.keys)
            #expect(unused.isEmpty, "\(target)/\(folder) does not use \(unused.sorted()); remove that from the table")
        }
        #expect(Self.circles(table).isEmpty, "circles in \(target)")
    }

    @Test("Every target with folders is in the table")
    func complete() throws {
        let manager = FileManager.default
        let targets = try manager.contentsOfDirectory(atPath: ImportTests.sources.path).filter { target in
            let files = try manager.subpathsOfDirectory(atPath: ImportTests.sources.appending(path: target).path)
            return files.contains { $0.contains("/") && $0.hasSuffix(".swift") }
        }
        #expect(Set(targets) == Set(Self.allowed.keys))
    }

    @Test("No two types have one name, except in the two stores' folders of the same name")
    func names() throws {
        var places: [Substring: Set<String>] = [:]
        for target in try FileManager.default.contentsOfDirectory(atPath: ImportTests.sources.path) {
            for (name, folders) in try Target(target).declared {
                places[name, default: []].formUnion(folders.map { "\(target)/\($0)" })
            }
        }
        let twins = places.filter { name, places in
            let folders = Set(places.map { $0.replacing("ChatStorePostgres/", with: "ChatStore/") })
            return Set(places.map { $0.prefix { $0 != "/" } }).count > 1 && folders.count > 1
        }
        #expect(twins.isEmpty, "\(twins)")
    }

    /// Files outside of their folders that name the other servers: the settings, and the list of all APIs.
    private static let namingServers: Set = ["Base/ChatHTTPSettings.swift", "Server/ChatServer.swift"]

    @Test("Only its own folder names another server whose clients the relay serves")
    func otherServers() throws {
        let root = ImportTests.sources.appending(path: "ChatHTTP")
        let files = try FileManager.default.subpathsOfDirectory(atPath: root.path).filter { $0.hasSuffix(".swift") }
        let texts = try files.map { ($0, try String(contentsOf: root.appending(path: $0), encoding: .utf8)) }
        let declaring = texts.filter { $1.contains("server: RouteGroup.OtherServer(") }
        let servers = declaring.map { ($0.0 as NSString).deletingLastPathComponent }
        #expect(Set(servers).isSuperset(of: ["Gotify", "Ntfy"]))
        for server in servers {
            let naming = texts.filter { path, text in
                !path.hasPrefix(server + "/") && text.lowercased().contains(server.lowercased())
            }.map(\.0)
            #expect(Self.namingServers.isSuperset(of: naming), "\(server)")
        }
    }

    @Test("A name in a comment or a string is no use")
    func comments() throws {
        let text = "/// A\nlet b = B(\"C \\(D.e)\") // F\nlet g = #\"G\"#\nlet h = \"\"\"\n    H\n    \"\"\"\nK.L()"
        #expect(try Target.names(in: Target.code(of: text)) == ["B", "D", "K"])
    }

    /// The groups of folders that use each other, directly or through others.
    private static func circles(_ table: [String: Set<String>]) -> Set<Set<String>> {
        var reached = table
        for middle in table.keys {
            for (folder, others) in reached where others.contains(middle) {
                reached[folder] = others.union(reached[middle] ?? [])
            }
        }
        let inCircle = reached.keys.filter { reached[$0]?.contains($0) == true }
        return Set(
            inCircle.map { folder in
                Set(inCircle.filter { reached[folder]?.contains($0) == true && reached[$0]?.contains(folder) == true })
            })
    }
}

/// The Swift files of a target, read as text.
private struct Target {
    /// For each folder, the folders that it uses, with one file and name as an example.
    private(set) var uses: [String: [String: String]] = [:]
    /// For each type that a file declares at its top, the folders of these files.
    private(set) var declared: [Substring: Set<String>] = [:]

    init(_ target: String) throws {
        let root = ImportTests.sources.appending(path: target)
        var files: [(path: String, folder: String, names: Set<Substring>)] = []
        var owners: [Substring: Set<Int>] = [:]
        for path in try FileManager.default.subpathsOfDirectory(atPath: root.path) where path.hasSuffix(".swift") {
            let code = try Self.code(of: String(contentsOf: root.appending(path: path), encoding: .utf8))
            for name in try Self.found(Self.declaration, in: code) { owners[name, default: []].insert(files.count) }
            let folder = (path as NSString).deletingLastPathComponent
            let own = try Self.found("\\b\(Self.type)", in: code)
            files.append((path, folder.isEmpty ? "." : folder, Self.names(in: code).subtracting(own)))
        }
        declared = owners.mapValues { Set($0.map { files[$0].folder }) }
        for (path, folder, names) in files {
            uses[folder] = uses[folder] ?? [:]
            // A name that several files declare says nothing.
            for name in names where owners[name]?.count == 1 {
                guard let other = owners[name]?.first.map({ files[$0].folder }), other != folder else { continue }
                uses[folder]?[other] = "\(path) names \(name)"
            }
        }
    }

    private static let type = #"(?:struct|class|enum|actor|protocol|typealias) +(\w+)"#
    private static let declaration = #"(?m)^(?:@\w+ +)*(?:(?:public|package|final|indirect) +)*"# + type
    private static let comment = #"//[^\n]*"#
    private static let string = #"(#*)"""[\s\S]*?"""\1|(#*)"(?:\\.|[^"\\\n])*"\2"#

    /// Returns `text` without comments and strings. Code in interpolations stays.
    static func code(of text: String) throws -> String {
        let interpolation = try NSRegularExpression(pattern: ##"\\#*\(((?:[^()]|\([^()]*\))*)\)"##)
        var (code, end) = ("", text.startIndex)
        for match in try NSRegularExpression(pattern: "\(comment)|\(string)").matches(
            in: text, range: NSRange(text.startIndex..., in: text))
        {
            guard let range = Range(match.range, in: text) else { continue }
            code += text[end..<range.lowerBound] + " "
            end = range.upperBound
            guard !text[range].hasPrefix("//") else { continue }
            for part in interpolation.matches(in: text, range: match.range) {
                code += Range(part.range(at: 1), in: text).map { text[$0] + " " } ?? ""
            }
        }
        return code + text[end...]
    }

    /// Returns the names that begin with a capital letter.
    static func names(in code: String) -> Set<Substring> {
        let words = code.utf8.split {
            switch $0 {
            case 46, 48...57, 65...90, 95, 97...122: false
            default: true
            }
        }
        // After a dot stands a member of another type.
        return Set(words.filter { (65...90).contains($0.first ?? 0) }.map { Substring($0.prefix { $0 != 46 }) })
    }

    private static func found(_ pattern: String, in code: String) throws -> [Substring] {
        try NSRegularExpression(pattern: pattern).matches(in: code, range: NSRange(code.startIndex..., in: code))
            .compactMap { Range($0.range(at: 1), in: code).map { code[$0] } }
    }
}
