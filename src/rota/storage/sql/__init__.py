"""The store on SQLite, PostgreSQL and MySQL/MariaDB: one schema, one set of statements, few dialect differences."""
