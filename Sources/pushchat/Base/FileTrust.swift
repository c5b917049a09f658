import Foundation
import Synchronization

/// Decides whether a command trusts a file that its user did not name. The command trusts a file that only the user and
/// root can write.
///
/// The configuration contains the address to which commands send the admin token. Another user who could write the file
/// could direct the token to a listener under their control.
struct FileTrust: Sendable {
    /// The system's facts about a file or a folder.
    struct Facts: Sendable {
        var owner: uid_t
        var group: gid_t
        var mode: mode_t
        var links = 1
        /// Whether there is an access control list. It can let others write although the mode grants writing only to
        /// the group.
        var hasAccessList = false

        init(
            owner: uid_t, group: gid_t, mode: mode_t, links: Int = 1, hasAccessList: Bool = false
        ) {
            (self.owner, self.group, self.mode) = (owner, group, mode)
            (self.links, self.hasAccessList) = (links, hasAccessList)
        }

        /// Reads the facts. `nil` if the system returns none.
        /// - Parameter descriptor: An open file or folder.
        init?(descriptor: Int32) {
            var facts = stat()
            guard fstat(descriptor, &facts) == 0 else { return nil }
            self.init(
                owner: facts.st_uid, group: facts.st_gid, mode: facts.st_mode, links: Int(facts.st_nlink),
                hasAccessList: Self.hasAccessList(descriptor))
        }

        /// Finds the C function by its name, because the module Glibc lacks <sys/xattr.h>.
        private static func hasAccessList(_ descriptor: Int32) -> Bool {
            typealias Call = @convention(c) (Int32, UnsafePointer<CChar>, UnsafeMutableRawPointer?, Int) -> Int
            // A system without the function is treated as if there were a list.
            guard let symbol = dlsym(nil, "fgetxattr") else { return true }
            return unsafeBitCast(symbol, to: Call.self)(descriptor, "system.posix_acl_access", nil, 0) > 0
        }

        /// Whether only the owner of a file in the folder can rename or delete it.
        var isSticky: Bool { mode & mode_t(S_ISVTX) != 0 }

        /// `belongs to alice, mode 0644`.
        var description: String {
            let octal = String(mode & 0o7777, radix: 8)
            let name = getpwuid(owner).map { String(cString: $0.pointee.pw_name) } ?? "the user \(owner)"
            return "belongs to \(name), mode \(String(repeating: "0", count: max(0, 4 - octal.count)) + octal)"
        }
    }

    /// The caller, the user who called sudo, and root.
    let users: Set<uid_t>
    /// Whether the group has no member other than one of ``users``.
    let isPrivateGroup: @Sendable (gid_t) -> Bool

    /// The trust of this process.
    static let current: FileTrust = {
        let sudo = ProcessInfo.processInfo.environment["SUDO_UID"].flatMap { uid_t($0) }
        let users = Set([geteuid(), 0] + (sudo.map { [$0] } ?? []))
        return FileTrust(users: users) { group in isPrivate(group, of: users) }
    }()

    /// Whether users other than the owner and those in ``users`` can write.
    func canOthersWrite(_ facts: Facts) -> Bool {
        if facts.mode & S_IWOTH != 0 { return true }
        return facts.mode & S_IWGRP != 0 && (facts.hasAccessList || !isPrivateGroup(facts.group))
    }

    /// The reason not to trust the file, as a continuation of its path. `nil` if the file is trusted.
    func objection(to file: Facts) -> String? {
        if !users.contains(file.owner) { return "\(file.description): it must belong to you or to root" }
        return canOthersWrite(file) ? "\(file.description): others can write it (chmod go-w)" : nil
    }

    /// The reason not to trust a file in this folder. `nil` if only trusted users can put another file in its place.
    ///
    /// - Parameter entry: The file. `nil` if the folder contains a link to it.
    func objection(toFolder folder: Facts, entry: Facts?) -> String? {
        if !users.contains(folder.owner) { return "\(folder.description): it must belong to you or to root" }
        guard canOthersWrite(folder) else { return nil }
        // In a folder such as /tmp, others can create links, but no file that belongs to the caller.
        if folder.isSticky, entry?.links == 1 { return nil }
        return "\(folder.description): others can put files there (chmod go-w)"
    }

    // MARK: Groups

    /// The maximum number of users among which to search for one that shares the group. If there are more, the group
    /// counts as shared.
    private static let userLimit = 100_000
    /// Serializes lookups, because the system's functions for users and groups share static memory.
    private static let lookups = Mutex(())

    /// Whether the group is a user's private group: it has the user's name, is the user's primary group, and has no
    /// other members.
    private static func isPrivate(_ group: gid_t, of users: Set<uid_t>) -> Bool {
        lookups.withLock { _ in
            guard let found = getgrgid(group), let members = found.pointee.gr_mem else { return false }
            let name = String(cString: found.pointee.gr_name)
            var index = 0
            while let member = members[index] {
                guard String(cString: member) == name else { return false }
                index += 1
            }
            guard let user = getpwnam(name), users.contains(user.pointee.pw_uid), user.pointee.pw_gid == group else {
                return false
            }
            let owner = user.pointee.pw_uid
            setpwent()
            defer { endpwent() }
            for _ in 0..<userLimit {
                guard let other = getpwent() else { return true }
                if other.pointee.pw_gid == group, other.pointee.pw_uid != owner { return false }
            }
            return false
        }
    }
}
