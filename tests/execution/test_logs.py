"""The log directory: what was written is read, once, wherever it was cut."""

import os
from pathlib import Path

import pytest

from rota.errors import LogUnreadable
from rota.execution.log_directory import CUT, MISSING, DirectoryLogs, LogState, piece
from rota.model.run import LogKey

KEY = LogKey(17, 18, 1)


@pytest.fixture
def logs(tmp_path: Path) -> DirectoryLogs:
    return DirectoryLogs(tmp_path / "logs")


def test_chunks_are_kept_by_offset_and_writing_twice_changes_nothing(logs: DirectoryLogs) -> None:
    chunks = [(0, b"\x00\xff"), (2, b"second"), (8, b"third")]
    for offset, data in [*chunks, *reversed(chunks), chunks[1]]:
        logs.append(KEY, offset, data)
    assert logs.read(KEY, 0, 100) == b"\x00\xffsecondthird"
    assert logs.read(KEY, 2, 6) == b"second"
    assert logs.read(KEY, 100, 6) == b""


def test_nothing_of_a_log_is_for_others(logs: DirectoryLogs, tmp_path: Path) -> None:
    logs.append(KEY, 0, b"x")
    logs.close_log(KEY, 1)
    found = list((tmp_path / "logs").rglob("*"))
    assert len(found) == 4
    assert [path for path in (tmp_path / "logs", *found) if path.stat().st_mode & 0o007] == []


def test_every_attempt_has_its_own_log(logs: DirectoryLogs) -> None:
    keys = [LogKey(1, 1, 1), LogKey(1, 1, 2), LogKey(1, 11, 1), LogKey(11, 1, 1), LogKey(1001, 1, 1)]
    for number, key in enumerate(keys):
        logs.append(key, 0, b"%d" % number)
    assert [logs.read(key, 0, 9) for key in keys] == [b"%d" % number for number in range(5)]


def test_reading_tells_a_running_attempt_from_one_that_ended(logs: DirectoryLogs) -> None:
    assert piece(logs, KEY, 0, 10, over=False) == (b"", 0, LogState.RUNNING)
    assert piece(logs, KEY, 0, 10, over=True) == (b"", 0, LogState.ENDED)
    logs.append(KEY, 0, b"abc")
    assert piece(logs, KEY, 0, 2, over=False) == (b"ab", 2, LogState.RUNNING)
    assert piece(logs, KEY, 3, 10, over=False) == (b"", 3, LogState.RUNNING)
    logs.close_log(KEY, 3)
    assert logs.total(KEY) == 3
    assert piece(logs, KEY, 0, 10, over=True) == (b"abc", 3, LogState.ENDED)
    assert piece(logs, KEY, 3, 10, over=True) == (b"", 3, LogState.ENDED)


def test_a_host_that_died_mid_log_leaves_what_was_flushed_and_a_marked_gap(logs: DirectoryLogs) -> None:
    logs.append(KEY, 0, b"flushed")
    assert piece(logs, KEY, 0, 100, over=True) == (b"flushed", 7, LogState.RUNNING)
    assert piece(logs, KEY, 7, 100, over=True) == (CUT, 7, LogState.CUT)


def test_a_log_that_is_shorter_than_it_should_be_has_a_marked_gap(logs: DirectoryLogs) -> None:
    logs.append(KEY, 0, b"abc")
    logs.close_log(KEY, 10)
    assert piece(logs, KEY, 3, 100, over=True) == (MISSING % 7, 3, LogState.CUT)


def test_pruning_forgets_the_runs_and_only_them(logs: DirectoryLogs, tmp_path: Path) -> None:
    other = LogKey(18, 1, 1)
    for key in (KEY, other):
        logs.append(key, 0, b"x")
        logs.close_log(key, 1)
    logs.prune([17, 99])
    assert (logs.read(KEY, 0, 9), logs.total(KEY)) == (b"", None)
    assert logs.read(other, 0, 9) == b"x"
    logs.prune([18])
    assert list((tmp_path / "logs").iterdir()) == []


def test_links_and_special_files_are_not_read_or_written(logs: DirectoryLogs, tmp_path: Path) -> None:
    """S14."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    folder = tmp_path / "logs" / "0" / "17"
    folder.mkdir(parents=True)
    (folder / "18.1.log").symlink_to(secret)
    with pytest.raises(LogUnreadable, match="symbolic links"):
        logs.read(KEY, 0, 10)
    with pytest.raises(OSError, match="symbolic links"):
        logs.append(KEY, 0, b"x")
    os.mkfifo(folder / "19.1.log")
    assert logs.read(LogKey(17, 19, 1), 0, 10) == b""
    assert secret.read_text() == "secret"


def test_names_are_made_of_numbers_only(logs: DirectoryLogs) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        logs.read(LogKey("../../etc/passwd", 1, 1), 0, 1)  # type: ignore[arg-type]


def test_the_runs_that_have_output_are_listed_in_order_and_nothing_else_is(logs: DirectoryLogs, tmp_path: Path) -> None:
    assert logs.runs(0, 10) == []
    for run_id in (2001, 7, 12, 999, 1000):
        logs.append(LogKey(run_id, 1, 1), 0, b"x")
    root = tmp_path / "logs"
    (root / "notes").mkdir()
    (root / "0" / "0013").mkdir()
    (root / "0" / "14").write_text("a file")
    (root / "0" / "15").symlink_to(root / "0" / "12")
    assert logs.runs(0, 10) == [7, 12, 999, 1000, 2001]
    assert logs.runs(0, 2) == [7, 12]
    assert logs.runs(12, 2) == [999, 1000]
    assert logs.runs(2001, 2) == []
