// swift-tools-version: 6.2
import PackageDescription

/// The settings of every Swift target. The tools version selects the Swift 6 language mode.
let strict: [SwiftSetting] = [
    // On Linux alone, where CI builds: a warning of another compiler must not break the build of an app.
    .treatAllWarnings(as: .error, .when(platforms: [.linux])),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]

/// Linker settings of `make release`, which docs/size.md explains. The trimmed ICU data must come before Foundation's
/// libraries, which contain all of it. The order of functions arrives with the second link, which also strips symbols.
var release: [LinkerSetting] = []
if let object = Context.environment["PUSHCHAT_ICU"], !object.isEmpty {
    release.append(.unsafeFlags([object]))
}
if let order = Context.environment["PUSHCHAT_ORDER"], !order.isEmpty {
    let options = ["-s", "--symbol-ordering-file=\(order)", "--no-warn-symbol-ordering"]
    release.append(.unsafeFlags(options.flatMap { ["-Xlinker", $0] }))
}

/// The products that this package uses, by package.
let productsByPackage: [String: [String]] = [
    "async-http-client": ["AsyncHTTPClient"],
    "GRDB.swift": ["GRDB", "GRDBSQLite"],
    "hummingbird": ["Hummingbird", "HummingbirdCore", "HummingbirdHTTP2", "HummingbirdTesting", "HummingbirdTLS"],
    "jwt-kit": ["JWTKit"],
    "swift-argument-parser": ["ArgumentParser"],
    "swift-asn1": ["SwiftASN1"],
    "swift-certificates": ["X509"],
    "swift-crypto": ["Crypto", "CryptoExtras"],
    "swift-http-types": ["HTTPTypes"],
    "swift-log": ["Logging"],
    "swift-nio": ["NIOCore", "NIOEmbedded", "NIOFoundationCompat", "NIOHTTP1", "NIOPosix", "NIOTLS", "NIOWebSocket"],
    "swift-nio-extras": ["NIOHTTPCompression", "NIOHTTPTypes", "NIOHTTPTypesHTTP1"],
    "swift-nio-http2": ["NIOHPACK", "NIOHTTP2"],
    "swift-nio-ssl": ["NIOSSL"],
    "swift-service-lifecycle": ["ServiceLifecycle", "UnixSignals"],
    "Yams": ["Yams"],
]

/// The named products as dependencies of a target.
func products(_ names: String...) -> [Target.Dependency] {
    names.map { name in
        guard let package = productsByPackage.first(where: { $0.value.contains(name) })?.key else {
            fatalError("No package for the product \(name). Add it to productsByPackage.")
        }
        return .product(name: name, package: package)
    }
}

/// Sockets, TLS and HTTP/2 headers: for the two gateways, the sandbox, and their tests.
let sockets = products("NIOCore", "NIOHPACK", "NIOPosix", "NIOSSL")

// The targets are listed roughly in the order in which a message travels: in, store, out, executable.
let package = Package(
    name: "pushchat",
    platforms: [.macOS(.v15), .iOS(.v16)],
    products: [
        .executable(name: "pushchat", targets: ["pushchat"]),
        // For apps. They need nothing else of this package, and build none of its dependencies.
        .library(name: "PushChatKit", targets: ["PushChatKit"]),
        .library(name: "PushChatNotificationService", targets: ["PushChatNotificationService"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
        .package(url: "https://github.com/apple/swift-certificates", from: "1.21.0"),
        .package(url: "https://github.com/apple/swift-crypto", from: "4.5.0"),
        .package(url: "https://github.com/apple/swift-asn1", from: "1.7.0"),
        .package(url: "https://github.com/apple/swift-http-types", from: "1.5.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.0"),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.0"),
        .package(url: "https://github.com/apple/swift-nio-extras", from: "1.35.0"),
        .package(url: "https://github.com/apple/swift-nio-http2", from: "1.40.0"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.0"),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
        // The trait is named, because SwiftPM passes the two default traits in random order, and each change of the
        // order compiles Hummingbird again.
        .package(
            url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.0", traits: ["FullFoundation"]),
        .package(url: "https://github.com/jpsim/Yams", from: "6.2.0"),
        .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/vapor/jwt-kit", from: "5.7.0"),
    ],
    targets: [
        // Turns form posts into domain commands and their results into responses. Knows HTTP and the domain, but
        // neither SQLite nor Apple. ContentCoding uses NIOEmbedded to decompress a body that was already read.
        .target(
            name: "ChatHTTP",
            dependencies: ["ChatDomain", "ChatHooks", "WebAssets"]
                + products(
                    "Crypto", "HTTPTypes", "Hummingbird", "HummingbirdCore", "HummingbirdTLS", "Logging", "NIOCore",
                    "NIOEmbedded", "NIOHTTP1", "NIOHTTPCompression", "NIOHTTPTypes", "NIOHTTPTypesHTTP1", "NIOSSL",
                    "NIOWebSocket", "ServiceLifecycle"
                ),
            exclude: ["Admin/openapi.json", "Web"]),
        // The formats in which other programs post: pure functions from a request to messages.
        .target(name: "ChatHooks", dependencies: ["ChatDomain"] + products("Crypto")),
        // The rules: valid input, recipients, pushes and their outcomes. Declares the ports to all other targets.
        .target(name: "ChatDomain"),
        // The statements that both databases share, and the stores that consist of them.
        .target(name: "ChatSQL", dependencies: ["ChatDomain"] + products("Crypto", "Logging")),
        // Stores members, devices, messages and the durable push queue in SQLite, in one transaction.
        .target(
            name: "ChatStore",
            dependencies: ["CLinux", "ChatDomain", "ChatSQL", "EmbeddedFiles"]
                + products("Crypto", "GRDB", "GRDBSQLite", "Logging")),
        // The same store over PostgreSQL, which several relays can share.
        .target(
            name: "ChatStorePostgres",
            dependencies: ["ChatDomain", "ChatSQL", "CPostgreSQL", "EmbeddedFiles"] + products("Crypto", "Logging"),
            exclude: ["Server/schema.sql"]),
        // PostgreSQL's client library, which is loaded on demand.
        .target(name: "CPostgreSQL"),
        // Linux system calls that Swift's Glibc module does not offer.
        .target(name: "CLinux"),
        // Moves pushes from the queue to a gateway and records their outcomes. Reads Apple's feedback service.
        .target(name: "ChatDispatch", dependencies: ["ChatDomain"] + products("Logging", "ServiceLifecycle")),
        // Pools of connections to a push service, and the gateway to HTTP/2 APIs. Knows no service.
        .target(
            name: "GatewayPool",
            dependencies: ["ChatDomain", "HTTP2Wire"] + sockets
                + products("AsyncHTTPClient", "Logging", "NIOHTTP1", "NIOHTTP2", "NIOTLS")),
        // Apple's services: requests and responses over HTTP/2, and the connections of the binary protocol.
        .target(
            name: "APNSGateway",
            dependencies: ["ChatDomain", "GatewayPool", "PushWire"] + sockets
                + products("AsyncHTTPClient", "Crypto", "Logging", "NIOHTTP1", "SwiftASN1", "X509")),
        // Google's FCM: payloads, requests, responses, and access tokens.
        .target(
            name: "FCMGateway",
            dependencies: ["ChatDomain", "GatewayPool", "PushWire"]
                + products("AsyncHTTPClient", "CryptoExtras", "NIOCore", "NIOHPACK", "NIOSSL")),
        // The bytes of Apple's protocols; encryption and keys of Web Push. No sockets.
        .target(name: "PushWire", dependencies: products("Crypto", "NIOCore")),
        // The client side of HTTP/2: frames, windows and limits. No sockets.
        .target(name: "HTTP2Wire", dependencies: products("NIOCore", "NIOHPACK")),
        // Connections to browsers' push services, each isolated from the others.
        .target(
            name: "WebPushGateway",
            dependencies: ["ChatDomain", "GatewayPool", "HTTP2Wire", "PushWire"] + sockets
                + products("AsyncHTTPClient", "Crypto", "Logging", "NIOHTTP1")),
        // Simulates Apple's and browsers' push services: listeners, responses, faults, inbox. Must not know the relay.
        .target(
            name: "PushSandbox",
            dependencies: ["PushWire", "WebAssets"] + sockets
                + products(
                    "Crypto", "CryptoExtras", "Hummingbird", "HummingbirdCore", "HummingbirdHTTP2", "Logging",
                    "NIOHTTP1", "NIOHTTP2", "NIOHTTPTypes", "NIOHTTPTypesHTTP1", "NIOWebSocket", "ServiceLifecycle",
                    "SwiftASN1", "X509"),
            exclude: ["Web"]),
        // Serves embedded files to browsers. Contains the style and script that all pages share.
        .target(
            name: "WebAssets",
            dependencies: ["EmbeddedFiles"]
                + products(
                    "HTTPTypes", "Hummingbird", "NIOCore", "NIOEmbedded", "NIOHTTP1", "NIOHTTPCompression",
                    "NIOHTTPTypes"),
            exclude: ["base.css", "base.js", "texts.js"]),
        // The client for apps: calls, events, outbox and tokens of a member, over any transport. Foundation only.
        .target(name: "PushChatCore"),
        // PushChatCore with a transport on URLSession: what an app imports.
        .target(name: "PushChatKit", dependencies: ["PushChatCore"]),
        // Completes the notifications of chat messages, in the notification service extension of an app.
        .target(name: "PushChatNotificationService", dependencies: ["PushChatCore"]),
        // The files that the executable contains: pages, the API description, the schemas.
        .target(name: "EmbeddedFiles"),
        // The commit of a build. In C, because Swift cannot take values from the command line.
        .target(
            name: "BuildInfo",
            cSettings: [.define("PUSHCHAT_COMMIT", to: "\"\(Context.environment["PUSHCHAT_COMMIT"] ?? "")\"")]),
        // The executable: one file per command, the configuration, the wiring. Only this target knows all others.
        .executableTarget(
            name: "pushchat",
            dependencies: [
                "ChatHTTP", "ChatDomain", "ChatHooks", "ChatStore", "ChatStorePostgres", "ChatDispatch", "APNSGateway",
                "FCMGateway", "GatewayPool", "PushChatCore", "PushSandbox", "PushWire", "WebPushGateway", "BuildInfo",
            ]
                + products(
                    "ArgumentParser", "AsyncHTTPClient", "Crypto", "JWTKit", "Logging", "NIOCore",
                    "NIOFoundationCompat", "NIOHTTP1", "NIOPosix", "NIOSSL", "ServiceLifecycle", "UnixSignals", "Yams"),
            linkerSettings: release),

        .testTarget(
            name: "ChatHTTPTests",
            dependencies: [
                "ChatHTTP", "ChatDomain", "ChatStore", "APNSGateway", "TestStores", "TestSupport", "WebAssets",
            ]
                + products(
                    "Crypto", "GRDB", "HTTPTypes", "Hummingbird", "HummingbirdTesting", "Logging", "NIOCore",
                    "NIOEmbedded",
                    "NIOHTTP1", "NIOHTTPTypes", "NIOHTTPTypesHTTP1", "NIOPosix", "NIOSSL", "ServiceLifecycle", "X509")),
        .testTarget(name: "ChatDomainTests", dependencies: ["ChatDomain"]),
        .testTarget(name: "ChatHooksTests", dependencies: ["ChatHooks", "ChatDomain"] + products("Crypto")),
        // Tests that run over every store, mostly through the ports alone.
        .testTarget(
            name: "StorePortTests",
            dependencies: [
                "ChatStore", "ChatStorePostgres", "ChatDomain", "ChatDispatch", "APNSGateway", "ChatSQL", "TestStores",
                "TestSupport",
            ]
                + products("GRDB", "Logging")),
        .testTarget(
            name: "ChatStoreTests",
            dependencies: ["ChatSQL", "ChatStore", "ChatDomain", "APNSGateway", "TestStores", "TestSupport"]
                + products("GRDB", "Logging")),
        .testTarget(
            name: "ChatStorePostgresTests",
            dependencies: ["ChatSQL", "ChatStorePostgres", "ChatDomain", "APNSGateway", "TestStores", "TestSupport"]
                + products("Logging")),
        .testTarget(
            name: "ChatDispatchTests",
            dependencies: ["ChatDispatch", "ChatDomain", "TestSupport"] + products("Logging", "ServiceLifecycle")),
        .testTarget(
            name: "APNSGatewayTests",
            dependencies: [
                "APNSGateway", "GatewayPool", "PushSandbox", "PushWire", "ChatDispatch", "ChatDomain", "HTTP2Wire",
                "TestSupport",
            ] + sockets + products("Logging", "NIOEmbedded", "NIOHTTP1", "NIOHTTP2", "NIOTLS")),
        .testTarget(
            name: "FCMGatewayTests",
            dependencies: ["FCMGateway", "GatewayPool", "PushWire", "ChatDomain", "TestSupport"]
                + products("Crypto", "CryptoExtras", "Logging", "NIOCore", "NIOHPACK", "NIOSSL")),
        .testTarget(name: "PushWireTests", dependencies: ["PushWire"] + products("Crypto")),
        .testTarget(
            name: "WebPushGatewayTests",
            dependencies: ["ChatDomain", "GatewayPool", "HTTP2Wire", "PushWire", "TestSupport", "WebPushGateway"]
                + sockets
                + products(
                    "Crypto", "Hummingbird", "HummingbirdTLS", "Logging", "NIOTLS", "ServiceLifecycle", "SwiftASN1",
                    "X509")),
        .testTarget(
            name: "PushSandboxTests",
            dependencies: ["PushSandbox", "PushWire", "TestSupport"] + sockets
                + products("Crypto", "HummingbirdTesting", "NIOHTTP1", "NIOHTTP2", "NIOWebSocket")),
        .testTarget(name: "PushChatCoreTests", dependencies: ["PushChatCore", "PushChatNotificationService"]),
        .testTarget(
            name: "pushchatTests",
            dependencies: [
                "pushchat", "PushChatCore", "APNSGateway", "ChatDomain", "ChatHTTP", "ChatStore", "TestSupport",
            ]
                + products("ArgumentParser", "AsyncHTTPClient", "JWTKit", "Logging", "NIOCore", "NIOPosix")),
        // The clocks, logs and folders that tests of several targets use.
        .target(
            name: "TestSupport", dependencies: ["ChatDomain"] + products("Logging"), path: "Tests/TestSupport"),
        // A PostgreSQL server, and stores for tests. The excluded files are the schemas of earlier versions.
        .target(
            name: "TestStores",
            dependencies: [
                "APNSGateway", "ChatDispatch", "ChatDomain", "ChatSQL", "ChatStore", "ChatStorePostgres",
                "CPostgreSQL", "FCMGateway", "TestSupport",
            ]
                + products("GRDB", "Logging"),
            path: "Tests/TestStores", exclude: ["Schemas"]),
        // Tests of the whole relay, through the built executable and real sockets.
        .testTarget(
            name: "EndToEndTests",
            dependencies: ["pushchat", "PushWire", "TestStores", "TestSupport"]
                + products("AsyncHTTPClient", "Crypto", "GRDB", "NIOCore", "NIOHTTP1")),
        // The examples of docs/sandbox.md. They are compiled here, and the end-to-end tests run them.
        .testTarget(
            name: "ExampleTests", path: "docs/examples", exclude: ["PushChat", "ci", "sandbox-test.sh", "test_push.py"]),
    ]
)

for target in package.targets where !["BuildInfo", "CLinux", "CPostgreSQL", "EmbeddedFiles"].contains(target.name) {
    target.swiftSettings = strict
}

// `make fuzz` builds only these tests. The parsers' targets report to libFuzzer which code an input reaches.
if let fuzzer = Context.environment["FUZZ_RUNTIME"] {
    let parsers: Set = [
        "APNSGateway", "ChatDomain", "ChatHTTP", "ChatHooks", "HTTP2Wire", "PushChatCore", "PushWire", "WebPushGateway",
        "pushchat",
    ]
    let runtime: [LinkerSetting] = [.unsafeFlags([fuzzer, "-lstdc++"])]
    package.targets.removeAll { $0.isTest }
    for target in package.targets where parsers.contains(target.name) {
        target.swiftSettings = strict + [.unsafeFlags(["-sanitize=fuzzer"])]
        if target.name == "pushchat" { target.linkerSettings = runtime }
    }
    package.targets.append(
        .testTarget(
            name: "FuzzTests",
            dependencies: parsers.sorted().map { .byName(name: $0) } + ["ChatStore"]
                + products("Crypto", "HTTPTypes", "Logging", "NIOCore"),
            exclude: ["run"], swiftSettings: strict, linkerSettings: runtime))
}

// `make simulate` builds one more executable: the relay's own code on one thread, under a seed.
if let kind = Context.environment["SIMULATE"] {
    package.targets += [
        .target(name: "CSimulation", path: "Tests/Simulation/CSimulation"),
        .executableTarget(
            name: "simulation",
            dependencies: [
                "APNSGateway", "ChatDispatch", "ChatDomain", "ChatStore", "CSimulation", "FCMGateway", "GatewayPool",
                "PushWire", "WebPushGateway",
            ]
                + products("Crypto", "GRDB", "Logging", "NIOCore", "NIOHPACK", "NIOTLS", "ServiceLifecycle"),
            // Swift 5, because a simulation has one thread. Checks for several would only hide its rules.
            path: "Tests/Simulation/Simulation", swiftSettings: strict + [.swiftLanguageMode(.v5)],
            // Libraries must find the simulation's clocks, random numbers and queues in the executable.
            linkerSettings: [.unsafeFlags(["-Xlinker", "--export-dynamic"])]),
    ]
    // `make simulate-planted` needs the faults in all targets.
    if kind == "planted" {
        for target in package.targets {
            target.swiftSettings = (target.swiftSettings ?? []) + [.define("PLANTED_FAULTS")]
        }
    }
}
