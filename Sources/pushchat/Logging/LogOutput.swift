/// Where lines go: a whole line at a time, so that lines of several threads never mix.
protocol LogOutput: Sendable {
    /// - Parameter line: at most ``LogRecord/longestLine`` bytes, the line feed included.
    func write(_ line: [UInt8])
    /// An output that writes behind may leave it to its own thread to make the line.
    func write(_ record: LogRecord, _ format: LogFormat)
}

extension LogOutput {
    func write(_ record: LogRecord, _ format: LogFormat) {
        write(record.line(format))
    }
}
