"""The default state folder is one that no other user could have made before."""

import os
import socket
from pathlib import Path

import pytest

from rota.config import config_of, load, state_path

HOST = socket.gethostname()
ME = max(os.geteuid(), 1)
"""A user that is not root; as root, `folder` is given to it."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if os.geteuid() != ME:
        os.chown(tmp_path, ME, ME)
    return tmp_path


def test_root_keeps_its_state_in_run_however_it_was_started(folder: Path) -> None:
    given = {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder)}
    assert state_path(0, given) == "/run/rota"


def test_a_user_keeps_it_at_home_and_apart_from_other_hosts(folder: Path) -> None:
    given = {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    assert state_path(ME, given) == f"{folder}/.local/state/rota/{HOST}"


def test_a_user_may_name_another_home_for_state(folder: Path) -> None:
    assert state_path(ME, {"HOME": str(folder), "XDG_STATE_HOME": "/var/me"}) == f"/var/me/rota/{HOST}"


def test_a_user_without_a_home_keeps_it_in_its_runtime_directory(folder: Path) -> None:
    assert state_path(ME, {"HOME": "/", "XDG_RUNTIME_DIR": str(folder)}) == f"{folder}/rota"


@pytest.mark.parametrize("given", [{}, {"HOME": "/"}, {"HOME": "."}, {"HOME": "/", "XDG_RUNTIME_DIR": "/"}])
def test_there_is_no_place_in_what_belongs_to_others(given: dict[str, str]) -> None:
    assert state_path(ME, given) == ""


def test_no_default_lies_in_a_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/")
    monkeypatch.setenv("TMPDIR", str(folder))
    found = config_of(load({}, environment={})).executor.state_path
    assert not found.startswith((str(folder), "/tmp"))
