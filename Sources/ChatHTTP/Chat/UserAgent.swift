/// What a browser's `User-Agent` says, as far as it is kept: one of some names, with the version's first number, and one of
/// some systems. So it tells few people apart, and there are few values.
struct UserAgent: Sendable, Hashable {
    /// Bytes of the header that are looked at.
    private static let longest = 512
    /// Digits of a version.
    private static let mostDigits = 4

    /// What stands before the version, and the name. The first that is there counts: most browsers also name others, whose pages
    /// they want to be served.
    private static let browsers = [
        ("Edg/", "Edge"), ("EdgA/", "Edge"), ("EdgiOS/", "Edge"), ("OPR/", "Opera"),
        ("SamsungBrowser/", "Samsung Internet"),
        ("Vivaldi/", "Vivaldi"), ("FxiOS/", "Firefox"), ("Firefox/", "Firefox"), ("CriOS/", "Chrome"),
        ("Chrome/", "Chrome"),
        ("Version/", "Safari"),
    ]
    private static let systems = [
        ("Android", "Android"), ("iPhone", "iOS"), ("iPad", "iOS"), ("CrOS", "ChromeOS"), ("Windows", "Windows"),
        ("Macintosh", "macOS"), ("Linux", "Linux"),
    ]

    /// `Firefox 128`; nil for what is no known browser.
    let browser: String?
    /// `Linux`; nil for none of the known ones.
    let system: String?

    init(_ header: String) {
        let text = String(decoding: header.utf8.prefix(Self.longest), as: UTF8.self)
        browser =
            Self.browsers.lazy.compactMap { mark, name -> String? in
                guard let found = text.firstRange(of: mark) else { return nil }
                let digits = text[found.upperBound...].prefix { $0.isASCII && $0.isNumber }.prefix(Self.mostDigits)
                return digits.isEmpty ? nil : "\(name) \(digits)"
            }.first
        system = Self.systems.first { text.contains($0.0) }?.1
    }
}
