import ChatDomain

/// Checks a document that a caller wrote for browsers: `{"notification":…}`.
///
/// Safari rejects a whole declarative document if one member has a wrong type (WebKit's NotificationJSONParser; the
/// Push API's declarative messages). The check reports such a member to the caller. Otherwise, the notification would
/// never look as intended.
enum BrowserDocument {
    private enum Rule: String {
        case title = "must be a string that is not empty"
        case text = "must be a string"
        case flag = "must be true or false"
        case number = "must be a number"
        case numbers = "must be a number or an array of numbers"
        case direction = "must be auto, ltr or rtl"
        case address = "must be an absolute address with https:// or http://, of at most 2000 ASCII characters"

        func isMet(by value: JSONValue) -> Bool {
            switch self {
            case .title: value.text?.isEmpty == false
            case .text: value.text != nil
            case .flag: value == .bool(true) || value == .bool(false)
            case .number: value.isNumber
            case .numbers: value.isNumber || value.array?.allSatisfy(\.isNumber) == true
            case .direction: ["auto", "ltr", "rtl"].contains(value.text)
            case .address: value.text.map(NotificationContent.isLink) == true
            }
        }
    }

    /// The rules of the members of `notification`.
    private static let rules: [String: Rule] = [
        "title": .title, "body": .text, "lang": .text, "tag": .text, "dir": .direction, "navigate": .address,
        "icon": .address, "image": .address, "badge": .address, "silent": .flag, "mutable": .flag, "renotify": .flag,
        "requireInteraction": .flag, "timestamp": .number, "vibrate": .numbers,
    ]

    /// Checks a document if it has a notification for browsers.
    /// - Throws: An error with the first invalid member and its rule.
    static func check(_ document: JSONObject) throws(ChatError) {
        // If the document also has `aps`, a member of this name may be the caller's own data for its app.
        guard let value = document["notification"], document["aps"] == nil || value.object?["title"] != nil else {
            return
        }
        guard let notification = value.object else {
            throw .invalid("payload.notification", "must be an object, is \(value.kind)")
        }
        let isDeclarative = document["web_push"] != nil
        if let version = document["web_push"], version.integer != WebPushFormat.declarative {
            throw .invalid("payload.web_push", "must be the number \(WebPushFormat.declarative)")
        }
        if let value = document["mutable"], !Rule.flag.isMet(by: value) {
            throw .invalid("payload.mutable", Rule.flag.rawValue)
        }
        if isDeclarative {
            for name in ["title", "navigate"] where notification[name] == nil {
                throw .missing("payload.notification.\(name)")
            }
        }
        for (name, value) in notification.members {
            guard let rule = rules[name], !rule.isMet(by: value) else { continue }
            throw .invalid("payload.notification.\(name)", rule.rawValue)
        }
        if notification["silent"] == .bool(true), notification["vibrate"] != nil {
            throw .invalid("payload.notification.vibrate", "cannot go together with silent")
        }
        if notification["renotify"] == .bool(true), notification["tag"]?.text?.isEmpty != false {
            throw .invalid("payload.notification.renotify", "needs a tag")
        }
        if let actions = notification["actions"] { try check(actions: actions) }
        try check(badges: document["app_badge"], notification["app_badge"])
    }

    private static func check(actions: JSONValue) throws(ChatError) {
        guard let actions = actions.array else {
            throw .invalid("payload.notification.actions", "must be an array of objects")
        }
        for (index, action) in actions.enumerated() {
            let field = "payload.notification.actions[\(index)]"
            guard let action = action.object, action["action"]?.text != nil, action["title"]?.text != nil else {
                throw .invalid(field, "must be an object with the strings action and title")
            }
            for name in ["navigate", "icon"] {
                guard let value = action[name], !Rule.address.isMet(by: value) else { continue }
                throw .invalid("\(field).\(name)", Rule.address.rawValue)
            }
        }
    }

    /// Checks that both places have the same number, because a browser reads only one of them.
    private static func check(badges outer: JSONValue?, _ inner: JSONValue?) throws(ChatError) {
        let inField = "payload.notification.app_badge"
        let outer = try outer.map { value throws(ChatError) in
            try NotificationContent.badge(value, "payload.app_badge")
        }
        let inner = try inner.map { value throws(ChatError) in try NotificationContent.badge(value, inField) }
        if let outer, let inner, outer != inner { throw .invalid(inField, "must equal payload.app_badge") }
    }
}

extension JSONValue {
    fileprivate var isNumber: Bool {
        if case .number = self { true } else { false }
    }
}
