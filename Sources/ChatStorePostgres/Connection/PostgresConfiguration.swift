/// The database of the stores.
package struct PostgresConfiguration: Sendable, Hashable {
    /// The URL in libpq's format: `postgres://user:password@host:5432/database`. It may name several hosts.
    package var url: String
    /// The schema of the tables. `nil` for the server's default for the user, usually `public`.
    package var schema: String?
    /// The maximum number of connections, not counting the one that listens. At least ``fewestConnections``.
    package var connections: Int

    package static let fewestConnections = 3

    package init(url: String, schema: String? = nil, connections: Int = 8) {
        self.url = url
        self.schema = schema
        self.connections = max(connections, Self.fewestConnections)
    }

    /// The reason why the database cannot be used. The operator has to fix it.
    package struct Unusable: Error, CustomStringConvertible {
        package let description: String
    }
}
