import Testing

@testable import ChatDomain

@Suite("Signals of arrivals")
struct SignalsTests {
    @Test("A listener for an app is woken by signals for that app and for all apps")
    func apps() async {
        let signals = Signals()
        let apps = [AppName.default, .web]
        let listeners = apps.map { app in
            let (stream, signal) = AsyncStream.makeStream(of: Void.self)
            signals.add(signal, of: app)
            return (stream, signal)
        }
        signals.send([.default])
        signals.send([AppName("other")])
        signals.send([.default, .web])
        signals.send()
        var heard: [Int] = []
        for (stream, signal) in listeners {
            signal.finish()
            heard.append(await stream.reduce(0) { count, _ in count + 1 })
        }
        #expect(heard == [3, 2])
    }
}
