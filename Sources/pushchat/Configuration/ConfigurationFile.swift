import ChatDomain
import Yams

/// The YAML file, as layers: what stands at the top, and the blocks `development` and `production`.
struct ConfigurationFile {
    private static let appsKey = "apps"
    private static let environmentKey = "environment"

    /// As messages call it: as it was asked for, not its absolute path.
    private let name: String
    private let folder: String
    /// What stands at the top.
    private(set) var top: SettingLayer
    /// Each environment's block, if there is one.
    private(set) var blocks: [Configuration.Environment: SettingLayer] = [:]
    private(set) var problems: [ConfigurationError.Problem] = []

    init(name: String, path: String) {
        self.name = name
        folder = FilePath.folder(of: path)
        top = SettingLayer(folder: folder)
        guard let root = readRoot(path) else { return }
        var layer = top
        readSection(root, path: [], inBlock: false, into: &layer)
        top = layer
    }

    /// The document's map; nil if there is nothing in it, or nothing readable.
    private mutating func readRoot(_ path: String) -> Node.Mapping? {
        do throws(ReadableFile.Problem) {
            let bytes = try ReadableFile.read(path, limit: SettingLimits.file)
            guard let text = String(validating: bytes, as: UTF8.self) else {
                throw ReadableFile.Problem("which is not UTF-8")
            }
            return root(of: text)
        } catch {
            problems.append(
                .init(at: name, "the configuration file is \(path), \(error.message); mend it, or name another"))
            return nil
        }
    }

    private mutating func root(of text: String) -> Node.Mapping? {
        do {
            // Blank lines, because Yams keeps a pointer into the text, which Swift keeps elsewhere if it is very short.
            let padded = text + String(repeating: "\n", count: 16)
            guard let root = try Parser(yaml: padded, encoding: .utf8).singleRoot() else { return nil }
            return section(root, path: [])
        } catch let error as YamlError {
            problems.append(Self.problem(error, file: name))
        } catch {
            problems.append(.init(at: name, "cannot be read as YAML: \(error)"))
        }
        return nil
    }

    /// A node that has to be a map; nil if it is empty, or is none, which is a problem.
    private mutating func section(_ node: Node, path: [String]) -> Node.Mapping? {
        if let map = node.mapping { return map }
        if !Self.isNull(node) {
            let what = path.isEmpty ? "the file" : path.joined(separator: ".")
            problems.append(
                .init(at: origin(node), "\(what) must be a map: lines of `key: value` that are indented alike"))
        }
        return nil
    }

    /// - Parameter inBlock: the map is that of an environment, or below it.
    private mutating func readSection(
        _ map: Node.Mapping, path: [String], inBlock: Bool, into layer: inout SettingLayer
    ) {
        var seen: Set<String> = []
        for (keyNode, value) in map {
            guard let key = keyNode.scalar?.string else {
                problems.append(.init(at: origin(keyNode), "a key must be a word"))
                continue
            }
            let place = path + [key]
            let isTop = path.isEmpty
            if !seen.insert(key).inserted {
                problems.append(
                    .init(at: origin(keyNode), "\(place.joined(separator: ".")) is given twice; remove one"))
            } else if isTop, inBlock, key == Self.environmentKey || Configuration.Environment(rawValue: key) != nil {
                problems.append(
                    .init(at: origin(keyNode), "\(key) cannot stand inside the block of an environment; move it out"))
            } else if isTop, let environment = Configuration.Environment(rawValue: key) {
                var block = SettingLayer(folder: folder)
                if let map = section(value, path: place) {
                    readSection(map, path: [], inBlock: true, into: &block)
                }
                blocks[environment] = block
            } else if isTop, key == Self.appsKey {
                readApps(value, into: &layer)
            } else if SettingsTable.sections.contains(place.joined(separator: ".")) {
                guard let map = section(value, path: place) else { continue }
                readSection(map, path: place, inBlock: inBlock, into: &layer)
            } else {
                readSetting(place, app: nil, keyNode, value, into: &layer)
            }
        }
    }

    private mutating func readApps(_ node: Node, into layer: inout SettingLayer) {
        guard let map = section(node, path: [Self.appsKey]) else { return }
        for (keyNode, value) in map {
            let name = keyNode.scalar?.string ?? ""
            guard AppName.isValid(name) else {
                problems.append(
                    .init(
                        at: origin(keyNode),
                        "\(SettingValue.text(name).quoted) cannot name an app: it must have \(AppName.rule)"))
                continue
            }
            layer.add(app: AppName(name))
            guard let settings = section(value, path: [Self.appsKey, name]) else { continue }
            for (keyNode, value) in settings {
                guard let key = keyNode.scalar?.string else {
                    problems.append(.init(at: origin(keyNode), "a key must be a word"))
                    continue
                }
                readSetting([key], app: AppName(name), keyNode, value, into: &layer)
            }
        }
    }

    private mutating func readSetting(
        _ path: [String], app: AppName?, _ keyNode: Node, _ node: Node, into layer: inout SettingLayer
    ) {
        let name = path.joined(separator: ".")
        // `http.port:` in one word is another key than `port:` below `http:`.
        guard path.last?.contains(".") == false,
            let known = SettingsTable.setting(spelt: name, inApp: app != nil)
        else {
            problems.append(
                .init(
                    at: origin(keyNode),
                    "\(SettingKey(app: app, name: LogText.cut(name, limit: SettingValue.longestShown))) is not a "
                        + "setting" + SettingsTable.suggestion(for: name, app: app)))
            return
        }
        let key = SettingKey(app: app, name: known.name)
        let value: SettingValue?
        if Self.isNull(node) {
            value = nil
        } else if let scalar = node.scalar {
            value = .text(scalar.string)
        } else if let items = node.sequence?.map(\.scalar?.string), !items.contains(nil) {
            value = .list(items.compactMap { $0 })
        } else {
            let rule = known.isFile ? "a path" : known.rule
            problems.append(.init(at: origin(node), "\(key) is a map or a list of such, but must be \(rule)"))
            return
        }
        layer.add(.init(key: key, value: value, isFile: known.isFile, origin: origin(node, or: keyNode)))
    }

    private func origin(_ node: Node, or other: Node? = nil) -> Origin {
        let mark = node.mark ?? other?.mark
        return .file(name, line: mark?.line ?? 1, column: mark?.column ?? 1)
    }

    /// `key:`, `key: ~`, `key: null`; a text in quotation marks is one.
    private static func isNull(_ node: Node) -> Bool {
        node.scalar != nil && node.tag == Tag(.null)
    }
}

extension ConfigurationFile {
    private static func problem(_ error: YamlError, file: String) -> ConfigurationError.Problem {
        switch error {
        case .scanner(_, let problem, let mark, _), .parser(_, let problem, let mark, _),
            .composer(_, let problem, let mark, _):
            return .init(
                at: "\(file):\(mark)",
                "cannot be read as YAML: \(problem); look at the indentation, the colons and the quotation marks there")
        case .duplicatedKeysInMapping(let keys, let context):
            let names = keys.map { SettingValue.text($0).quoted }.joined(separator: ", ")
            return .init(at: "\(file):\(context.mark)", "\(names) is given twice in one map; remove one")
        case .reader(let problem, _, _, _):
            return .init(at: file, "cannot be read as YAML: \(problem); remove the character")
        default:
            return .init(at: file, "cannot be read as YAML: \(error)")
        }
    }
}
