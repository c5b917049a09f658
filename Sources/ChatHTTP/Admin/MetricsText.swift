/// Figures in Prometheus' text format, version 0.0.4.
struct MetricsText {
    private(set) var text = ""
    private var name = ""

    /// Begins a family: what follows are its samples.
    mutating func family(_ name: String, _ type: String, _ help: String) {
        self.name = name
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(type)\n"
    }

    mutating func sample(_ value: some Numeric, _ labels: [(String, String)] = []) {
        let list = labels.map { "\($0.0)=\"\(Self.escaped($0.1))\"" }.joined(separator: ",")
        text += list.isEmpty ? "\(name) \(value)\n" : "\(name){\(list)} \(value)\n"
    }

    /// A reason may be anything that a gateway has sent.
    private static func escaped(_ label: String) -> String {
        label.unicodeScalars.reduce(into: "") { text, scalar in
            switch scalar {
            case "\\": text += #"\\"#
            case "\"": text += #"\""#
            case "\n": text += #"\n"#
            default: text.unicodeScalars.append(scalar)
            }
        }
    }
}
