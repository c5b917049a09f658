import ChatDomain
import GRDB

extension ChatError {
    /// What a failed database call means for the user: come later, or a fault of ours.
    init(storing error: any Error) {
        switch error {
        case let error as ChatError:
            self = error
        case let error as DatabaseError where error.isOfTheDisk:
            self = .unavailable(cause: String(describing: error))
        default:
            self = ChatError(
                .internalError, "The server made a mistake; nothing was accepted", cause: String(describing: error))
        }
    }
}

extension Error {
    /// Another process holds the database, and did so for ``DatabaseFile/busyTimeout``.
    var isOfALock: Bool {
        guard let error = self as? DatabaseError else { return false }
        return error.resultCode == .SQLITE_BUSY || error.resultCode == .SQLITE_LOCKED
    }

    /// The disk or another process is in the way: it fails everything alike, and passes.
    var isOfTheDisk: Bool {
        guard let error = self as? DatabaseError else { return false }
        switch error.resultCode {
        case .SQLITE_FULL, .SQLITE_IOERR, .SQLITE_BUSY, .SQLITE_LOCKED, .SQLITE_READONLY, .SQLITE_CANTOPEN,
            .SQLITE_NOMEM, .SQLITE_PROTOCOL:
            return true
        default:
            return false
        }
    }
}
