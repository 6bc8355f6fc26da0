"""A host dies while a task prints: what was flushed is readable, and the gap is marked."""

from __future__ import annotations

from pathlib import Path

from rota.control.logs import LogPiece
from tests.cluster.processes import SHORT
from tests.cluster.shift import Shift, a_shift


async def pieces(shift: Shift, run: int, attempt: int) -> list[LogPiece]:
    return [piece async for piece in shift.control.logs.read(run, attempt=attempt)]


async def test_what_was_flushed_before_a_host_died_is_readable_and_the_gap_is_marked(
    postgres_url: str, tmp_path: Path
) -> None:
    async with a_shift(postgres_url, tmp_path, settings=SHORT) as shift:
        await shift.control.limits.set_quota("acme")
        await shift.start("node-0", elsewhere=True)
        done = await shift.assign("acme", handler="talk", info={"ms": 60_000, "again_ms": 200})

        async def flushed() -> bool:
            return sum(piece.data.count(b"\n") for piece in await pieces(shift, done.id, 1)) > 12

        await shift.until_asked(flushed, "some output to be flushed")
        shift.nodes["node-0"].kill_agent()
        await shift.start("node-1")
        await shift.until_idle()
        first, second = [await pieces(shift, done.id, attempt) for attempt in (1, 2)]
        text = b"".join(piece.data for piece in first).decode()
        whole = text[: text.rindex("\n") + 1].splitlines() if "\n" in text else []
        numbered = [line for line in whole if line.startswith("line ")]
        assert numbered == [f"line {n}" for n in range(len(numbered))], "what is readable is not what was printed"
        assert len(numbered) > 10
        notes = [piece.note for piece in first if piece.note]
        assert any("lost" in note for note in notes) or "missing" in text, f"the gap is not marked: {first[-1]}"
        assert not any(piece.note for piece in second), "the attempt that ended has no gap"
        assert first[-1].why == "[attempt 1 lost: its node node-0 was lost]"
        assert b"".join(piece.data for piece in second).startswith(b"line 0\n")
        print(f"\nlog of a dead host: {len(numbered)} lines were flushed; {notes or text[-120:]!r}")
