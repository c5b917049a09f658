import Crypto
import Foundation
import Testing

@testable import PushWire

@Suite("Private keys as other software writes them")
struct PEMTests {
    /// `openssl ecparam -name prime256v1 -genkey`, the usual way to make a key for Web Push.
    private static let ecparam = """
        -----BEGIN EC PARAMETERS-----
        BggqhkjOPQMBBw==
        -----END EC PARAMETERS-----
        -----BEGIN EC PRIVATE KEY-----
        MHcCAQEEINMejzP4iIIhQdUCF61XqgIamw9LGd4opLlxyzLOFjD6oAoGCCqGSM49
        AwEHoUQDQgAEMd7mezqi8gMvbUtSnQ+NixXBeVQOaYcE4Uv9kYasjEE5RJRgcP7X
        Izj6JmA8WSI7r9G0z4p2XtLTyS/WA4lLGA==
        -----END EC PRIVATE KEY-----
        """
    /// The private key of ``ecparam``.
    private static let raw = "0x6PM_iIgiFB1QIXrVeqAhqbD0sZ3iikuXHLMs4WMPo"
    /// `openssl ecparam -name secp256k1 -genkey -noout`
    private static let secp256k1 = """
        -----BEGIN EC PRIVATE KEY-----
        MHQCAQEEIHqF/tUCnQ7gVfVroKIacMXBKZv52rjZy2la3BFmVEV1oAcGBSuBBAAK
        oUQDQgAEdWtDwOSp19X3on28d7qbA893PeA/sWpz9AaepCT/KpVg18SYVOifNZNv
        LeghikQWMn6Gjn2FgdiWSI6HqsNEww==
        -----END EC PRIVATE KEY-----
        """
    private static let secp256k1PKCS8 = """
        -----BEGIN PRIVATE KEY-----
        MIGEAgEAMBAGByqGSM49AgEGBSuBBAAKBG0wawIBAQQgeoX+1QKdDuBV9Wugohpw
        xcEpm/nauNnLaVrcEWZURXWhRANCAAR1a0PA5KnX1feifbx3upsDz3c94D+xanP0
        Bp6kJP8qlWDXxJhU6J81k28t6CGKRBYyfoaOfYWB2JZIjoeqw0TD
        -----END PRIVATE KEY-----
        """
    /// The form of `openssl ec -aes128`, with a shortened content.
    private static let encryptedSEC1 = """
        -----BEGIN EC PRIVATE KEY-----
        Proc-Type: 4,ENCRYPTED
        DEK-Info: AES-128-CBC,1F0B2C3D4E5F60718293A4B5C6D7E8F9

        MHcCAQEEINMejzP4iIIhQdUCF61XqgIamw9LGd4opLlxyzLOFjD6oAoGCCqGSM49
        -----END EC PRIVATE KEY-----
        """
    private static let der = """
        MHcCAQEEINMejzP4iIIhQdUCF61XqgIamw9LGd4opLlxyzLOFjD6oAoGCCqGSM49AwEHoUQDQgAEMd7mezqi8gMvbUtSnQ+NixXBeVQOaYcE4Uv9kY\
        asjEE5RJRgcP7XIzj6JmA8WSI7r9G0z4p2XtLTyS/WA4lLGA==
        """

    @Test(
        "A key is read from each form in which other software writes it",
        arguments: [
            ecparam, ecparam.replacing("\n", with: "\r\n"), ecparam.replacing("\n", with: "\\n"),
            ecparam.replacing("\n", with: "\\r\\n"), ecparam.replacing("\n", with: " "), "Bag Attributes\n" + ecparam,
            "-----BEGIN EC PRIVATE KEY-----\n\(der)\n-----END EC PRIVATE KEY-----", der, raw, raw + "=\n",
            raw.replacing("_", with: "/"),
        ])
    func forms(text: String) throws {
        #expect(try VAPIDKey(text: text).text == Self.raw)
    }

    @Test(
        "A text that is not a key on P-256 is refused with its cause",
        arguments: [
            (secp256k1, "a key on the curve secp256k1"), (secp256k1PKCS8, "a key on the curve secp256k1"),
            (String(ecparam.prefix(80)), "no private key was found"),
            (ecparam.replacing("MHcCAQEE", with: "MHcCAQ"), "incomplete or damaged"),
            ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "a public key"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "a certificate"),
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----", "is encrypted"),
            (encryptedSEC1, "is encrypted"),
            ("BDHe5ns6ovIDL21LUp0PjYsVwXlUDmmHBOFL_ZGGrIxBOUSUYHD-1yM4-iZgPFkiO6_RtM-Kdl7S08kv1gOJSxg", "a public key"),
            ("", "no private key was found"), ("abc", "incomplete or damaged"),
        ])
    func causes(text: String, cause: String) {
        let error = #expect(throws: WebPushError.self) { try VAPIDKey(text: text) }
        #expect(error.map { "\($0)".contains(cause) } == true, "\(error.map { "\($0)" } ?? "accepted")")
    }

    @Test(
        "Base64 is read in either alphabet, with or without padding and blanks",
        arguments: [
            ("+/8=", [0xFB, 0xFF]), ("-_8", [0xFB, 0xFF]), ("-_8=", [0xFB, 0xFF]), ("+/\n8", [0xFB, 0xFF]), ("", []),
            ("+_8", [0xFB, 0xFF]), ("=", []), ("A", nil), ("AA=A", nil), ("AA===", nil), ("A*", nil),
        ] as [(String, [UInt8]?)])
    func base64(text: String, bytes: [UInt8]?) {
        #expect(Base64URL.bytesOfAny(text) == bytes)
    }
}
