/// Why the sandbox does not start; the text says what to do about it.
package enum SandboxError: Error, Sendable, CustomStringConvertible {
    /// Somebody else listens on the port; `flag` chooses another.
    case portTaken(host: String, port: Int, flag: String)
    /// The port or the address is not to be had; `reason` is the system's.
    case cannotListen(host: String, port: Int, flag: String, reason: String)
    /// A file or folder of the credentials cannot be read or written.
    case directory(path: String, reason: String)
    /// Another process has been making the credentials for too long.
    case directoryBusy(path: String)
    case alreadyStarted

    package var description: String {
        switch self {
        case .portTaken(let host, let port, let flag):
            "port \(port) on \(host) is taken by another process; choose another with \(flag) (0 takes any free one)"
        case .cannotListen(let host, let port, let flag, let reason):
            "cannot listen on \(host) port \(port): \(reason); the port is chosen with \(flag), the address with --host"
        case .directory(let path, let reason):
            "the sandbox's directory cannot be used: \(path): \(reason); choose another with --directory"
        case .directoryBusy(let path):
            "another process holds the lock on the sandbox's directory \(path); end it, or choose another with --directory"
        case .alreadyStarted:
            "the sandbox has been started before; make a new one"
        }
    }
}
