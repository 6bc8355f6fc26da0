"""Channels come from a registry: a package that is installed adds one, and nothing of ours is touched."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rota.alarms.channels.channel import CourierSettings
from rota.alarms.channels.courier import ChannelCourier
from rota.alarms.channels.registry import CHANNELS
from rota.clock import SystemClock
from rota.definitions.alarm import channel_names, job_alarms, written
from rota.errors import InvalidInput, Undelivered
from rota.model.alarm import Alarm, AlarmKind, AlarmRule, Channel, Message

PLUGIN = """
from pathlib import Path

from rota.alarms.channels.channel import AlarmChannel, message_json


class FileChannel(AlarmChannel):
    name = "file"

    def to(self, value):
        if not isinstance(value, str) or not value.startswith("/"):
            raise ValueError("must be a full path")
        return (value,)

    async def send(self, settings, clock, channel, message):
        size = Path(channel.to[0]).write_bytes(message_json(message))
        return f"wrote {size} bytes"
"""
AT = datetime(2026, 1, 1, tzinfo=UTC)
MESSAGE = Message(
    id="m1",
    rule="ops",
    kind=AlarmKind.TEST,
    count=1,
    first=(Alarm(key="k", kind=AlarmKind.TEST, at=AT),),
    subject="a test",
    text="this is a test",
)

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "filing.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(folder))

    def declare(package: str, entries: str) -> None:
        info = folder / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[rota.channels]\n{entries}\n")
        CHANNELS.forget()

    yield declare
    CHANNELS.forget()


async def test_a_plugin_adds_a_channel_that_definitions_know_and_that_sends(tmp_path: Path, install: Install) -> None:
    install("filing", "file = filing:FileChannel")
    (alarm,) = job_alarms([{"file": str(tmp_path / "alarms"), "kinds": ["run_failed"]}])
    assert written(alarm)["file"] == str(tmp_path / "alarms")
    courier = ChannelCourier(CourierSettings(), SystemClock())
    answer = await courier.send(AlarmRule(name="ops", channel=alarm.channel), MESSAGE)
    text = (tmp_path / "alarms").read_text()
    assert answer == f"wrote {len(text)} bytes"
    assert '"subject": "a test"' in text


def test_what_is_wrong_for_a_channel_of_a_plugin_is_said_by_the_plugin(install: Install) -> None:
    install("filing", "file = filing:FileChannel")
    with pytest.raises(ValueError, match="entry 0: file: must be a full path"):
        job_alarms([{"file": "alarms"}])


def test_an_unknown_channel_is_refused_and_the_known_ones_are_listed(install: Install) -> None:
    install("filing", "file = filing:FileChannel")
    with pytest.raises(ValueError, match="known are mail, webhook, command, job, file"):
        job_alarms([{"pigeon": "home"}])


async def test_a_rule_whose_channel_this_node_does_not_have_is_not_delivered() -> None:
    rule = AlarmRule(name="ops", channel=Channel(kind="pigeon", to=("home",)))
    with pytest.raises(Undelivered, match="pigeon: is not a known channel; known are mail, webhook, command, job"):
        await ChannelCourier(CourierSettings(), SystemClock()).send(rule, MESSAGE)


def test_two_channels_of_one_name_are_refused(install: Install) -> None:
    install("filing", "mail = filing:FileChannel")
    with pytest.raises(InvalidInput, match="two packages add a channel of this name"):
        channel_names(["pigeon"])
