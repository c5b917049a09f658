import ChatDomain
import Foundation

/// Looks at due entries one after another and says which go onto a connection, which never can, and where to stop.
///
/// Entries whose connection went twice without a word come under suspicion: one of them may be what makes the
/// gateway close. They go as a probe, alone on a fresh connection and asked about at once, in groups that shrink with
/// each failure, so that the one that is poisoned ends up alone and the others pass. Entries that a crash of the relay
/// left in doubt are probed, too, in one group: what was perhaps sent already should not be in doubt a second time.
struct LeaseScreening {
    /// The reason that recovery gives an entry until its next attempt.
    static let recovered = "RelayRestarted"
    /// The reason of an entry whose device is inactive.
    static let inactive = "DeviceInactive"
    /// Silent losses before an entry is probed instead of simply repeated: one lost connection is everyday.
    static let suspicion = 2
    /// Entries in a probe, by the number of silent losses.
    static func probeSize(unanswered: Int) -> Int {
        switch unanswered {
        case ..<suspicion: Int.max
        case 2: 256
        case 3: 64
        case 4: 16
        case 5: 4
        default: 1
        }
    }
    /// Silent losses from which on an entry is probed alone.
    static let alone = 6

    /// Entries in a lease that comes to those for very many while somebody waits for an answer: it waits for the lease, too,
    /// and that is some milliseconds of it.
    static let hurriedBulk = 200

    let slot: ConnectionSlot
    let now: Timestamp
    private let isHurried: Bool
    /// Of the last entry that was taken or refused.
    private(set) var lastLane: Lane?
    private(set) var pushes: [Push] = []
    /// For each of them, whether its row has all as it is, and needs only to be marked.
    private(set) var isPlain: [Bool] = []
    /// What the ids of this lease's pushes begin with; the entry's number follows. With it they are UUIDs (RFC 9562, version 4)
    /// that no other lease gives.
    let idPrefix = String(UUID().uuidString.lowercased().prefix(24))
    private(set) var refused: [Lease.Refusal] = []
    /// Entries of other programs, which named no device, and the devices that have their tokens: for those devices' history.
    private(set) var recognized: [(entry: Int64, device: Int64)] = []
    /// How many entries the lease takes at the most, and whether as a probe; the first entry decides.
    private var kind: Kind?
    private var needsFreshConnection = false

    private struct Kind: Equatable {
        var size: Int
        var isProbe: Bool

        init(unanswered: Int, isRecovered: Bool) {
            size = LeaseScreening.probeSize(unanswered: unanswered)
            isProbe = isRecovered || unanswered >= LeaseScreening.suspicion
        }
    }

    private var room: Int

    /// - Parameter isHurried: somebody waits for an answer.
    init(slot: ConnectionSlot, now: Timestamp, isHurried: Bool) {
        self.slot = slot
        self.now = now
        self.isHurried = isHurried
        self.room = slot.room
    }

    /// Nothing was found so far.
    var isEmpty: Bool { pushes.isEmpty && refused.isEmpty && !needsFreshConnection }

    var lease: Lease {
        Lease(
            slot: slot, pushes: pushes, isProbe: kind?.isProbe == true, refused: refused,
            needsFreshConnection: needsFreshConnection)
    }

    /// - Parameter notification: of which the row is one push.
    /// - Returns: whether to go on with the next row.
    mutating func take(_ row: borrowing DueRow, of notification: LeasedNotification? = nil) -> Bool {
        let entry = row.entry
        let kind = Kind(unanswered: row.unanswered, isRecovered: row.isRecovered)
        if pushes.isEmpty {
            guard slot.isFresh || !kind.isProbe else {
                needsFreshConnection = true
                return false
            }
            self.kind = kind
        } else if self.kind?.isProbe != kind.isProbe {
            return false
        }
        room = min(room, kind.size)
        if isHurried, row.lane == .bulk { room = min(room, Self.hurriedBulk) }
        guard pushes.count < room else { return false }
        lastLane = row.lane
        if let device = row.recognizedDevice { recognized.append((entry, device)) }
        if notification?.isCancelled == true {
            refused.append(.init(entry: entry, state: .cancelled, reason: LeftWork.cancelled))
            return true
        }
        // 0 is no time: the gateway is to try once and to store nothing.
        if let expires = row.expiration, expires != 0, expires <= now.seconds {
            refused.append(.init(entry: entry, state: .expired, reason: "Expired"))
            return true
        }
        // It was under way when the device unregistered, and came back.
        if row.isDeviceForgotten {
            refused.append(.init(entry: entry, state: .cancelled, reason: LeftWork.unregistered))
            return true
        }
        if row.isDeviceInactive {
            refused.append(.init(entry: entry, state: .failed, reason: Self.inactive))
            return true
        }
        do throws(DueRow.Poison) {
            let checked = try row.checked(
                for: slot, identifier: slot.firstIdentifier + UInt32(pushes.count), idPrefix: idPrefix,
                notificationPayload: notification?.payload)
            pushes.append(checked.push)
            isPlain.append(checked.isPlain)
        } catch {
            refused.append(.init(entry: entry, state: .failed, reason: error.name(for: slot)))
        }
        return pushes.count < room
    }
}
