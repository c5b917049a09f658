import Foundation

/// The process's use of system resources, under the names of Prometheus' own client libraries.
struct ProcessUsage {
    /// Writes the metrics. Omits those that the system does not report.
    func write(to text: inout MetricsText) {
        var usage = rusage()
        if getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage) == 0 {
            let times = [usage.ru_utime, usage.ru_stime]
            text.single(
                "process_cpu_seconds_total", "counter", "Total user and system CPU time, in seconds.",
                times.reduce(0) { $0 + Double($1.tv_sec) + Double($1.tv_usec) / 1e6 })
        }
        if let pages = try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8).split(separator: " "),
            pages.count > 1, let resident = Int(pages[1])
        {
            text.single(
                "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.",
                resident * Int(sysconf(Int32(_SC_PAGESIZE))))
        }
        if let files = Self.openFiles {
            text.single("process_open_fds", "gauge", "Open file descriptors.", files)
        }
        if let files = Self.maxFiles {
            text.single("process_max_fds", "gauge", "Maximum number of open file descriptors.", files)
        }
    }

    /// The number of open files. `nil` if the system does not report it, or if no file descriptor is left to read it.
    static var openFiles: Int? {
        (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd"))?.count
    }

    static var maxFiles: Int? {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return nil }
        return Int(clamping: limit.rlim_cur)
    }
}
