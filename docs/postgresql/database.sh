# For PostgreSQL's container (compose.yaml): creates a user for the relays without superuser rights, and the database that it owns.
psql --set ON_ERROR_STOP=1 --set password="$RELAY_PASSWORD" --username postgres <<'SQL'
CREATE ROLE relay LOGIN PASSWORD :'password';
CREATE DATABASE pushchat OWNER relay ENCODING 'UTF8' TEMPLATE template0;
REVOKE CONNECT ON DATABASE pushchat FROM PUBLIC;
SQL
