// swift-tools-version: 6.2
import PackageDescription

/// The server that sets the limit for the relay's posts. Tests/Benchmarks/run builds it with the relay's package
/// versions.
let package = Package(
    name: "limit",
    platforms: [.macOS(.v15)],
    dependencies: [
        .package(
            url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.0", traits: ["FullFoundation"])
    ],
    targets: [
        .executableTarget(
            name: "limit",
            dependencies: [.product(name: "Hummingbird", package: "hummingbird")],
            path: ".",
            sources: ["main.swift"])
    ]
)
