import Foundation
import Hummingbird
import NIOCore

/// A JSON object from a request, read field by field, so that a refusal can name the field.
struct ControlBody {
    private enum Value: Decodable {
        case integer(Int)
        case string(String)
        case null
        case other

        init(from decoder: any Decoder) throws {
            let container = try decoder.singleValueContainer()
            if container.decodeNil() {
                self = .null
            } else if (try? container.decode(Bool.self)) != nil {
                self = .other
            } else if let integer = try? container.decode(Int.self) {
                self = .integer(integer)
            } else if let string = try? container.decode(String.self) {
                self = .string(string)
            } else {
                self = .other
            }
        }
    }

    private let fields: [String: Value]

    /// Reads the whole body; nothing at all counts as an empty object.
    /// - Parameter allowed: the fields that there are. Another one is refused: it would be a misspelling.
    init(of request: Request, allowed: Set<String>) async throws {
        let bytes = try await request.body.collect(upTo: ControlAPI.bodyLimit)
        guard bytes.readableBytes > 0 else {
            fields = [:]
            return
        }
        do {
            fields = try JSONDecoder().decode([String: Value].self, from: Data(bytes.readableBytesView))
        } catch {
            throw ControlError(.badRequest, "the body must be a JSON object")
        }
        for name in fields.keys.sorted() where !allowed.contains(name) {
            throw ControlError(
                .badRequest, "\(name): unknown field; there are \(allowed.sorted().joined(separator: ", "))")
        }
    }

    /// Whether the field is there and not null.
    func has(_ name: String) -> Bool {
        switch fields[name] {
        case nil, .null: false
        default: true
        }
    }

    func string(_ name: String) throws -> String? {
        switch fields[name] {
        case nil, .null: return nil
        case .string(let string): return string
        default: throw ControlError(.badRequest, "\(name): must be a string")
        }
    }

    func integer(_ name: String, in range: ClosedRange<Int>) throws -> Int? {
        switch fields[name] {
        case nil, .null:
            return nil
        case .integer(let integer) where range.contains(integer):
            return integer
        default:
            throw ControlError(
                .badRequest, "\(name): must be a whole number from \(range.lowerBound) to \(range.upperBound)")
        }
    }

    func token(_ name: String) throws -> [UInt8]? {
        try string(name).map { try ControlAPI.token($0, field: name) }
    }
}
