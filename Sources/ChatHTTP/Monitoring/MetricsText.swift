import ChatDomain

/// Metrics in Prometheus' text format, version 0.0.4.
struct MetricsText {
    typealias Labels = [(String, String)]

    private(set) var text = ""
    private var name = ""

    /// Begins a family. The samples that follow belong to it.
    mutating func family(_ name: String, _ type: String, _ help: String) {
        self.name = name
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(type)\n"
    }

    /// Writes a family with one sample and no labels.
    mutating func single(_ name: String, _ type: String, _ help: String, _ value: some Numeric) {
        family(name, type, help)
        sample(value)
    }

    mutating func sample(_ value: some Numeric, _ labels: Labels = []) {
        sample("", value, labels)
    }

    /// Writes a sample of a family of type `histogram`.
    mutating func histogram(_ snapshot: Histogram.Snapshot, _ labels: Labels = []) {
        var total = 0
        for (index, count) in snapshot.counts.enumerated() {
            total += count
            let bound = index < snapshot.bounds.count ? Self.bound(snapshot.bounds[index]) : "+Inf"
            sample("_bucket", total, labels + [("le", bound)])
        }
        sample("_sum", snapshot.sum, labels)
        sample("_count", total, labels)
    }

    /// Writes whole numbers as other exporters do, `1` and not `1.0`, so that each bound has one name.
    private static func bound(_ bound: Double) -> String {
        bound == bound.rounded() && abs(bound) < 1e9 ? String(Int64(bound)) : String(bound)
    }

    private mutating func sample(_ suffix: String, _ value: some Numeric, _ labels: Labels) {
        text += name + suffix
        if !labels.isEmpty {
            text += "{" + labels.map { "\($0.0)=\"\(Self.escaped($0.1))\"" }.joined(separator: ",") + "}"
        }
        text += " \(value)\n"
    }

    /// Escapes a label. A gateway's reason may contain any text.
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
