import ChatDomain
import PushWire
import WebPushGateway

extension Configuration {
    /// The rules for receivers of webhooks. The check of the configuration has read the hosts.
    var webhookRules: EndpointRules {
        (try? EndpointRules(webhooks: webhooks.hosts, admitsLoopback: isLoopbackOnly)) ?? .forWebhooks
    }
}

extension EndpointRules {
    /// Checks a webhook's URL.
    ///
    /// - Throws: An error for the field `url`.
    func check(webhook url: String) throws(ChatError) {
        do throws(WebPushError) {
            try check(PushEndpoint(url, admitsHTTP: true))
        } catch {
            throw .invalid("url", error.rule)
        }
    }
}
