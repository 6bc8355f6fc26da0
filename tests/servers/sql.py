"""Runs single statements with the bare drivers, so that a test can look at a database behind the product's back."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import asyncmy
import asyncpg


async def run(url: str, statement: str) -> Sequence[tuple[Any, ...]]:
    """Run one statement on a connection of its own, commit it, and return its rows."""
    runner = _run_on_postgres if url.startswith("postgresql:") else _run_on_mysql
    return await runner(url, statement)


async def connect_mysql(url: str) -> asyncmy.Connection:
    """Open a connection to a `mysql://` URL, autocommit off."""
    parts = urlsplit(url)
    return await asyncmy.connect(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=parts.path.lstrip("/") or None,
        charset="utf8mb4",
    )


async def _run_on_postgres(url: str, statement: str) -> Sequence[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(record) for record in await connection.fetch(statement)]
    finally:
        await connection.close()


async def _run_on_mysql(url: str, statement: str) -> Sequence[tuple[Any, ...]]:
    connection = await connect_mysql(url)
    try:
        async with connection.cursor() as cursor:
            await cursor.execute(statement)
            rows = list(await cursor.fetchall())
        await connection.commit()
        return rows
    finally:
        connection.close()
