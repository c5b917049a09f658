extension CheckReport {
    /// Warns of files with a secret that every user of the machine can read.
    mutating func checkSecretFiles(_ configuration: Configuration) {
        let files = configuration.secretFiles + configuration.keyFiles
        for (setting, path) in files where ReadableFile.isReadableByAll(path) {
            add(
                .warning, "\(setting)",
                "\(path) holds a secret, and every user of this machine can read it; chmod o-r \(path)")
        }
    }
}

extension Configuration {
    /// The files that hold a private key, with the setting that names each.
    fileprivate var keyFiles: [(setting: SettingKey, path: String)] {
        let server = http.tls.map { [(SettingKey(name: http.key == nil ? "http.certificate" : "http.key"), $0.key)] }
        return (server ?? [])
            + apps.flatMap { app in
                let certificate =
                    app.certificateKey == nil
                    ? ("certificate", app.certificate) : ("certificate_key", app.certificateKey)
                return [("key", app.key), certificate].compactMap { name, path in
                    path.map { (SettingKey(app: app.name, name: name), $0) }
                }
            }
    }
}
