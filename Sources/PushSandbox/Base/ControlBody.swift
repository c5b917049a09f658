import Foundation
import Hummingbird
import NIOCore

/// A JSON object from a request. It is read field by field, so that an error can name the field.
struct ControlBody<Field: RawRepresentable<String> & CaseIterable> {
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

    private let values: [String: Value]

    /// Reads the whole body. An empty body counts as an empty object. An unknown field is an error, because it may be
    /// misspelled.
    init(of request: Request) async throws {
        let bytes = try await request.body.collect(upTo: ControlLimits.body)
        guard bytes.readableBytes > 0 else {
            values = [:]
            return
        }
        do {
            values = try JSONDecoder().decode([String: Value].self, from: Data(bytes.readableBytesView))
        } catch {
            throw ControlError("the body must be a JSON object")
        }
        for name in values.keys.sorted() where Field(rawValue: name) == nil {
            let known = Field.allCases.map(\.rawValue).sorted().joined(separator: ", ")
            throw ControlError("\(name): unknown field; must be one of \(known)")
        }
    }

    /// Whether the field is present and not null.
    func has(_ field: Field) -> Bool {
        switch values[field.rawValue] {
        case nil, .null: false
        default: true
        }
    }

    func string(_ field: Field) throws(ControlError) -> String? {
        switch values[field.rawValue] {
        case nil, .null: return nil
        case .string(let string): return string
        default: throw ControlError("\(field.rawValue): must be a string")
        }
    }

    func integer(_ field: Field, in range: ClosedRange<Int>) throws(ControlError) -> Int? {
        switch values[field.rawValue] {
        case nil, .null: return nil
        case .integer(let integer) where range.contains(integer): return integer
        default:
            throw ControlError(
                "\(field.rawValue): must be a whole number from \(range.lowerBound) to \(range.upperBound)")
        }
    }

    func token(_ field: Field) throws(ControlError) -> [UInt8]? {
        guard let text = try string(field) else { return nil }
        return try TokenText.bytes(checking: text, field: field.rawValue)
    }
}

/// An error response of the control API. The text names the field and the rule.
struct ControlError: Error {
    var status: HTTPResponse.Status
    var text: String

    init(_ status: HTTPResponse.Status, _ text: String) {
        self.status = status
        self.text = text
    }

    /// Creates an error with status 400.
    init(_ text: String) {
        self.init(.badRequest, text)
    }
}

/// Converts every error to JSON, including the router's errors. No other place maps errors to statuses.
struct ControlErrorMiddleware<Context: RequestContext>: RouterMiddleware {
    func handle(
        _ request: Request, context: Context, next: (Request, Context) async throws -> Response
    ) async throws -> Response {
        let refusal: ControlError
        do {
            return try await next(request, context)
        } catch let error as ControlError {
            refusal = error
        } catch let error as LimitReached {
            refusal = ControlError(error.text)
        } catch is NIOTooManyBytesError {
            refusal = ControlError(.contentTooLarge, "the body is longer than \(ControlLimits.body) bytes")
        } catch let error as any HTTPResponseError where error.status == .notFound {
            refusal = ControlError(
                .notFound, "there is no \(request.method.rawValue) \(request.uri.path); GET / lists the calls")
        } catch let error as any HTTPResponseError {
            refusal = ControlError(error.status, error.status.reasonPhrase)
        } catch {
            context.logger.error("Control request failed", metadata: ["error": "\(error)"])
            refusal = ControlError(.internalServerError, "the sandbox failed; its log says why")
        }
        return try Response.json(["error": refusal.text], status: refusal.status)
    }
}

extension Response {
    /// Returns a JSON response that must not be cached.
    static func json(_ value: some Encodable, status: HTTPResponse.Status = .ok) throws -> Response {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        let body = ByteBuffer(bytes: try encoder.encode(value))
        return Response(
            status: status,
            headers: [
                .contentType: "application/json; charset=utf-8", .cacheControl: "no-store",
                .xContentTypeOptions: "nosniff",
            ],
            body: .init(byteBuffer: body))
    }
}

extension TokenText {
    /// - Throws: ``ControlError`` that names the field and the rule.
    static func bytes(checking text: some StringProtocol, field: String) throws(ControlError) -> [UInt8] {
        guard let token = bytes(of: text) else {
            throw ControlError("\(field): must be 1 to \(maxSize) bytes in hexadecimal digits")
        }
        return token
    }
}
