/// A reason for which the sandbox cannot start. The description says what to do.
package enum SandboxError: Error, Sendable, CustomStringConvertible {
    /// Another process listens on the port. The option `flag` chooses another port.
    case portTaken(host: String, port: Int, flag: String)
    /// The port or the address cannot be used, for this reason.
    case cannotListen(host: String, port: Int, flag: String, reason: String)
    /// The sandbox cannot read or write a file or folder of the credentials.
    case directory(path: String, reason: String)
    /// Another process has held the directory's lock for too long.
    case directoryBusy(path: String)
    /// The sandbox cannot use the folder of files for a simulator.
    case simulatorFolder(path: String, reason: String)
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
        case .simulatorFolder(let path, let reason):
            "the folder \(path) cannot be used: \(reason); choose another with --simctl"
        case .alreadyStarted:
            "the sandbox has been started before; create a new one"
        }
    }
}
