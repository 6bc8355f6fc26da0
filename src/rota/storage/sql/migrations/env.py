"""Run the migrations on the connection that `rota.storage.sql.store` hands over."""

from alembic import context

from rota.storage.sql.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table="rota_schema",
    transactional_ddl=False,
)
context.run_migrations()
