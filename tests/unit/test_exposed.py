"""Files with secrets: the store's own is for its owner only; a configuration that others can read is told of."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.config import exposed, load
from rota.wiring import open_store


async def test_the_files_of_an_sqlite_store_are_for_their_owner_only(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/rota.db", SystemClock(), actor="test")
    await store.migrate()
    modes = {it.name: it.stat().st_mode & 0o777 for it in tmp_path.iterdir()}  # noqa: ASYNC240 - a few files
    await store.close()
    assert modes == {"rota.db": 0o600, "rota.db-wal": 0o600, "rota.db-shm": 0o600}


@pytest.mark.parametrize(
    ("text", "mode", "name"),
    [
        ('[store]\nurl = "postgresql://me:s3cret@db/x"', 0o644, "store.url"),
        ('[alarm]\nsmtp_password = "s3cret"', 0o640, "alarm.smtp_password"),
        ('[store]\nurl = "postgresql://me:s3cret@db/x"', 0o600, None),
        ('[store]\nurl = "postgresql://me@db/x"', 0o644, None),
    ],
)
def test_a_configuration_with_a_secret_that_others_can_read_is_told_of(
    tmp_path: Path, text: str, mode: int, name: str | None
) -> None:
    file = tmp_path / "rota.toml"
    file.write_text(text)
    file.chmod(mode)
    warnings = exposed(load({}, file=file, environment={}))
    assert [name in it and "s3cret" not in it for it in warnings if name] == [True] * (name is not None)
    assert len(warnings) == (name is not None)


@pytest.mark.parametrize(("mode", "told"), [(0o644, True), (0o640, True), (0o600, False), (None, False)])
def test_a_store_of_an_earlier_release_that_others_can_read_is_told_of(
    tmp_path: Path, mode: int | None, told: bool
) -> None:
    file = tmp_path / "rota.db"
    if mode is not None:
        file.touch()
        file.chmod(mode)
    warnings = exposed(load({"store.url": f"sqlite:///{file}"}, file=None, environment={}))
    assert warnings == [f"{file} is the store, and others can read it; run: chmod 600 {file}*"] * told
