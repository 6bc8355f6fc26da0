"""Fixtures of the end-to-end tests."""

from pathlib import Path

import pytest

from tests.e2e.rig import JOBS, Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty folder."""
    return Home(tmp_path)


@pytest.fixture
def stored(home: Home) -> Home:
    """A folder with a store that has three jobs."""
    home.write("jobs.yaml", JOBS)
    home.ok("store", "migrate")
    home.ok("job", "apply", "jobs.yaml")
    return home
