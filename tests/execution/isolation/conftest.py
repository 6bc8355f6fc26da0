"""What the tests of the boundaries share."""

import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.execution.isolation.process_trees import ProcessTrees
from rota.execution.isolation.promises import BoundaryKind
from tests.execution.isolation.rig import KINDS, Rig


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
async def process_trees(kind: BoundaryKind, folder: Path) -> AsyncIterator[ProcessTrees]:
    """Trees in each kind of boundary, with a deadline far away."""
    process_trees = await ProcessTrees.open(kind, state_dir=folder / "state", node="n1")
    process_trees.renew(SystemClock().boottime() + 1000)
    yield process_trees
    await process_trees.close()


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that no sweep may touch."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()
