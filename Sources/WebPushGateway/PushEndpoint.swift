package import ChatDomain
package import PushWire

/// The URL at which a push service accepts messages for one browser. A stranger chose it, so the initializer accepts
/// only URLs in a strict form.
///
/// Anyone who knows the URL can send to the browser, so it is never logged.
package struct PushEndpoint: Sendable, Hashable {
    /// The maximum size in bytes. This is UnifiedPush's limit; the vendors' URLs have about 200.
    package static let longest = 1000

    /// The URL as the browser gave it, but with normalized scheme, host and port. The relay therefore connects to the
    /// URL that it has checked.
    package let url: String
    /// The host in lower case, without the brackets of an IPv6 address.
    package let host: String
    package let port: Int
    /// `https://`, or `http://` for a webhook's receiver in the operator's own network.
    let scheme: String
    /// Scheme, host and port, as a VAPID token names them.
    package let origin: String
    /// Host and port, as a request names them.
    package var authority: String { String(origin.dropFirst(scheme.count)) }
    /// Path and query.
    let path: String
    /// Whether the browser is Safari, or a web app on an iPhone.
    var isOfApple: Bool { host.hasSuffix(".push.apple.com") }

    /// Requires `https`, printable ASCII and a host. Rejects a user name or a fragment.
    ///
    /// - Parameter admitsHTTP: Whether `http` is possible as well. ``EndpointRules/check(_:)`` decides about it.
    package init(_ url: String, admitsHTTP: Bool = false) throws(WebPushError) {
        func wrong(_ rule: String) -> WebPushError { WebPushError("endpoint", rule) }
        guard url.utf8.count <= Self.longest else { throw wrong("must have at most \(Self.longest) bytes") }
        guard url.utf8.allSatisfy({ (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "\\") && $0 != UInt8(ascii: "#") })
        else { throw wrong("must be a URL in printable ASCII, without a fragment") }
        let isHTTP = admitsHTTP && url.lowercased().hasPrefix("http://")
        guard isHTTP || url.lowercased().hasPrefix("https://") else { throw wrong("must begin with https://") }
        let (scheme, usual) = isHTTP ? ("http://", 80) : ("https://", 443)
        let rest = url.dropFirst(scheme.count)
        let authority = rest.prefix { $0 != "/" && $0 != "?" }
        guard !authority.contains("@"), !authority.contains("%") else {
            throw wrong("must have a plain host name, without a user name or escapes")
        }
        let (host, port) = Self.split(authority, usual: usual)
        guard let host, let port, (1...65535).contains(port) else {
            throw wrong("must name a host, and a port if not \(usual)")
        }
        self.host = host
        self.port = port
        let name = host.contains(":") ? "[\(host)]" : host
        self.scheme = scheme
        origin = port == usual ? scheme + name : "\(scheme)\(name):\(port)"
        let path = rest.dropFirst(authority.count)
        self.path = path.first == "/" ? String(path) : "/" + path
        self.url = origin + path
    }

    private static func split(_ authority: Substring, usual: Int) -> (host: String?, port: Int?) {
        var host = authority
        var port: Int? = usual
        if authority.first == "[" {
            guard let end = authority.firstIndex(of: "]") else { return (nil, nil) }
            host = authority[authority.index(after: authority.startIndex)..<end]
            guard IPAddress(host) != nil, !host.contains("%") else { return (nil, nil) }
            let after = authority[authority.index(after: end)...]
            if !after.isEmpty {
                guard after.first == ":" else { return (nil, nil) }
                port = Int(digits: after.dropFirst())
            }
        } else {
            if let colon = authority.firstIndex(of: ":") {
                host = authority[..<colon]
                port = Int(digits: authority[authority.index(after: colon)...])
            }
            let isName = host.utf8.allSatisfy { byte in
                byte.isASCIIDigit || byte == UInt8(ascii: "-") || byte == UInt8(ascii: ".")
                    || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20)
            }
            guard isName, host.first != ".", !host.contains("..") else { return (nil, nil) }
            if host.last == "." { host = host.dropLast() }
        }
        return (host.isEmpty || host.utf8.count > 253 ? nil : host.lowercased(), port)
    }

    /// Whether the host is an address and not a name, in any spelling that resolvers accept, including `127.1`,
    /// `0x7f.1` and `2130706433`.
    fileprivate var isAddress: Bool {
        guard !host.contains(":"), let last = host.split(separator: ".").last else { return true }
        return last.utf8.first?.isASCIIDigit == true
    }
}

/// The rules for the push services that subscriptions name and for the receivers of webhooks, and for their IP addresses.
/// Strangers choose subscriptions, and the relay connects to the named hosts. Without these rules, a stranger could make
/// the relay connect into the operator's own network.
package struct EndpointRules: Sendable, Hashable {
    /// The hosts of browser vendors. A leading dot matches every host below it.
    ///
    /// Source: the subscriptions of Chrome, Firefox, Safari (Apple, "Sending web push notifications in web apps and
    /// browsers") and Edge, as of November 2026. Operators add other hosts in `webpush.hosts`.
    package static let vendors = [
        "fcm.googleapis.com", "android.googleapis.com", "jmt17.google.com", ".push.services.mozilla.com",
        ".push.apple.com", ".notify.windows.com",
    ]

    /// A host that the operator named. The port is 443 if the setting names none.
    private struct Named: Sendable, Hashable {
        let host: String
        let port: Int
    }

    private let named: Set<Named>
    /// Whether any public host is admitted, and not only those of vendors.
    private var admitsAnyHost = false
    /// Whether this machine is admitted, for `pushchat dev` and tests.
    private var admitsLoopback = false

    /// The rules for webhooks: any host with a public address, over HTTPS, or one that the operator named.
    ///
    /// - Parameter webhooks: The setting `webhooks.hosts`. Plain HTTP is possible to these hosts.
    package init(webhooks: [String], admitsLoopback: Bool = false) throws(WebPushError) {
        try self.init(hosts: webhooks, setting: "webhooks.hosts")
        self.admitsAnyHost = true
        self.admitsLoopback = admitsLoopback
    }

    /// - Parameter hosts: The setting, a list of further services as `host` or `host:port`.
    package init(hosts: [String] = [], setting: String = "webpush.hosts") throws(WebPushError) {
        var named: Set<Named> = []
        for host in hosts {
            guard let endpoint = try? PushEndpoint("https://\(host)/"), !host.contains("/") else {
                throw WebPushError(setting, "must be a list of host or host:port; \(host) is neither")
            }
            named.insert(Named(host: endpoint.host, port: endpoint.port))
        }
        self.named = named
    }

    /// The rules for webhooks without hosts of the operator.
    package static let forWebhooks: EndpointRules = {
        var rules = EndpointRules(named: [])
        rules.admitsAnyHost = true
        return rules
    }()

    private init(named: Set<Named>) { self.named = named }

    /// Whether the operator named the host, so that it may have any address.
    package func isNamed(_ endpoint: PushEndpoint) -> Bool {
        named.contains(Named(host: endpoint.host, port: endpoint.port))
    }

    private func isLoopback(_ endpoint: PushEndpoint) -> Bool {
        admitsLoopback && (endpoint.host == "localhost" || IPAddress(endpoint.host)?.isLoopback == true)
    }

    /// Checks whether the rules allow an endpoint.
    /// - Throws: The reason why nothing may be sent to the endpoint.
    package func check(_ endpoint: PushEndpoint) throws(WebPushError) {
        if isNamed(endpoint) || isLoopback(endpoint) { return }
        guard endpoint.scheme == "https://" else {
            throw broken("must begin with https://", by: endpoint)
        }
        guard endpoint.port == 443 else { throw broken("must have the port 443", by: endpoint) }
        guard !endpoint.isAddress else { throw broken("must have a host name and not an address", by: endpoint) }
        if admitsAnyHost { return }
        let isVendor = Self.vendors.contains { $0.first == "." ? endpoint.host.hasSuffix($0) : endpoint.host == $0 }
        guard isVendor else {
            throw WebPushError(
                "endpoint", "must be of a browser vendor's push service; \(endpoint.host) is not in webpush.hosts")
        }
    }

    /// The error for an endpoint that breaks a rule. It says how the operator can except a webhook's host from the rule.
    func broken(_ rule: String, by endpoint: PushEndpoint) -> WebPushError {
        guard admitsAnyHost else { return WebPushError("endpoint", rule) }
        let host = endpoint.host.contains(":") ? "[\(endpoint.host)]" : endpoint.host
        let name = endpoint.port == 443 ? host : "\(host):\(endpoint.port)"
        return WebPushError("endpoint", "\(rule), or webhooks.hosts must name \(name)")
    }

    /// Whether the relay may connect to an address of a host. Hosts of vendors may only have public addresses, even if
    /// a name server returns others.
    package func allows(_ address: IPAddress, of endpoint: PushEndpoint) -> Bool {
        isNamed(endpoint) || isLoopback(endpoint) && address.isLoopback || Self.isPublic(address)
    }

    /// Whether an address is public. Addresses of this machine and of private or local networks are not. Neither are
    /// addresses that can lead to them through a translator or tunnel (NAT64, 6to4, Teredo).
    package static func isPublic(_ address: IPAddress) -> Bool {
        if address.isV4 { return !reservedV4.contains { $0.contains(address) } }
        // Global unicast. All other addresses are local, multicast, mapped or unassigned.
        return globalV6.contains(address) && !reservedV6.contains { $0.contains(address) }
    }

    /// IANA's registry of special-purpose addresses, and multicast.
    private static let reservedV4 = ranges([
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
    ])
    private static let globalV6 = ranges(["2000::/3"])[0]
    private static let reservedV6 = ranges([
        "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
    ])

    private static func ranges(_ texts: [String]) -> [AddressRange] {
        texts.map { text in
            guard let range = AddressRange(text) else { preconditionFailure("\(text) is no network") }
            return range
        }
    }
}
