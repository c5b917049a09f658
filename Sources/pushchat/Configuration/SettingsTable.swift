import ChatDomain
import Logging

/// Every setting: the file's keys, the variables' names, the checks, what `pushchat config` shows and the README's
/// table all come from here. A new setting is a property with its default, and a row.
enum SettingsTable {
    private typealias Relay = Setting<Configuration>
    private typealias App = Setting<AppConfiguration>

    /// Settings of the whole relay, by the path of their keys.
    static let relay: [Setting<Configuration>] = [
        Relay(
            "environment", \.environment, .choice, needsRestart: true,
            "picks Apple's sandbox or production hosts, the defaults below, and the block of that name in the file"),
        Relay(
            "http.host", \.http.host, .host(example: "127.0.0.1"), needsRestart: true,
            "where the relay listens"),
        Relay(
            "http.port", \.http.port, .number(0...65_535), needsRestart: true,
            "its port; 0 takes any free one"),
        Relay(
            "http.certificate", \.http.certificate, SettingKind.file("a PEM file").optional(), needsRestart: true,
            "the server's certificate and those it is signed with; without it plain HTTP, for a proxy in front"),
        Relay(
            "http.key", \.http.key, SettingKind.file("a PEM file").optional(), needsRestart: true,
            "the certificate's key, if it is in a file of its own"),
        Relay(
            "http.trusted_proxies", \.http.trustedProxies, .addressRanges,
            "only from these are `Forwarded` and `X-Forwarded-For` believed"),
        Relay(
            "http.rate_per_address", \.http.ratePerAddress, SettingKind.rateLimit.optional(none: "off"),
            "requests from one address; above, the answer is 429"),
        Relay(
            "http.rate_per_member", \.http.ratePerMember, SettingKind.rateLimit.optional(none: "off"),
            "requests of one udid; above, the answer is 429"),
        Relay(
            "database.path", \.database.path, .path, needsRestart: true,
            "the SQLite file; made if it is not there"),
        Relay(
            "admin.token", \.admin.token, headerToken.optional(), isSecret: true,
            "the bearer token of `/v1`; without it only this machine may call, in production nobody"),
        Relay(
            "registration", \.registration, .choice,
            "who may register devices and join: `open` for anyone, `session` for who brings a token that your system signed"
        ),
        Relay(
            "session.secret", \.session.secret, sharedSecret.optional(), isSecret: true,
            "what those tokens are signed with (HS256); this or the next two, or several"),
        Relay(
            "session.key", \.session.key, SettingKind.file("a PEM file").optional(),
            "the public key, or a certificate, of who signs them (ES256, RS256)"),
        Relay(
            "session.jwks", \.session.keySet, SettingKind.file("a JSON file").optional(),
            "a JSON Web Key Set of who signs them (HS256, ES256, RS256)"),
        Relay(
            "session.audience", \.session.audience, claim(example: "pushchat").optional(),
            "what a token's `aud` must name; without it a token must name nothing"),
        Relay(
            "session.issuer", \.session.issuer, claim(example: "https://example.com").optional(),
            "what a token's `iss` must be; without it anything"),
        Relay(
            "push.sound", \.push.sound, soundName.optional(none: "none"),
            "a sound file in the app, or `default`, for chat messages"),
        Relay(
            "push.text_limit", \.push.textLimit, .number(1...MessageText.highestLimit, unit: "bytes"),
            "the longest text of a chat message"),
        Relay(
            "push.expiration", \.push.expiration,
            SettingKind.duration(.seconds(60) ... .days(365), example: "1 day").optional(none: "none"),
            "after this time a chat message is not pushed any more, neither by the relay nor by Apple"),
        Relay(
            "messages.retention", \.messages.retention, retention,
            "how long the chat's messages are kept"),
        Relay(
            "queue.retention", \.queue.retention, retention,
            "how long pushes are kept after they were sent or refused"),
        Relay("log.format", \.log.format, .choice, "lines for people or for programs, on standard error"),
        Relay("log.level", \.log.level, .choice, "what is less important is not written"),
    ]

    /// Settings of each app, by their key inside `apps.NAME`. `gateway` is first: other defaults depend on it.
    static let app: [Setting<AppConfiguration>] = [
        App(
            "gateway", \.gateway, .choice, needsRestart: true,
            "Apple's protocol: `http2`, or the `binary` one of before 2021"),
        App(
            "topic", \.topic, bundleID.optional(),
            "the app's bundle id; without it the certificate's; a `key` needs it"),
        App("host", \.host, .host(example: "api.push.apple.com"), "the gateway; Apple's other one with `binary`"),
        App("port", \.port, .number(1...65_535), "its port; 2195 with `binary`"),
        App(
            "feedback_host", \.feedbackHost, .host(example: "feedback.push.apple.com"),
            "the feedback service; where `host` is set, that host"),
        App("feedback_port", \.feedbackPort, .number(1...65_535), "its port"),
        App(
            "feedback_interval", \.feedbackInterval,
            SettingKind.duration(.seconds(1) ... .days(7), example: "1 hour").optional(none: "off"),
            "how often the feedback service of the gateway `binary` is asked"),
        App(
            "certificate", \.certificate, SettingKind.file("a PEM or PKCS#12 file").optional(),
            "what the relay proves itself with, or `key`; without either pushes are queued, not sent"),
        App(
            "certificate_key", \.certificateKey, SettingKind.file("a PEM file").optional(),
            "the certificate's key, if it is in a file of its own"),
        App(
            "passphrase", \.passphrase, passphrase.optional(), isSecret: true,
            "of the key or the PKCS#12 file"),
        App(
            "key", \.key, SettingKind.file("a .p8 file").optional(),
            "key of provider tokens, for `http2`; goes before `certificate`"),
        App(
            "key_id", \.keyID, appleID(example: "ABC123DEFG").optional(),
            "the key's id; without it the one in the file's name"),
        App("team_id", \.teamID, appleID(example: "DEF123GHIJ").optional(), "the id of the team whose key it is"),
        App(
            "trust", \.trust, SettingKind.file("a PEM file").optional(),
            "authorities to trust beside the system's, for a sandbox"),
        App(
            "connections", \.connections, .number(1...64), needsRestart: true,
            "connections to the gateway: so many with `binary`, at most so many with `http2`"),
        App(
            "payload_limit", \.payloadLimit, .number(256...4096, unit: "bytes"), needsRestart: true,
            "the largest payload the gateway takes; with `binary` 2048, and 256 before iOS 8"),
        App(
            "command", \.command, .number(0...2), needsRestart: true,
            "the binary protocol's command; 0 tells nothing about refused pushes, 1 and 2 do"),
        App(
            "settle", \.settleTime, .duration(.seconds(1) ... .seconds(60), example: "5s"),
            needsRestart: true, "how long the binary gateway must be silent until a push counts as accepted"),
        App(
            "answer_timeout", \.answerTimeout, .duration(.seconds(1) ... .seconds(300), example: "30s"),
            needsRestart: true, "how long the HTTP/2 gateway may take over a push until it is repeated"),
    ]

    private static let retention = SettingKind.duration(.seconds(60) ... .days(36_500), example: "30 days")

    /// What may stand in an `Authorization: Bearer` header.
    private static let headerToken = SettingKind.secret(
        rule: "printable ASCII without blanks, for example what `openssl rand -hex 32` prints",
        isAllowed: { (0x21...0x7E).contains($0.value) })

    private static let sharedSecret = SettingKind.secret(
        rule:
            "at least 32 characters of printable ASCII without blanks, for example what `openssl rand -hex 32` prints",
        isAllowed: { (0x21...0x7E).contains($0.value) }, shortest: 32)

    private static func claim(example: String) -> SettingKind<String> {
        .text(rule: "a text as it stands in the token, for example `\(example)`", limit: 255) {
            $0.value >= 0x20 && $0.value != 0x7F
        }
    }

    private static let passphrase = SettingKind.secret(
        rule: "a text without control characters", isAllowed: { $0.value >= 0x20 && $0.value != 0x7F },
        shortest: 0)

    /// At most so long that a payload of 256 bytes still has room for a text.
    private static let soundName = SettingKind.text(
        rule: "the name of a sound file, at most 100 bytes, for example `beep.caf`", limit: 100,
        isAllowed: { $0.value >= 0x20 && $0.value != 0x7F })

    private static let bundleID = SettingKind.text(
        rule: "a bundle id, for example `com.example.PushChat`", limit: 255,
        isAllowed: { $0.isLetterOrDigit || ".-_".unicodeScalars.contains($0) })

    private static func appleID(example: String) -> SettingKind<String> {
        .text(rule: "letters and digits, for example `\(example)`", limit: 64, isAllowed: \.isLetterOrDigit)
    }
}
