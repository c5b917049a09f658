import Testing

@testable import pushchat

@Suite("Files that the process may open")
struct FileLimitTests {
    @Test(
        "The relay keeps a quarter of the files for itself, and at least 40 and four for each event loop",
        arguments: [
            (32, 8), (64, 16), (128, 80), (192, 144), (1024, 768), (4096, 3072), (1 << 20, 16_384), (.max, 16_384),
        ]
    )
    func connections(limit: Int, connections: Int) {
        #expect(FileLimit.connections(of: limit, eventLoops: 2) == connections)
    }
}
