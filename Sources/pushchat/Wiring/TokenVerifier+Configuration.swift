import ChatSession

extension TokenVerifier {
    /// What a configuration asks for; nil where anyone may register.
    /// - Throws: which setting is not usable, and why.
    static func configured(_ configuration: Configuration) async throws(Failure) -> TokenVerifier? {
        guard configuration.registration == .session else { return nil }
        let session = configuration.session
        var sources: [Source] = []
        if let secret = session.secret {
            sources.append(try await checked("session.secret", .secret(Array(secret.text.utf8))))
        }
        if let path = session.key {
            let name = "session.key, \(path)"
            sources.append(try await checked(name, .pem(String(decoding: try read(name, path), as: UTF8.self))))
        }
        if let path = session.keySet {
            let name = "session.jwks, \(path)"
            sources.append(try await checked(name, .keySet(try read(name, path))))
        }
        do throws(Unusable) {
            return try await TokenVerifier(
                sources, rules: SessionRules(audience: session.audience, issuer: session.issuer))
        } catch {
            throw Failure("session: \(error)")
        }
    }

    private static func read(_ name: String, _ path: String) throws(Failure) -> [UInt8] {
        do throws(ReadableFile.Problem) {
            return try ReadableFile.read(path, limit: SettingLimits.keyFile)
        } catch {
            throw Failure("\(name): \(error.message)")
        }
    }

    /// The source, if it has keys. Checked alone, so that an error names its setting.
    private static func checked(_ name: String, _ source: Source) async throws(Failure) -> Source {
        do throws(Unusable) {
            _ = try await TokenVerifier([source])
            return source
        } catch {
            throw Failure("\(name): \(error)")
        }
    }
}
