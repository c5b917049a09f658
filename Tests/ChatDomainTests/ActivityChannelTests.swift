import ChatDomain
import Testing

@Suite("The channel of a Live Activity")
struct ActivityChannelTests {
    private let now = Timestamp(seconds: 1_800_000_000)

    @Test("Creations stop after five failures, with growing pauses")
    func creations() {
        var (channel, time) = (ActivityChannel(), now)
        var pauses: [Int64] = []
        while !channel.isDecided {
            let step = channel.next(revision: 1, isEnded: false, pause: nil, at: time)
            #expect(step == .create && channel.state == .requested)
            channel.answered(.unavailable("down"), to: .create, revision: 1, at: time)
            guard let end = channel.notBefore else { break }
            pauses.append(end.seconds - time.seconds)
            #expect(channel.next(revision: 1, isEnded: false, pause: nil, at: time) == nil)
            time = end
        }
        #expect(pauses == [1, 2, 4, 8])
        #expect(channel.state == .refused)
    }

    @Test("A broadcast is retried for about eight hours")
    func broadcasts() {
        var (channel, time) = (ActivityChannel(state: .open, id: "c"), now)
        while channel.next(revision: 2, isEnded: false, pause: nil, at: time) == .broadcast {
            channel.answered(.unavailable("down"), to: .broadcast, revision: 2, at: time)
            time = channel.notBefore ?? time
        }
        #expect((7 * 3600...8 * 3600).contains(time.seconds - now.seconds))
        #expect(channel.state == .open && channel.revision == 2)
    }

    @Test("The pause of an app holds back broadcasts and deletions, and no request for a channel")
    func pause() {
        var channel = ActivityChannel(state: .open, id: "c")
        #expect(channel.next(revision: 2, isEnded: true, pause: now + .seconds(3), at: now) == nil)
        #expect(channel.notBefore == now + .seconds(3))
        #expect(channel.next(revision: 2, isEnded: true, pause: now + .seconds(3), at: now + .seconds(3)) == .broadcast)
        var idle = ActivityChannel(state: .open, id: "c")
        #expect(idle.next(revision: 1, isEnded: false, pause: now + .seconds(3), at: now) == nil)
        #expect(idle.notBefore == nil, "nothing has to be sent")
        var wanted = ActivityChannel()
        #expect(wanted.next(revision: 1, isEnded: false, pause: now + .seconds(3), at: now) == .create)
    }

    @Test("An activity that ends before it has a channel needs none")
    func ended() {
        var channel = ActivityChannel()
        #expect(channel.next(revision: 2, isEnded: true, pause: nil, at: now) == nil)
        #expect(channel.state == .deleted)
    }

    @Test(
        "A refused content is not broadcast again, and a channel that is gone is not used again",
        arguments: [
            (BroadcastAnswer.refused("PayloadTooLarge"), ActivityChannel.State.open),
            (.gone("ChannelNotRegistered"), .refused),
            (.missingCapability("FeatureNotEnabled"), .refused),
        ])
    func refusals(answer: BroadcastAnswer, state: ActivityChannel.State) {
        var channel = ActivityChannel(state: .open, id: "c")
        channel.answered(answer, to: .broadcast, revision: 2, at: now)
        #expect(channel.state == state)
        #expect(channel.next(revision: 2, isEnded: false, pause: nil, at: now) == nil)
    }
}
