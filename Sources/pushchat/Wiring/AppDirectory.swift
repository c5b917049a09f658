import ChatDomain

/// Which app an `appid` means: its name in the configuration, its topic (the bundle id), or the topic behind a team id,
/// as clients of the tutorials send it (`98Z3R5XU29.com.example.PushChat`).
struct AppDirectory: Sendable {
    private let defaultApp: AppName
    private var apps: [String: AppName] = [:]

    /// - Parameter topics: those of the apps' certificates, for apps whose configuration names none.
    init(_ configuration: Configuration, topics: [AppName: String]) {
        defaultApp = configuration.defaultApp
        for app in configuration.apps {
            // Of several apps of one topic, for builds of the other environment, say, the first has it.
            if let topic = app.topic ?? topics[app.name], apps[topic] == nil { apps[topic] = app.name }
        }
        // A name wins over another app's topic.
        for app in configuration.apps { apps[app.name.text] = app.name }
    }

    func resolve(_ appid: String?) throws(ChatError) -> AppName {
        guard let appid, !appid.isEmpty else { return defaultApp }
        if let app = apps[appid] { return app }
        if let dot = appid.firstIndex(of: "."), appid.distance(from: appid.startIndex, to: dot) == 10,
            let app = apps[String(appid[appid.index(after: dot)...])]
        {
            return app
        }
        throw .invalid("appid", "names no app of this relay")
    }
}
