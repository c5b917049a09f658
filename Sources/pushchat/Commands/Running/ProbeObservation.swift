import ChatDomain

/// The relay's view of a request that came through the public address and claimed to come from ``forged``.
struct ProbeObservation: Equatable {
    /// A documentation address that no host has (RFC 5737).
    static let forged = "192.0.2.1"

    /// The address that the relay counts as the client's.
    var client: String
    /// The remote end of the relay's connection: the proxy if there is one.
    var peer: String
    /// Whether `http.trusted_proxies` contains ``peer``.
    var isTrusted: Bool
    /// `forwarded` has the values of the header `Forwarded`, and `forwardedFor` the values of `X-Forwarded-For`, as the
    /// relay received them.
    var forwarded: [String]
    var forwardedFor: [String]

    /// Judges whether the relay sees its clients' own addresses, and whether clients can forge them.
    ///
    /// - Parameter isDirect: Whether the public address may be the relay's own, without a proxy.
    /// - Returns: The result, and a text that says how to fix a problem.
    func verdict(isDirect: Bool) -> (CheckReport.Result, String) {
        // Each proxy appends to the header, so the last element is from the proxy next to the relay.
        let lasts = [forwardedFor, forwarded].map { $0.last?.split(separator: ",").last.map(String.init) }
        let isPassedOn = lasts.map { $0?.contains(Self.forged) == true }
        let isNamed = lasts.map { $0?.contains(Self.forged) == false }
        let names = ["X-Forwarded-For", "Forwarded"]
        let passed = zip(names, isPassedOn).filter(\.1).map(\.0).joined(separator: " and ")
        let consequence = "all clients count as one address and share its limits"
        if isTrusted {
            guard isNamed.contains(true) else {
                return passed.isEmpty
                    ? (
                        .warning,
                        "the proxy at \(peer) does not name its clients: \(consequence). Configure it to set X-Forwarded-For"
                    )
                    : (
                        .failed,
                        "the proxy at \(peer) passes on what clients send as \(passed): any client can choose the address by "
                            + "which limits count. Configure the proxy to set X-Forwarded-For and to remove Forwarded"
                    )
            }
            guard passed.isEmpty else {
                return (
                    .warning,
                    "the proxy at \(peer) names its clients, and passes on what they send as \(passed): a client that sends "
                        + "it counts as the proxy. Configure the proxy to remove it"
                )
            }
            return (.ok, "clients' addresses come from the proxy at \(peer)")
        }
        if isNamed.contains(true) {
            return (
                .warning,
                "the proxy at \(peer) names its clients, and is not in http.trusted_proxies: \(consequence)"
            )
        }
        if isDirect { return (.ok, "there is no proxy: clients' addresses are their own; this machine's is \(peer)") }
        return (
            .warning,
            "the server in front, at \(peer), does not name its clients: \(consequence). Configure it to set X-Forwarded-For, "
                + "and add its address to http.trusted_proxies"
        )
    }
}

extension ProbeObservation {
    /// Parses the JSON of the event `probe`. `nil` if it is anything else.
    init?(_ json: String) {
        guard let object = try? JSONValue(parsing: Array(json.utf8)).object, let client = object["client"]?.text,
            let peer = object["peer"]?.text, case .bool(let isTrusted) = object["trusted"],
            let forwarded = object["forwarded"]?.array, let forwardedFor = object["x_forwarded_for"]?.array
        else { return nil }
        self.init(
            client: client, peer: peer, isTrusted: isTrusted, forwarded: forwarded.compactMap(\.text),
            forwardedFor: forwardedFor.compactMap(\.text))
    }
}
