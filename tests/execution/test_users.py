"""Whom tasks run as: whom they name, else whom the node names."""

from pathlib import Path

import pytest

from rota.errors import InvalidInput
from rota.execution.users import Users
from rota.model.states import Outcome
from rota.model.work import Bounds
from tests.execution.harness import rig
from tests.execution.isolation.rig import IS_ROOT, PYTHON

needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can run programs as somebody else")
WHO = ("import os; print(os.getuid(), os.getgid(), os.getgroups(), os.environ['HOME'])",)


@needs_root
async def test_a_task_that_names_nobody_runs_as_the_user_of_its_executor(tmp_path: Path) -> None:
    async with rig(tmp_path, user="nobody") as runner:
        attempt = runner.shell(PYTHON, "-I", "-S", "-c", *WHO)
        assert (await runner.do(attempt)).outcome is Outcome.SUCCEEDED
        assert runner.log(attempt) == b"65534 65534 [65534] /nonexistent\n"


@needs_root
@pytest.mark.parametrize("user", ["root", "0"])
async def test_no_task_runs_as_root_where_the_executor_has_a_user(tmp_path: Path, user: str) -> None:
    async with rig(tmp_path, user="nobody") as runner:
        end = await runner.do(runner.shell("id", bounds=Bounds(user=user)))
    assert (end.outcome, end.cause) == (Outcome.FAILED, "start")
    assert end.message == f"this node runs no task as {user}: its executor.user is nobody"


@needs_root
async def test_a_task_may_name_a_third_user(tmp_path: Path) -> None:
    async with rig(tmp_path, user="daemon") as runner:
        attempt = runner.shell(PYTHON, "-I", "-S", "-c", *WHO, bounds=Bounds(user="nobody"))
        assert (await runner.do(attempt)).outcome is Outcome.SUCCEEDED
        assert runner.log(attempt).startswith(b"65534 ")


@pytest.mark.parametrize("user", ["no-such-user", "4294967290", "9" * 30, "²", "a\0b", "root"])
def test_a_user_that_cannot_be_or_is_root_is_refused(user: str) -> None:
    with pytest.raises(InvalidInput, match=r"^executor.user: "):
        Users(user)
