import ChatDomain

/// A setting that differs between two configurations.
struct SettingChange: Sendable, Hashable {
    /// `http.port`, `apps.default.topic`; `apps.news` for an app that came or went.
    let setting: String
    /// It takes effect only when the process starts again.
    let needsRestart: Bool
}

extension Configuration {
    /// What is different in `new`, in the table's order. The contents of files are not compared: a renewed
    /// certificate under the same path is no change.
    func changes(to new: Configuration) -> [SettingChange] {
        var changes = Self.differences(SettingsTable.relay, self, new, app: nil)
        for app in apps {
            if let other = new.app(app.name) {
                changes += Self.differences(SettingsTable.app, app, other, app: app.name).map {
                    SettingChange(setting: $0.setting, needsRestart: $0.needsRestart || app.gateway != other.gateway)
                }
            } else {
                changes.append(SettingChange(setting: "apps.\(app.name)", needsRestart: true))
            }
        }
        for app in new.apps where self.app(app.name) == nil {
            changes.append(SettingChange(setting: "apps.\(app.name)", needsRestart: true))
        }
        if new.defaultApp != defaultApp {
            changes.append(SettingChange(setting: "apps: the default app", needsRestart: true))
        }
        return changes
    }

    /// This configuration with everything of `new` that a running process can take over: what needs a restart, and which
    /// apps there are, stays.
    func adopting(_ new: Configuration) -> Configuration {
        var result = self
        for setting in SettingsTable.relay where !setting.needsRestart { setting.copy(new, &result) }
        result.apps = apps.map { app in
            // The settings of one gateway do not fit the other.
            guard let other = new.app(app.name), other.gateway == app.gateway else { return app }
            var app = app
            for setting in SettingsTable.app where !setting.needsRestart { setting.copy(other, &app) }
            return app
        }
        return result
    }

    private static func differences<Root>(
        _ settings: [Setting<Root>], _ old: Root, _ new: Root, app: AppName?
    ) -> [SettingChange] {
        settings.filter { !$0.isSame(old, new) }.map {
            SettingChange(setting: SettingKey(app: app, name: $0.name).description, needsRestart: $0.needsRestart)
        }
    }
}
