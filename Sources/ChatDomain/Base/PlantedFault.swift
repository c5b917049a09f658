#if PLANTED_FAULTS
import Foundation

/// A fault that `make simulate-planted` puts into the relay, to show that the simulation finds it. No other build
/// contains any.
package enum PlantedFault: Int, CaseIterable {
    /// Outcomes that could not be recorded are forgotten.
    case settlementGivenUp = 1
    /// A lease keeps the order in which it found its pushes.
    case unorderedLease
    /// A read that fails does not release the pushes that it was to lease.
    case claimLost
    /// After the first work in the background, commits no longer wait for the disk.
    case unsyncedCommits
    /// A connection that ends without a response counts as acceptance.
    case lossAccepted
    /// A large room's fan-out ends with its first step.
    case fanoutEndsEarly
    /// Nothing continues a fan-out that a crash has interrupted.
    case fanoutNotResumed
    /// Pushes of a deleted message are sent if their content is still in memory.
    case contentKept
    /// The waiting pushes of a removed member are sent.
    case removalIgnored
    /// A pause ends with the process.
    case pauseForgotten
    /// The position from which the next process scans is too high.
    case markTooHigh
    /// A push that was cancelled and sent all the same counts twice.
    case countedTwice
    /// Pushes on the streams that a GOAWAY excludes count as accepted.
    case excludedStreamsAccepted
    /// Pushes after the one that the binary gateway's error response names count as accepted.
    case discardedPushesAccepted
    /// A browsers' push service that does not respond holds up the others.
    case silentOriginBlocksOthers

    private static let number = ProcessInfo.processInfo.environment["PLANTED_FAULT"].flatMap { Int($0) }

    package var isPlanted: Bool { rawValue == Self.number }
}
#endif
