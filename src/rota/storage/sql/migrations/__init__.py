"""Migrations: numbered steps from an empty database to the present schema."""
