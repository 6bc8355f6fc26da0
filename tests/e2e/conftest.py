"""Fixtures of the end-to-end tests."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.rig import JOBS, Home
from tests.e2e.wheel import Installed


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty folder."""
    return Home(tmp_path)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment that has rota from its wheel."""
    return Installed(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that has three jobs; tests get copies of it."""
    home = Home(tmp_path_factory.mktemp("template"))
    home.write("jobs.yaml", JOBS)
    home.ok("store", "migrate")
    home.ok("job", "apply", "jobs.yaml")
    return home.path


@pytest.fixture
def stored(home: Home, template: Path) -> Home:
    """A folder with a store that has three jobs."""
    shutil.copytree(template, home.path, dirs_exist_ok=True)
    return home
