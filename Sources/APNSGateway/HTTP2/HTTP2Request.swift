import APNSWire
import ChatDomain
import NIOHPACK

/// One push as an HTTP/2 request: a stream's headers and body, and what the outcome of its answer depends on.
struct HTTP2Request: Sendable {
    let identifier: UInt32
    /// The push's type (`apns-push-type`).
    let type: String
    let headers: HPACKHeaders
    let body: [UInt8]
}

/// What the requests of one connection share.
///
/// What changes with each push goes as a literal without indexing, so that it does not evict the rest from the peer's
/// small table, and the path is marked as never to be indexed. The first request is the exception: it enters the *names*
/// of the changing headers, which later literals then refer to. `authorization` is the same for a connection's whole
/// life and is indexed, as the newer of Apple's two pages says it may (apns-http2.md §8): one byte instead of 200.
struct HTTP2RequestTemplate: Sendable {
    private let bundleID: String?
    /// What begins every request's headers.
    private let prefix: HPACKHeaders
    private let rest: HPACKHeaders

    /// - Parameter token: nil where the certificate is the credential.
    init(host: String, bundleID: String?, token: String?) {
        self.bundleID = bundleID
        var prefix = HPACKHeaders()
        prefix.reserveCapacity(12)
        prefix.add(name: ":method", value: "POST")
        prefix.add(name: ":scheme", value: "https")
        prefix.add(name: ":authority", value: host)
        self.prefix = prefix
        var rest = HPACKHeaders()
        if let token { rest.add(name: ProviderHeader.authorization, value: ProviderHeader.bearer + token) }
        self.rest = rest
    }

    /// The topic of a push; nil for the certificate's own.
    static func topic(type: String, bundleID: String?) -> String? {
        bundleID.map { PushType(rawValue: type)?.topic(bundleID: $0) ?? $0 }
    }

    func request(for push: Push) -> HTTP2Request {
        // The names are entered once per connection.
        let changing = push.identifier == 1 ? HPACKIndexing.indexable : .nonIndexable
        var headers = prefix
        headers.add(name: ":path", value: ProviderHeader.devicePath + push.address.description, indexing: .neverIndexed)
        headers.add(contentsOf: rest)
        if let topic = Self.topic(type: push.type, bundleID: bundleID) {
            headers.add(name: ProviderHeader.topic, value: topic)
        }
        headers.add(name: ProviderHeader.pushType, value: push.type)
        if let id = push.id { headers.add(name: ProviderHeader.id, value: id, indexing: changing) }
        // A background push with any other priority is an error (apns-http2.md §2), and 10 is what Apple assumes.
        if let priority = push.priority ?? (push.type == Push.background ? 5 : nil) {
            headers.add(name: ProviderHeader.priority, value: String(priority))
        }
        if let expiration = push.expiration {
            headers.add(name: ProviderHeader.expiration, value: String(expiration), indexing: changing)
        }
        if let collapseID = push.collapseID ?? (push.type == Push.alert ? push.id : nil) {
            // A repeat after a loss may be a second copy, and Apple does not compare ids. With the push's own id as its
            // collapse id, the second replaces the first on the screen and not every message shows twice.
            headers.add(name: ProviderHeader.collapseID, value: collapseID, indexing: changing)
        }
        return HTTP2Request(
            identifier: push.identifier, type: push.type, headers: headers, body: push.payload)
    }
}
