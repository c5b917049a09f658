import ChatDomain
import Yams

/// The YAML file as layers: the settings at the top, and those in the blocks `development` and `production`.
struct ConfigurationFile {
    /// The name that the user gave, for messages. Not the absolute path.
    private let name: String
    private let folder: String
    private(set) var top: SettingLayer
    /// The blocks of the environments that have one.
    private(set) var blocks: [Configuration.Environment: SettingLayer] = [:]
    private(set) var problems: [ConfigurationError.Problem] = []

    /// Reads the file, and records its problems.
    /// - Parameter trust: The trust that the file needs, because the user did not name it. `nil` if it needs none.
    init(name: String, path: String, trust: FileTrust?) {
        self.name = name
        folder = FilePath.folder(of: path)
        top = SettingLayer(folder: folder)
        guard let root = readRoot(path, trust) else { return }
        var layer = top
        readSection(root, path: [], inBlock: false, into: &layer)
        top = layer
    }

    /// The map at the document's root. `nil` if the document is empty or cannot be read.
    private mutating func readRoot(_ path: String, _ trust: FileTrust?) -> Node.Mapping? {
        var lines = 0
        do {
            let text = try ReadableFile.text(path, limit: SettingLimits.file, trust: trust)
            lines = 1 + text.trimmingSuffix(while: \.isNewline).count(where: \.isNewline)
            // Append blank lines. Yams keeps a pointer into the text, and Swift stores very short texts elsewhere.
            let padded = text + String(repeating: "\n", count: 16)
            guard let root = try Parser(yaml: padded, encoding: .utf8).singleRoot() else { return nil }
            return section(root, path: [])
        } catch let error as ReadableFile.Problem {
            let remedy =
                switch error.kind {
                case .doubtful: "if you trust it, name it: --config \(name)"
                case .forbidden:
                    "run the command as the relay's user, such as with `sudo -u pushchat`, or name another file"
                case .missing, .other: "correct it, or name another file"
                }
            report(name, "the configuration file is \(path), \(error); \(remedy)")
        } catch let error as YamlError {
            report(error, lines: lines)
        } catch {
            report(name, "cannot be read as YAML: \(error)")
        }
        return nil
    }

    /// Returns the map in a node. `nil` if the node is empty or is not a map. Reports a node that is neither as a
    /// problem.
    private mutating func section(_ node: Node, path: [String]) -> Node.Mapping? {
        if let map = node.mapping { return map }
        if !Self.isNull(node) {
            let what = path.isEmpty ? "the file" : path.joined(separator: ".")
            report(node, "\(what) must be a map: lines of `key: value` with the same indentation")
        }
        return nil
    }

    /// Reads the settings and blocks of a map.
    /// - Parameter inBlock: Whether the map is the block of an environment or inside it.
    private mutating func readSection(
        _ map: Node.Mapping, path: [String], inBlock: Bool, into layer: inout SettingLayer
    ) {
        var seen: Set<String> = []
        for (keyNode, value) in map {
            guard let key = word(keyNode) else { continue }
            let path = path + [key]
            let name = path.joined(separator: ".")
            let environment = path.count == 1 ? Configuration.Environment(rawValue: key) : nil
            if !seen.insert(key).inserted {
                report(keyNode, "\(name) is given twice; remove one")
            } else if inBlock, environment != nil || name == "environment" {
                report(keyNode, "\(key) is not allowed in the block of an environment; move it out")
            } else if let environment {
                var block = SettingLayer(folder: folder)
                if let map = section(value, path: path) {
                    readSection(map, path: [], inBlock: true, into: &block)
                }
                blocks[environment] = block
            } else if name == "apps" {
                readApps(value, into: &layer)
            } else if SettingName.sections.contains(name) {
                guard let map = section(value, path: path) else { continue }
                readSection(map, path: path, inBlock: inBlock, into: &layer)
            } else {
                readSetting(path, app: nil, keyNode, value, into: &layer)
            }
        }
    }

    private mutating func readApps(_ node: Node, into layer: inout SettingLayer) {
        guard let map = section(node, path: ["apps"]) else { return }
        for (keyNode, value) in map {
            let name = keyNode.scalar?.string ?? ""
            guard AppName.isValid(name) else {
                report(
                    keyNode, "\(SettingValue.text(name).quoted) cannot name an app: it must have \(AppName.rule)")
                continue
            }
            layer.add(app: AppName(name))
            for (keyNode, value) in section(value, path: ["apps", name]) ?? [:] {
                guard let key = word(keyNode) else { continue }
                readSetting([key], app: AppName(name), keyNode, value, into: &layer)
            }
        }
    }

    private mutating func word(_ key: Node) -> String? {
        if let key = key.scalar { return key.string }
        report(key, "a key must be a word")
        return nil
    }

    private mutating func readSetting(
        _ path: [String], app: AppName?, _ keyNode: Node, _ node: Node, into layer: inout SettingLayer
    ) {
        let name = path.joined(separator: ".")
        // The single key `http.port:` differs from `port:` below `http:`.
        guard path.last?.contains(".") == false, let known = SettingName.named(name, inApp: app != nil) else {
            let shown = SettingKey(app: app, name: LogText.cut(name, limit: SettingValue.maxShown))
            report(keyNode, "\(shown) is not a setting" + SettingName.suggestion(for: name, app: app))
            return
        }
        let value: SettingValue?
        if Self.isNull(node) {
            value = nil
        } else if let scalar = node.scalar {
            value = .text(scalar.string)
        } else if let items = node.sequence?.map(\.scalar?.string), !items.contains(nil) {
            value = .list(items.compactMap { $0 })
        } else {
            let key = SettingKey(app: app, name: known.setting)
            report(node, "\(key) is a map or a nested list, but must be \(known.isFile ? "a path" : known.rule)")
            return
        }
        layer.add(known, of: app, value, from: origin(node, or: keyNode))
    }

    private func origin(_ node: Node, or other: Node? = nil) -> SettingOrigin {
        let mark = node.mark ?? other?.mark
        return .file(name, line: mark?.line ?? 1, column: mark?.column ?? 1)
    }

    /// Whether the node is `key:`, `key: ~` or `key: null`. In quotation marks, these are texts.
    private static func isNull(_ node: Node) -> Bool {
        node.scalar != nil && node.tag == Tag(.null)
    }

    private mutating func report(_ node: Node, _ message: String) {
        problems.append(.init(at: origin(node), message))
    }

    private mutating func report(_ position: String, _ message: String) {
        problems.append(.init(at: position, message))
    }

    /// - Parameter lines: The number of lines in the file. An error at its end has a mark in the appended lines.
    private mutating func report(_ error: YamlError, lines: Int) {
        switch error {
        case .scanner(_, let problem, let mark, _), .parser(_, let problem, let mark, _),
            .composer(_, let problem, let mark, _):
            report(
                mark.line > lines ? "\(name):\(lines)" : "\(name):\(mark)",
                "cannot be read as YAML: \(problem); look at the indentation, the colons and the quotation marks there")
        case .duplicatedKeysInMapping(let keys, let context):
            let names = keys.map { SettingValue.text($0).quoted }.joined(separator: ", ")
            report("\(name):\(context.mark)", "\(names) is given twice in one map; remove one")
        case .reader(let problem, _, _, _):
            report(name, "cannot be read as YAML: \(problem); remove the character")
        default:
            report(name, "cannot be read as YAML: \(error)")
        }
    }
}
