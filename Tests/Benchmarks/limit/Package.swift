// swift-tools-version: 6.2
import PackageDescription

/// What the relay's posts are measured against; built by Tests/Benchmarks/run, with the relay's versions of the packages.
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
