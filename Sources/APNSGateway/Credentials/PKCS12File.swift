import Foundation
import GatewayPool
import NIOSSL

/// A file that is not PEM: PKCS#12, or a file that was mistaken for it.
struct PKCS12File {
    /// Object identifiers in DER that reveal the content of a file even without its passphrase (RFC 7292 §4.2 and
    /// appendix D, RFC 5652).
    private enum Marker {
        static let keyBag: [UInt8] = bag(1)
        static let shroudedKeyBag: [UInt8] = bag(2)
        static let certificateBag: [UInt8] = bag(3)
        static let encryptedData: [UInt8] = [6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 7, 6]

        private static func bag(_ number: UInt8) -> [UInt8] {
            [6, 11, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 12, 10, 1, number]
        }
    }

    let path: String
    let bytes: [UInt8]

    /// Reads the certificates and the key from the file.
    /// - Returns: The certificates, in no particular order, and the key.
    func unpack(passphrase: String?) throws(CredentialsError) -> ([NIOSSLCertificate], NIOSSLPrivateKey) {
        guard (try? NIOSSLCertificate(bytes: bytes, format: .der)) == nil else {
            throw CredentialsError(
                """
                \(path) is a certificate without its private key; export both together from Keychain (.p12), or \
                convert it with openssl x509 -inform der -in \(shellQuoted(path)) -out \(shellQuoted(stem + ".pem")) \
                and name the key's file in certificate_key
                """)
        }
        guard isPFX else {
            throw CredentialsError(
                """
                \(path) is neither a PEM nor a PKCS#12 file; expected certificate and key, as Keychain exports them (.p12)
                """)
        }
        do {
            try requireBothParts()
            let bundle =
                if let passphrase {
                    try NIOSSLPKCS12Bundle(buffer: bytes, passphrase: Array(passphrase.utf8))
                } else {
                    try NIOSSLPKCS12Bundle(buffer: bytes)
                }
            return (bundle.certificateChain, bundle.privateKey)
        } catch let error as CredentialsError {
            throw error
        } catch {
            let given = passphrase == nil ? "no passphrase (is one missing?)" : "the passphrase given (is it right?)"
            throw CredentialsError(
                """
                \(path) cannot be read as PKCS#12 with \(given): \(ConnectionFailure.reasons(in: error)). If the passphrase is right, convert the file: \
                openssl pkcs12 -legacy -in \(shellQuoted(path)) -nodes -out \(shellQuoted(stem + ".pem"))
                """)
        }
    }

    /// Throws if the file lacks a key or a certificate. NIOSSL would end the process.
    private func requireBothParts() throws(CredentialsError) {
        guard holds(Marker.keyBag) || holds(Marker.shroudedKeyBag) else {
            throw CredentialsError(
                "\(path) holds no private key; export it again together with its key (in Keychain, select the certificate)"
            )
        }
        guard holds(Marker.certificateBag) || holds(Marker.encryptedData) else {
            throw CredentialsError("\(path) holds no certificate, only a key; export it again with its certificate")
        }
    }

    /// Whether the file starts like PKCS#12: with a SEQUENCE whose first element is the version 3 (RFC 7292 §4).
    private var isPFX: Bool {
        guard bytes.count > 8, bytes[0] == 0x30 else { return false }
        // The length takes one byte, or this byte gives the number of bytes that follow for it.
        let start = 2 + (bytes[1] > 0x80 && bytes[1] < 0x85 ? Int(bytes[1] & 0x7F) : 0)
        return bytes[start...].starts(with: [2, 1, 3])
    }

    private func holds(_ marker: [UInt8]) -> Bool {
        Data(bytes).range(of: Data(marker)) != nil
    }

    private var stem: String { (path as NSString).deletingPathExtension }
}
