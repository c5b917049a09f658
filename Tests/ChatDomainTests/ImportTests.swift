import Foundation
import Testing

/// SwiftPM lets a target import any other target that happens to be built. These tests enforce the project's own rules.
@Suite("The direction of imports")
struct ImportTests {
    /// The targets of this package that each target may import.
    private static let allowed: [String: Set<String>] = [
        "ChatDomain": [],
        "PushWire": [],
        "WebAssets": ["EmbeddedFiles"],
        "ChatHTTP": ["ChatDomain", "ChatHooks", "WebAssets"],
        "ChatHooks": ["ChatDomain"],
        "ChatSQL": ["ChatDomain"],
        "ChatStore": ["CLinux", "ChatDomain", "ChatSQL", "EmbeddedFiles"],
        "ChatStorePostgres": ["ChatDomain", "ChatSQL", "EmbeddedFiles", "CPostgreSQL"],
        "ChatDispatch": ["ChatDomain"],
        "HTTP2Wire": [],
        "GatewayPool": ["ChatDomain", "HTTP2Wire"],
        "PushSandbox": ["PushWire", "WebAssets"],
        "PushChatCore": [],
        "PushChatKit": ["PushChatCore"],
        "PushChatNotificationService": ["PushChatCore"],
        "EmbeddedFiles": [],
        "BuildInfo": [],
        "CLinux": [],
        "CPostgreSQL": [],
        "pushchat": gateways.union([
            "BuildInfo", "ChatDomain", "ChatHTTP", "ChatHooks", "ChatStore", "ChatStorePostgres", "ChatDispatch",
            "GatewayPool",
            "PushChatCore", "PushSandbox", "PushWire",
        ]),
    ].merging(gateways.map { ($0, ["ChatDomain", "GatewayPool", "HTTP2Wire", "PushWire"]) }) { $1 }
    /// The targets for push services. A further one is a folder, and no line here.
    private static let gateways: Set<String> = {
        let folders = try? FileManager.default.contentsOfDirectory(atPath: sources.path)
        return Set((folders ?? []).filter { $0.hasSuffix("Gateway") })
    }()
    /// Packages that only the named targets may import.
    private static let confined: [String: Set<String>] = [
        "GRDB": ["ChatStore"], "JWTKit": ["pushchat"], "Yams": ["pushchat"], "ArgumentParser": ["pushchat"],
        "Hummingbird": ["ChatHTTP", "PushSandbox", "WebAssets"],
        "NIOSSL": gateways.union(["GatewayPool", "PushSandbox", "ChatHTTP", "pushchat"]),
    ]

    private static let inC: Set = ["BuildInfo", "CLinux", "CPostgreSQL", "EmbeddedFiles"]

    static let sources = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().appending(path: "Sources")

    @Test("Every target is in the table")
    func complete() throws {
        let folders = try FileManager.default.contentsOfDirectory(atPath: Self.sources.path)
        #expect(Set(folders) == Set(Self.allowed.keys))
        #expect(Self.gateways.isSuperset(of: ["APNSGateway", "FCMGateway", "WebPushGateway"]))
    }

    @Test("Every import is in the table", arguments: allowed.keys.sorted())
    func direction(target: String) throws {
        let files = FileManager.default.enumerator(atPath: Self.sources.appending(path: target).path)
        var seen = 0
        while let file = files?.nextObject() as? String {
            guard file.hasSuffix(".swift") else { continue }
            seen += 1
            let text = try String(contentsOf: Self.sources.appending(path: "\(target)/\(file)"), encoding: .utf8)
            for line in text.split(separator: "\n") {
                let words = line.split(separator: " ")
                guard let keyword = words.firstIndex(of: "import"), keyword < 2, keyword + 1 < words.count else {
                    continue
                }
                let module = String(words[keyword + 1].split(separator: ".")[0])
                if Self.allowed[module] != nil {
                    #expect(Self.allowed[target]?.contains(module) == true, "\(target)/\(file) imports \(module)")
                }
                if let owners = Self.confined[module] {
                    #expect(owners.contains(target), "\(target)/\(file) imports \(module)")
                }
            }
        }
        #expect(seen > 0 || Self.inC.contains(target))
    }
}
