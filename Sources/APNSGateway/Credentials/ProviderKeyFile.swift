import Foundation
package import GatewayPool
package import PushWire

extension ProviderKey {
    /// The maximum size of a key file, in bytes. Apple's have about 260.
    private static let longestFile = 1 << 16

    /// Reads a key file as Apple issues it, `AuthKey_….p8`.
    package init(file: String, keyID: String, teamID: String) throws(CredentialsError) {
        let text = try Self.read(file)
        if PEM(text).privateKey?.isEncrypted == true {
            throw CredentialsError(
                """
                the private key in \(file) is encrypted; Apple's is not. Use the file that Apple issued, or decrypt it: \
                openssl pkcs8 -topk8 -nocrypt -in \(shellQuoted(file)) -out \(shellQuoted(file + ".new"))
                """)
        }
        if text.contains("-----BEGIN EC PRIVATE KEY-----") {
            throw CredentialsError(
                """
                \(file) holds an EC key in the traditional form (SEC 1); expected PKCS#8, as Apple issues it. Convert it: \
                openssl pkcs8 -topk8 -nocrypt -in \(shellQuoted(file)) -out \(shellQuoted(file + ".new"))
                """)
        }
        if text.contains("-----BEGIN RSA PRIVATE KEY-----") {
            throw CredentialsError("\(file) holds an RSA key; \(Self.expected)")
        }
        guard text.contains("-----BEGIN PRIVATE KEY-----") else { throw Self.noKey(text, file) }
        do throws(NoP256Key) {
            try self.init(pem: text, keyID: keyID, teamID: teamID)
        } catch .otherKind(let kind) {
            throw CredentialsError("\(file) holds a key \(kind), not on the curve P-256; \(Self.expected)")
        } catch {
            throw CredentialsError("the private key in \(file) is damaged; copy the whole file again")
        }
    }

    private static let expected = """
        expected the key for provider tokens, AuthKey_….p8, from Certificates, Identifiers & Profiles > Keys
        """

    private static func read(_ file: String) throws(CredentialsError) -> String {
        var isDirectory: ObjCBool = false
        if FileManager.default.fileExists(atPath: file, isDirectory: &isDirectory), isDirectory.boolValue {
            throw CredentialsError("\(file) is a directory; name the .p8 file in it")
        }
        return String(
            decoding: try CredentialsError.read(file, limit: longestFile, expected: expected), as: UTF8.self)
    }

    private static func noKey(_ text: String, _ file: String) -> CredentialsError {
        if text.contains("-----BEGIN CERTIFICATE-----") {
            return CredentialsError(
                "\(file) holds a certificate, which belongs in certificate; \(expected)")
        }
        if text.contains("-----BEGIN PUBLIC KEY-----") {
            return CredentialsError("\(file) holds a public key; \(expected)")
        }
        return CredentialsError("\(file) is not a PEM file with a private key; \(expected)")
    }
}
