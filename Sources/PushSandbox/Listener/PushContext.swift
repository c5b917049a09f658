import Hummingbird
import NIOCore

/// The context of a push: Hummingbird's storage, and the connection or stream on which the push arrived.
struct PushContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    let channel: any Channel

    init(source: ApplicationRequestContextSource) {
        coreContext = .init(source: source)
        channel = source.channel
    }
}
