/// Data about a client from its requests and its connection, for debugging, statistics and the prevention of abuse.
package struct ClientInfo: Sendable, Hashable {
    /// The maximum number of bytes of each text.
    package static let longest = 255

    package var address: String?
    package var appVersion: String?
    package var osVersion: String?
    package var deviceModel: String?

    package init(
        address: String? = nil, appVersion: String? = nil, osVersion: String? = nil, deviceModel: String? = nil
    ) {
        self.address = address
        self.appVersion = appVersion
        self.osVersion = osVersion
        self.deviceModel = deviceModel
    }

    package var withoutAddress: ClientInfo {
        ClientInfo(appVersion: appVersion, osVersion: osVersion, deviceModel: deviceModel)
    }

    /// Checks one of the texts of a request. `nil` if it is absent or blank.
    package static func text(_ text: String?, field: String) throws(ChatError) -> String? {
        guard let text, !FieldText.isBlank(text) else { return nil }
        return try FieldText.checked(text, field: field, limit: longest)
    }
}
