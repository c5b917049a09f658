extension TokenVerifier {
    /// Returns the verifier that a configuration requires. `nil` if clients may register without a session.
    ///
    /// - Throws: ``Failure`` with the setting that cannot be used, and the reason.
    static func configured(_ configuration: Configuration) async throws(Failure) -> TokenVerifier? {
        guard configuration.registration == .session else { return nil }
        let session = configuration.session
        var sources: [Source] = []
        if let secret = session.secret {
            sources.append(try await checked("session.secret") { .secret(Array(secret.text.utf8)) })
        }
        if let path = session.key {
            let source = try await checked("session.key, \(path)") {
                .pem(String(decoding: try ReadableFile.read(path, limit: limit), as: UTF8.self))
            }
            sources.append(source)
        }
        if let path = session.keySet {
            sources.append(
                try await checked("session.jwks, \(path)") { .keySet(try ReadableFile.read(path, limit: limit)) })
        }
        do throws(Unusable) {
            return try await TokenVerifier(
                sources, rules: SessionRules(audience: session.audience, issuer: session.issuer))
        } catch {
            throw Failure("session: \(error)")
        }
    }

    private static let limit = SettingLimits.keyFile

    /// Returns the source if it has keys. Each source is checked alone, so that an error names its setting.
    private static func checked(_ name: String, _ source: () throws -> Source) async throws(Failure) -> Source {
        do {
            let source = try source()
            _ = try await TokenVerifier([source])
            return source
        } catch {
            throw Failure("\(name): \(error)")
        }
    }
}
