import ChatDomain
import Testing

@testable import pushchat

extension ByteReader {
    /// Reads the text in pieces of a size, so that each position is a border between two pieces once.
    init(_ text: String, pieces size: Int = 1000) {
        var rest = Array(text.utf8)[...]
        self.init {
            defer { rest = rest.dropFirst(size) }
            return Array(rest.prefix(size))
        }
    }
}

@Suite("A dump of MySQL")
struct MySQLDumpTests {
    /// A dump as mysqldump 8 writes it, shortened.
    private static let dump = #"""
        -- MySQL dump 10.13  Distrib 8.0.36, for Linux (x86_64)
        /*!40101 SET @OLD_CHARACTER_SET_CLIENT=@@CHARACTER_SET_CLIENT; */;
        /*!50503 SET NAMES utf8mb4 */;
        DROP TABLE IF EXISTS `active_users`;
        CREATE TABLE `active_users` (
          `udid` varchar(40) NOT NULL COMMENT 'a, (b); `c',
          `device_token` varchar(64) NOT NULL,
          `nickname` varchar(255) NOT NULL DEFAULT 'it''s',
          `secret_code` varchar(255) NOT NULL,
          `ip_address` varchar(32) NOT NULL,
          PRIMARY KEY (`udid`),
          KEY `code` (`secret_code`,`udid`)
        ) ENGINE=InnoDB DEFAULT CHARSET=utf8;
        LOCK TABLES `active_users` WRITE;
        /*!40000 ALTER TABLE `active_users` DISABLE KEYS */;
        INSERT INTO `active_users` VALUES ('a','0','O\'Neil \\ \"x\" ; -- no','t\nu','1.2.3.4'),('b','c0ff','it''s','(,);',NULL);
        /*!40000 ALTER TABLE `active_users` ENABLE KEYS */;
        UNLOCK TABLES;
        CREATE TABLE other (x int);
        INSERT INTO `other` VALUES (1,'active_users ) ; \'',NULL);
        REPLACE INTO push_queue (`payload`, message_id , `time_sent`) VALUE (0x7B7D, -5, NULL),
          (_binary '{\0}',X'0aB',TRUE) ON DUPLICATE KEY UPDATE x = 'a;b';
        # the end
        -- Dump completed
        """#

    private static let tables = ["active_users": ["one"], "push_queue": ["message_id"]]

    private func rows(_ text: String, pieces: Int = 1000) throws -> [MySQLDump.Row] {
        var dump = MySQLDump(ByteReader(text, pieces: pieces), tables: Self.tables)
        var rows: [MySQLDump.Row] = []
        while let row = try dump.next() { rows.append(row) }
        return rows
    }

    @Test(
        "Rows are read, one or many per statement, with and without columns, escapes, NULLs and blobs",
        arguments: [1, 2, 7, 1000])
    func dump(pieces: Int) throws {
        let rows = try rows(Self.dump, pieces: pieces)
        func value(_ index: Int, _ column: String) -> String? {
            rows[index].values[column].flatMap { $0 }.map { String(decoding: $0, as: UTF8.self) }
        }
        try #require(rows.count == 4)
        #expect(rows.map(\.table) == ["active_users", "active_users", "push_queue", "push_queue"])
        #expect(rows.map(\.line) == [16, 16, 21, 22])
        #expect(rows.map(\.number) == [1, 2, 1, 2])
        #expect(Set(rows[0].values.keys) == ["udid", "device_token", "nickname", "secret_code", "ip_address"])
        #expect(value(0, "nickname") == #"O'Neil \ "x" ; -- no"#)
        #expect(value(0, "secret_code") == "t\nu")
        #expect(value(1, "nickname") == "it's" && value(1, "secret_code") == "(,);")
        #expect(rows[1].values["ip_address"] == .some(.none))
        #expect(value(2, "payload") == "{}" && value(2, "message_id") == "-5")
        #expect(value(3, "payload") == "{\0}" && rows[3].values["message_id"] == [0, 0xAB])
    }

    @Test(
        "A file that is no dump is an error with its line",
        arguments: [
            ("INSERT INTO active_users VALUES ('a','b'", 1), ("\nINSERT INTO active_users VALUES ('a','b');", 2),
            ("INSERT INTO active_users VALUES\n ('a", 2), ("/* no end", 1), ("INSERT INTO active_users SELECT 1;", 1),
            ("INSERT INTO active_users VALUES (x'zz');", 1), ("INSERT INTO active_users VALUES ('a') ('b');", 1),
        ])
    func broken(text: String, line: Int) throws {
        // The last case is a statement with an unexpected end: the reader skips the rest after the row.
        if text.hasSuffix("('b');") {
            #expect(try rows(text).count == 1)
            return
        }
        let error = #expect(throws: UnreadableFile.self) { try rows(text) }
        #expect(error?.line == line)
    }

    @Test("Reading ends for any input", arguments: 0..<200)
    func noise(seed: Int) throws {
        var generator = SeededGenerator(seed: UInt64(seed))
        var bytes = Array(Self.dump.utf8)
        for _ in 0..<20 {
            let place = Int.random(in: 0..<bytes.count, using: &generator)
            bytes[place] = Array("'`\"(),;\\-/*#x0 \n\u{0}".utf8).randomElement(using: &generator) ?? 0
        }
        _ = try? rows(String(decoding: bytes, as: UTF8.self))
    }

    @Test("A value has a size limit, which bounds the memory")
    func limits() throws {
        let long = String(repeating: "a", count: MySQLDump.maxValue + 1)
        #expect(throws: UnreadableFile.self) { try rows("INSERT INTO active_users VALUES ('\(long)');") }
        #expect(throws: UnreadableFile.self) {
            try rows("INSERT INTO active_users VALUES (\(String(repeating: "1,", count: 1000))1);")
        }
        // In another table the length does not matter.
        #expect(try rows("INSERT INTO other VALUES ('\(long)');") == [])
    }
}

/// xorshift, for reproducible noise.
private struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64
    init(seed: UInt64) { state = seed &* 0x9E37_79B9_7F4A_7C15 | 1 }

    mutating func next() -> UInt64 {
        state ^= state << 13
        state ^= state >> 7
        state ^= state << 17
        return state
    }
}
