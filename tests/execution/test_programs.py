"""Programs: how they are started, what they get, and how their end is told."""

import json
import os
import pwd
import signal
from pathlib import Path

import pytest

from rota.model.states import Outcome
from rota.model.work import RESULT_MAX, Bounds
from tests.execution.harness import rig

HOSTILE = [
    '"; touch pwned #',
    "$(id)",
    "`id`",
    "a\nb\r\nc",
    "-rf",
    "--output=x",
    "*",
    "~",
    "%s %d {0}",
    "ümläut 💥",
    "\x1b[31m",
    "x" * 100_000,
    "",
]


@pytest.mark.parametrize(("code", "outcome"), [(0, Outcome.SUCCEEDED), (1, Outcome.FAILED), (75, Outcome.FAILED)])
async def test_the_exit_code_of_a_program_is_its_outcome(tmp_path: Path, code: int, outcome: Outcome) -> None:
    async with rig(tmp_path) as runner:
        end = await runner.do(runner.shell("sh", "-c", f"exit {code}"))
    assert (end.outcome, end.code) == (outcome, code)
    assert end.cause == (str(code) if code else "")
    assert end.started_s is not None
    assert end.started_s <= end.ended_s


async def test_a_program_that_dies_by_a_signal_fails_and_the_signal_is_named(tmp_path: Path) -> None:
    async with rig(tmp_path) as runner:
        end = await runner.do(runner.shell("sh", "-c", "kill -SEGV $$"))
    assert (end.outcome, end.cause, end.code) == (Outcome.FAILED, "139 SIGSEGV", 139)
    assert "signal 11 (SIGSEGV)" in end.message


async def test_a_program_that_is_not_there_fails_before_it_starts(tmp_path: Path) -> None:
    async with rig(tmp_path) as runner:
        end = await runner.do(runner.shell("no-such-program-anywhere"))
    assert (end.outcome, end.started_s) == (Outcome.FAILED, None)
    assert "no-such-program-anywhere" in end.message
    assert "run-" not in end.message


async def test_hostile_values_arrive_byte_for_byte_and_are_never_shell_text(tmp_path: Path) -> None:
    """S12."""
    code = """
        import json, os, sys
        with open(sys.argv[1], "w") as file:
            json.dump([sys.argv[2], os.environ["ROTA_PARAM_VALUE"], json.loads(os.environ["ROTA_PARAMS"])], file)
    """
    async with rig(tmp_path) as runner:
        argv = runner.script(code).spec.config["argv"]
        assert isinstance(argv, list)
        for number, value in enumerate(HOSTILE):
            seen = tmp_path / f"seen-{number}"
            given = [*(str(argument) for argument in argv), str(seen), value]
            end = await runner.do(runner.shell(*given, params={"value": value}, bounds=Bounds(directory=str(tmp_path))))
            assert end.outcome is Outcome.SUCCEEDED, end.message
            assert json.loads(seen.read_text()) == [value, value, {"value": value}]
    assert not (tmp_path / "pwned").exists()


async def test_a_value_that_no_program_can_take_is_a_failure_with_a_reason(tmp_path: Path) -> None:
    async with rig(tmp_path) as runner:
        nul = await runner.do(runner.shell("echo", "a\0b"))
        long = await runner.do(runner.shell("echo", "x" * 200_000))
    assert nul.outcome is long.outcome is Outcome.FAILED
    assert "NUL" in nul.message
    assert "too long" in long.message


async def test_a_program_gets_exactly_its_environment(tmp_path: Path) -> None:
    """S19: nothing of the node's environment but a few basic variables."""
    code = "import json, os; json.dump(dict(os.environ), open(os.environ['SEEN'], 'w'))"
    given = {"PATH": os.environ["PATH"], "TZ": "Europe/Berlin", "SECRET": "s", "ROTA_STORE": "postgresql://u:p@h/d"}
    async with rig(tmp_path, environment=given) as runner:
        attempt = runner.script(
            code,
            env={"SEEN": str(tmp_path / "seen"), "COLOUR": "red", "ROTA_TOKEN": "forged"},
            params={"n": 3, "on": True, "none": None, "text": "a b", "list": [1], "Case": 1, "case": 2},
            token=(7 << 32) | 2,
            attempt=2,
        )
        end = await runner.do(attempt)
        assert end.outcome is Outcome.SUCCEEDED, end.message
    seen = json.loads((tmp_path / "seen").read_text())
    result = seen.pop("ROTA_RESULT")
    assert not os.path.exists(result)  # noqa: ASYNC240, PTH110
    assert seen.pop("ROTA_TREE")
    seen.pop("LC_CTYPE", None)  # Python sets it for itself
    params = attempt.params
    assert json.loads(seen.pop("ROTA_PARAMS")) == params
    assert seen == {
        "PATH": os.environ["PATH"],
        "HOME": "/",
        "LANG": "C.UTF-8",
        "TZ": "Europe/Berlin",
        "SEEN": str(tmp_path / "seen"),
        "COLOUR": "red",
        "ROTA_RUN": str(attempt.run_id),
        "ROTA_ITEM": str(attempt.item_id),
        "ROTA_ATTEMPT": "2",
        "ROTA_TOKEN": str((7 << 32) | 2),
        "ROTA_KEY": attempt.idempotency_key,
        "ROTA_JOB": "default/default/job",
        "ROTA_TASK": "main",
        "ROTA_INDEX": "0",
        "ROTA_SLOT": "",
        "ROTA_PARAM_N": "3",
        "ROTA_PARAM_ON": "true",
        "ROTA_PARAM_TEXT": "a b",
    }


async def test_a_program_may_write_a_result(tmp_path: Path) -> None:
    async with rig(tmp_path) as runner:
        end = await runner.do(runner.shell("sh", "-c", """echo '{"rows": 3}' > "$ROTA_RESULT" """))
        none = await runner.do(runner.shell("true"))
    assert (end.outcome, end.result) == (Outcome.SUCCEEDED, '{"rows": 3}')
    assert none.result is None


@pytest.mark.parametrize(
    ("write", "words"),
    [
        ("echo nonsense > $ROTA_RESULT", "not JSON"),
        ("echo NaN > $ROTA_RESULT", "not JSON"),
        ("printf '\\377' > $ROTA_RESULT", "not JSON"),
        (f"head -c {RESULT_MAX + 1} /dev/zero > $ROTA_RESULT", f"{RESULT_MAX + 1} bytes; at most {RESULT_MAX}"),
    ],
)
async def test_a_result_that_cannot_be_kept_is_a_failure_that_says_why(tmp_path: Path, write: str, words: str) -> None:
    async with rig(tmp_path) as runner:
        end = await runner.do(runner.shell("sh", "-c", write))
    assert (end.outcome, end.cause, end.result) == (Outcome.FAILED, "result", None)
    assert words in end.message


@pytest.mark.parametrize(
    "place",
    [
        "ln -s /etc/passwd $ROTA_RESULT",
        "mkfifo $ROTA_RESULT",
        "mkdir -p $ROTA_RESULT/deep/er",
        "rm -r ${ROTA_RESULT%/*}",
    ],
)
async def test_what_is_no_plain_file_is_no_result(tmp_path: Path, place: str) -> None:
    async with rig(tmp_path) as runner:
        end = await runner.do(runner.shell("sh", "-c", place))
    assert (end.outcome, end.result) == (Outcome.SUCCEEDED, None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
async def test_a_second_name_of_the_file_of_another_user_is_no_result(tmp_path: Path) -> None:
    """Where hard links are not protected, a program could let root read a file for it."""
    write = "echo hers > $ROTA_RESULT; echo $ROTA_RESULT > where; until [ -e go ]; do sleep 0.01; done"
    async with rig(tmp_path) as runner:
        attempt = runner.shell("sh", "-c", write, bounds=Bounds(directory=str(tmp_path)))
        runner.begin(attempt)
        os.chown((await runner.appears("where")).strip(), 12345, 12345)
        (tmp_path / "go").touch()
        end = await runner.end(attempt)
    assert (end.outcome, end.result) == (Outcome.SUCCEEDED, None)


async def test_a_program_runs_in_its_directory_as_its_user_and_can_write_its_result(tmp_path: Path) -> None:
    user = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() else "nobody"
    async with rig(tmp_path) as runner:
        bounds = Bounds(directory="/usr", user=user)
        end = await runner.do(
            runner.shell("sh", "-c", 'echo "\\"$(pwd) $(id -un) $HOME\\"" > $ROTA_RESULT', bounds=bounds)
        )
    assert end.outcome is Outcome.SUCCEEDED, end.message
    assert json.loads(end.result or "") == f"/usr {user} {pwd.getpwnam(user).pw_dir}"


async def test_running_out_of_memory_is_a_named_outcome(tmp_path: Path) -> None:
    async with rig(tmp_path) as runner:
        end = await runner.do(runner.script("x = bytearray(1 << 30)", bounds=Bounds(memory_mb=64)))
    assert end.outcome is Outcome.FAILED
    # A control group kills, and says so; a resource limit makes the program itself fail.
    assert end.cause == "memory" or end.code == 1
    if end.cause == "memory":
        assert "64 MB" in end.message


async def test_using_too_much_cpu_time_is_a_named_outcome(tmp_path: Path) -> None:
    async with rig(tmp_path) as runner:
        end = await runner.do(runner.script("while True: pass", bounds=Bounds(cpu_s=1)))
    assert end.outcome is Outcome.FAILED
    assert end.cause.split() == ["cpu", str(128 + signal.SIGXCPU), "SIGXCPU"]
    assert "more than 1 s of CPU time" in end.message


async def test_what_outlives_a_program_is_gone_when_its_end_is_told(tmp_path: Path) -> None:
    async with rig(tmp_path) as runner:
        attempt = runner.shell("sh", "-c", f"sleep 1000 & echo $! > {tmp_path}/child; exit 0")
        end = await runner.do(attempt)
        assert end.outcome is Outcome.SUCCEEDED
        assert b"outlived" in runner.log(attempt)
        assert not runner.runner._process_trees.live


async def test_more_programs_than_processes_are_allowed_wait_for_their_turn(tmp_path: Path) -> None:
    async with rig(tmp_path, processes_max=2) as runner:
        go = tmp_path / "go"
        attempts = [runner.shell("sh", "-c", f"until [ -e {go} ]; do sleep 0.02; done") for _ in range(8)]
        runner.begin(*attempts)
        await runner.heard.until(lambda: len(runner.heard.starts) == 2)
        go.touch()
        ends = [await runner.end(attempt) for attempt in attempts]
        spans = sorted([(end.started_s or 0, 1) for end in ends] + [(end.ended_s, -1) for end in ends])
    at_once = most = 0
    for _, step in spans:
        at_once += step
        most = max(most, at_once)
    assert {end.outcome for end in ends} == {Outcome.SUCCEEDED}
    assert most == 2
