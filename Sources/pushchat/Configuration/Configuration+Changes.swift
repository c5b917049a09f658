import ChatDomain

/// A setting that differs between two configurations.
struct SettingChange: Sendable, Hashable {
    /// The setting's name, for example `http.port` or `apps.default.topic`. It is `apps.news` if the app `news` was
    /// added or removed.
    let setting: String
    /// Whether the change takes effect only after a restart.
    let needsRestart: Bool
}

extension Configuration {
    /// Returns the settings that differ in `new`, in the order of ``SettingsTable``. Does not compare the contents of
    /// files: a renewed certificate under the same path is not a change.
    func changes(to new: Configuration) -> [SettingChange] {
        var changes = Self.differences(SettingsTable.relay, self, new, app: nil)
        for app in apps {
            guard let other = new.app(app.name) else { continue }
            changes += Self.differences(SettingsTable.app, app, other, app: app.name)
        }
        let removed = apps.filter { new.app($0.name) == nil }
        let added = new.apps.filter { self.app($0.name) == nil }
        changes += removed.map { SettingChange(setting: "apps.\($0.name)", needsRestart: $0.name == .default) }
        changes += added.map { SettingChange(setting: "apps.\($0.name)", needsRestart: false) }
        if new.defaultApp != defaultApp {
            changes.append(SettingChange(setting: "apps: the default app", needsRestart: losesDefault(in: new)))
        }
        return changes
    }

    /// Returns this configuration with every setting of `new` that a running process can apply. Settings that need a
    /// restart keep their value.
    func adopting(_ new: Configuration) -> Configuration {
        var result = self
        for setting in SettingsTable.relay where !setting.needsRestart { setting.copy(new, &result) }
        result.apps = new.apps + (losesDefault(in: new) ? apps.filter { $0.name == .default } : [])
        return result
    }

    /// Whether `new` has no app named `default`, because it was renamed or removed. Its devices and pushes then belong
    /// to the default app of `new`, and the next start assigns them to it.
    private func losesDefault(in new: Configuration) -> Bool {
        app(.default) != nil && new.app(.default) == nil
    }

    private static func differences<Root>(
        _ settings: [Setting<Root>], _ old: Root, _ new: Root, app: AppName?
    ) -> [SettingChange] {
        settings.filter { $0.text(old) != $0.text(new) }.map {
            SettingChange(
                setting: SettingKey(app: app, name: $0.name).description, needsRestart: $0.needsRestart)
        }
    }
}
