// swift-tools-version: 6.2
import PackageDescription

/// Swift 6 language mode comes with the tools version; a warning is an error everywhere in this package.
let strict: [SwiftSetting] = [
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]

/// `make release` hands over a part of ICU's data, which must stand before Foundation's libraries, which have all of it; and at
/// last the order of functions, with which the names go.
var release: [LinkerSetting] = []
if let object = Context.environment["PUSHCHAT_ICU"], !object.isEmpty {
    release.append(.unsafeFlags([object]))
}
if let order = Context.environment["PUSHCHAT_ORDER"], !order.isEmpty {
    let options = ["-s", "--symbol-ordering-file=\(order)", "--no-warn-symbol-ordering"]
    release.append(.unsafeFlags(options.flatMap { ["-Xlinker", $0] }))
}

/// The store over PostgreSQL, which needs libpq: not in a build unless asked for, so that `make run` needs nothing new.
let postgres = TargetDependencyCondition.when(traits: ["PostgreSQL"])

// The targets stand in the order in which a message travels.
let package = Package(
    name: "pushchat",
    platforms: [.macOS(.v15)],
    products: [.executable(name: "pushchat", targets: ["pushchat"])],
    traits: [.trait(name: "PostgreSQL", description: "The store over PostgreSQL, for several relays on one database.")],
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
        // Named traits, because the default pair is handed over in random order and rebuilds Hummingbird every other time.
        .package(
            url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.0", traits: ["FullFoundation"]),
        .package(url: "https://github.com/jpsim/Yams", from: "6.2.0"),
        .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/vapor/jwt-kit", from: "5.7.0"),
    ],
    targets: [
        // Form post -> domain command -> answer. Knows HTTP and the domain, nothing of SQLite or Apple.
        .target(
            name: "ChatHTTP",
            dependencies: [
                "ChatDomain", "WebAssets",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "HummingbirdTLS", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                // Runs the decompressor of NIOHTTPCompression over a body that was read already (ContentCoding).
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOHTTPCompression", package: "swift-nio-extras"),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
                .product(name: "NIOHTTPTypesHTTP1", package: "swift-nio-extras"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            exclude: ["Admin/openapi.json", "Web"],
            swiftSettings: strict),
        // What is valid, who receives, what a push and its outcome are; the ports to everything else.
        .target(name: "ChatDomain", swiftSettings: strict),
        // Bearer tokens of the operator's own system -> whose session it is.
        .target(
            name: "ChatSession",
            dependencies: ["ChatDomain", .product(name: "JWTKit", package: "jwt-kit")],
            swiftSettings: strict),
        // SQLite: members, devices, messages and the durable queue, written in one transaction.
        .target(
            name: "ChatStore",
            dependencies: [
                "CLinux", "ChatDomain", "EmbeddedFiles",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "GRDBSQLite", package: "GRDB.swift"),
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: strict),
        // The same over PostgreSQL, which several relays share. Empty without the trait.
        .target(
            name: "ChatStorePostgres",
            dependencies: [
                "ChatDomain", "EmbeddedFiles", .target(name: "CPostgreSQL", condition: postgres),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
            ],
            exclude: ["schema.sql"],
            swiftSettings: strict),
        .target(name: "CPostgreSQL"),
        // Calls of Linux that Swift's Glibc module does not offer.
        .target(name: "CLinux"),
        // Queue -> gateway -> outcome, and the feedback reader.
        .target(
            name: "ChatDispatch",
            dependencies: [
                "ChatDomain",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            swiftSettings: strict),
        // Connections to Apple: pooled, paced, always reading.
        .target(
            name: "APNSGateway",
            dependencies: [
                "ChatDomain", "APNSWire", "HTTP2Wire",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHPACK", package: "swift-nio-http2"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ],
            swiftSettings: strict),
        // Bytes <-> values of Apple's protocols. No sockets.
        .target(
            name: "APNSWire",
            dependencies: [
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            swiftSettings: strict),
        // The client side of HTTP/2: bytes <-> frames, windows, limits. No sockets.
        .target(
            name: "HTTP2Wire",
            dependencies: [
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHPACK", package: "swift-nio-http2"),
            ],
            swiftSettings: strict),
        // Messages for browsers: encryption and keys. No sockets.
        .target(
            name: "WebPushWire",
            dependencies: ["APNSWire", .product(name: "Crypto", package: "swift-crypto")],
            swiftSettings: strict),
        // Connections to browsers' push services, each apart from the others.
        .target(
            name: "WebPushGateway",
            dependencies: [
                "ChatDomain", "APNSWire", "HTTP2Wire", "WebPushWire",
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHPACK", package: "swift-nio-http2"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
            ],
            swiftSettings: strict),
        // Apple's side, played, and browsers': listeners, verdicts, faults, inbox. Must not know the relay.
        .target(
            name: "APNSSandbox",
            dependencies: [
                "APNSWire", "WebAssets", "WebPushWire",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "CryptoExtras", package: "swift-crypto"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "HummingbirdHTTP2", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHPACK", package: "swift-nio-http2"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOHTTP2", package: "swift-nio-http2"),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
                .product(name: "NIOHTTPTypesHTTP1", package: "swift-nio-extras"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOWebSocket", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ],
            exclude: ["Web"],
            swiftSettings: strict),
        // Files for browsers, embedded: how they are answered, and what all pages share.
        .target(
            name: "WebAssets",
            dependencies: [
                "EmbeddedFiles",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
            ],
            exclude: ["base.css", "base.js"],
            swiftSettings: strict),
        // Files that the executable carries: pages, the API's description, the schema.
        .target(
            name: "EmbeddedFiles", cSettings: [.define("POSTGRESQL", .when(traits: ["PostgreSQL"]))]),
        // What a build knows of itself. In C, because Swift takes no values from the command line.
        .target(
            name: "BuildInfo",
            cSettings: [
                .define("PUSHCHAT_COMMIT", to: "\"\(Context.environment["PUSHCHAT_COMMIT"] ?? "")\"")
            ]),
        // The executable: one file per command, the configuration, the wiring. The only target that knows all others.
        .executableTarget(
            name: "pushchat",
            dependencies: [
                "ChatHTTP", "ChatDomain", "ChatSession", "ChatStore", "ChatDispatch", "APNSGateway", "APNSWire",
                "APNSSandbox", "WebPushGateway", "WebPushWire", "BuildInfo",
                .target(name: "ChatStorePostgres", condition: postgres),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
                .product(name: "Yams", package: "Yams"),
            ],
            swiftSettings: strict, linkerSettings: release),

        .testTarget(
            name: "ChatHTTPTests",
            dependencies: [
                "ChatHTTP", "ChatDomain", "APNSGateway", "WebAssets",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HummingbirdTesting", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
                .product(name: "NIOHTTPTypesHTTP1", package: "swift-nio-extras"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "X509", package: "swift-certificates"),
            ],
            swiftSettings: strict),
        .testTarget(name: "ChatDomainTests", dependencies: ["ChatDomain"], swiftSettings: strict),
        .testTarget(
            name: "ChatSessionTests",
            dependencies: [
                "ChatSession", "ChatDomain", .product(name: "JWTKit", package: "jwt-kit"),
            ],
            swiftSettings: strict),
        .testTarget(
            name: "ChatStoreTests",
            dependencies: [
                "ChatStore", "ChatDomain", "ChatDispatch", "APNSGateway", .product(name: "GRDB", package: "GRDB.swift"),
                .target(name: "ChatStorePostgres", condition: postgres),
                .target(name: "TestPostgres", condition: postgres),
                .product(name: "Logging", package: "swift-log"),
            ],
            // The schema of each released version, for the test of its upgrade.
            exclude: [
                "schema-1.sql", "schema-2.sql", "schema-3.sql", "schema-4.sql", "schema-5.sql", "schema-6.sql",
                "schema-7.sql", "schema-8.sql", "schema-postgres-1.sql",
            ],
            swiftSettings: strict),
        .testTarget(
            name: "ChatDispatchTests",
            dependencies: [
                "ChatDispatch", "ChatDomain", .product(name: "Logging", package: "swift-log"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            swiftSettings: strict),
        .testTarget(
            name: "APNSGatewayTests",
            dependencies: [
                "APNSGateway", "APNSWire", "APNSSandbox", "ChatDomain", "HTTP2Wire",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHPACK", package: "swift-nio-http2"),
                .product(name: "NIOHTTP2", package: "swift-nio-http2"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ],
            swiftSettings: strict),
        .testTarget(
            name: "APNSWireTests",
            dependencies: ["APNSWire", .product(name: "Crypto", package: "swift-crypto")],
            swiftSettings: strict),
        .testTarget(
            name: "WebPushWireTests",
            dependencies: ["WebPushWire", "APNSWire", .product(name: "Crypto", package: "swift-crypto")],
            swiftSettings: strict),
        .testTarget(
            name: "WebPushGatewayTests",
            dependencies: [
                "WebPushGateway", "WebPushWire", "ChatDomain", "HTTP2Wire",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HummingbirdTLS", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHPACK", package: "swift-nio-http2"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ],
            swiftSettings: strict),
        .testTarget(
            name: "APNSSandboxTests",
            dependencies: [
                "APNSSandbox", "APNSWire", "WebPushWire",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "HummingbirdTesting", package: "hummingbird"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHPACK", package: "swift-nio-http2"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOHTTP2", package: "swift-nio-http2"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOWebSocket", package: "swift-nio"),
            ],
            swiftSettings: strict),
        .testTarget(
            name: "pushchatTests",
            dependencies: [
                "pushchat", "APNSGateway", "ChatDomain", "ChatHTTP",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: strict),
        // A server for the tests of both the store and the whole. Empty without the trait.
        .target(
            name: "TestPostgres", dependencies: [.target(name: "CPostgreSQL", condition: postgres)],
            path: "Tests/TestPostgres", swiftSettings: strict),
        // The whole, through the built executable and real sockets.
        .testTarget(
            name: "EndToEndTests",
            dependencies: [
                "pushchat", "WebPushWire", .target(name: "TestPostgres", condition: postgres),
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
            ],
            swiftSettings: strict),
        // What docs/sandbox.md shows: built here, run by the end-to-end tests.
        .testTarget(
            name: "ExampleTests", path: "docs/examples", exclude: ["sandbox-test.sh", "test_push.py"],
            swiftSettings: strict),
    ]
)

// `make fuzz` builds this of the tests only. The parsers' targets tell libFuzzer which code an input reaches.
if let fuzzer = Context.environment["FUZZ_RUNTIME"] {
    let parsers: Set = [
        "APNSGateway", "APNSWire", "ChatDomain", "ChatHTTP", "ChatSession", "HTTP2Wire", "pushchat", "WebPushGateway",
        "WebPushWire",
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
            dependencies: parsers.sorted().map { .byName(name: $0) } + [
                "ChatStore", .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Logging", package: "swift-log"), .product(name: "NIOCore", package: "swift-nio"),
            ],
            exclude: ["run"], swiftSettings: strict, linkerSettings: runtime))
}
