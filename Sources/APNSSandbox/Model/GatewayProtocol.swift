/// The two protocols in which a provider can send.
package enum GatewayProtocol: String, Sendable, Hashable, CaseIterable {
    case binary
    case http2
}
