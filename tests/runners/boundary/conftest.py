"""What the tests of the boundaries share."""

import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.runners.boundary import BoundaryKind, Yard
from tests.runners.boundary.rig import KINDS, Rig


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can reach; every start of pytest closes the one it makes folders in to them."""
    with tempfile.TemporaryDirectory(prefix="rota-boundary-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def rig(folder: Path) -> Iterator[Rig]:
    rig = Rig(folder / "rig")
    yield rig
    rig.close()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> BoundaryKind:
    found: BoundaryKind = request.param
    return found


@pytest.fixture
async def yard(kind: BoundaryKind, folder: Path) -> AsyncIterator[Yard]:
    """An open yard of each kind, whose deadline is far."""
    yard = await Yard.open(kind, state_dir=folder / "state", node="n1")
    yard.renew(SystemClock().boottime() + 1000)
    yield yard
    await yard.close()


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that no sweep may touch."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()
