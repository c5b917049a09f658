#if PostgreSQL
/// Which database the stores are in.
package struct PostgresConfiguration: Sendable, Hashable {
    /// As libpq takes it: `postgres://user:password@host:5432/database`, also with several hosts.
    package var url: String
    /// Where the tables are; nil: where the server puts them for the user, mostly `public`.
    package var schema: String?
    /// At most so many at the same time, and one more that listens; at least ``fewestConnections``.
    package var connections: Int

    package static let fewestConnections = 3

    package init(url: String, schema: String? = nil, connections: Int = 8) {
        self.url = url
        self.schema = schema
        self.connections = max(connections, Self.fewestConnections)
    }

    /// Why the database cannot be used as it is: what an operator has to mend.
    package struct Unusable: Error, CustomStringConvertible {
        package let description: String
    }
}
#endif
