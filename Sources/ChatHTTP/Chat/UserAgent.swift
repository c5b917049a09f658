/// The parts of a browser's `User-Agent` that are stored: the browser with its major version, and the system. Both
/// names come from short lists. There are few values, so they hardly identify a user.
struct UserAgent: Sendable, Hashable {
    /// The maximum number of bytes of the header to examine.
    private static let maxBytes = 512
    /// The maximum number of digits in a version.
    private static let maxDigits = 4

    /// The text that precedes each browser's version, and the browser's name. The first match counts. Most browsers
    /// also name other browsers, so that sites serve them those browsers' pages.
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

    /// The browser and its major version, such as `Firefox 128`. `nil` if the browser is unknown.
    let browser: String?
    /// The system, such as `Linux`. `nil` if it is unknown.
    let system: String?

    init(_ header: String) {
        let text = String(decoding: header.utf8.prefix(Self.maxBytes), as: UTF8.self)
        browser =
            Self.browsers.lazy.compactMap { mark, name -> String? in
                guard let found = text.firstRange(of: mark) else { return nil }
                let digits = text[found.upperBound...].prefix { $0.isASCII && $0.isNumber }.prefix(Self.maxDigits)
                return digits.isEmpty ? nil : "\(name) \(digits)"
            }.first
        system = Self.systems.first { text.contains($0.0) }?.1
    }
}
