import Foundation
import PushChatCore

/// Downloads a picture into a file.
struct PictureDownload: Sendable {
    /// A kind of picture that notifications can show, by the first bytes of its files.
    enum Kind: String, CaseIterable {
        case jpg, png, gif

        private var start: [UInt8] {
            switch self {
            case .jpg: [0xFF, 0xD8, 0xFF]
            case .png: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]
            case .gif: Array("GIF8".utf8)
            }
        }

        /// `nil` for other data, whatever the server calls it.
        init?(_ data: Data) {
            guard let kind = Self.allCases.first(where: { data.starts(with: $0.start) }) else { return nil }
            self = kind
        }
    }

    let transport: any RelayTransport
    /// The folder of the file.
    let folder: URL
    /// The size limit in bytes.
    let limit: Int
    let timeout: Duration

    /// Returns the file. `nil` if there is no picture of a known kind within the limit at this address.
    func file(of image: URL) async -> URL? {
        let request = RelayRequest(method: "GET", url: image, headers: ["Accept": "image/*"], timeout: timeout)
        guard let response = try? await transport.stream(of: request), response.status == 200 else { return nil }
        var data = Data()
        do {
            for try await piece in response.body {
                data += piece
                guard data.count <= limit else { return nil }
            }
        } catch {
            return nil
        }
        guard !Task.isCancelled, let kind = Kind(data) else { return nil }
        // The system takes the kind from the extension, and moves the file away.
        let file = folder.appendingPathComponent("\(UUID().uuidString).\(kind.rawValue)")
        do {
            try data.write(to: file, options: .atomic)
            return file
        } catch {
            return nil
        }
    }
}
