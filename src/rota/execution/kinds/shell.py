"""Shell: the argument list of a program. It is never given to a shell, so that nothing in it needs to be quoted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.definitions.characters import is_whole
from rota.definitions.report import shown
from rota.execution.kinds.kind import Problems, ProgramKind, count_of, read_value
from rota.model.value import Json

ARGS_MAX = 1000
ARGS_BYTES_MAX = 128 * 1024


class ShellKind(ProgramKind):
    """`shell: ["python", "report.py"]`"""

    name = "shell"

    def config(self, value: object, problems: Problems) -> dict[str, Json] | None:
        return read_value("argv", argv, value, problems)

    def argv(self, config: Mapping[str, Json]) -> Sequence[str]:
        arguments = config["argv"]
        assert isinstance(arguments, list)
        return [str(argument) for argument in arguments]


def argv(value: object) -> list[str]:
    if isinstance(value, str):
        raise ValueError('must be a list like ["python", "report.py"], not shell text')
    if not isinstance(value, list) or not 1 <= len(value) <= ARGS_MAX:
        raise ValueError(f"must be a list of 1 to {ARGS_MAX} texts, not {count_of(value)}")
    for number, argument in enumerate(value):
        if not isinstance(argument, str):
            raise ValueError(f"argument {number} must be text, not {shown(argument)}; put it in quotes")
        if not is_whole(argument):
            raise ValueError(f"argument {number} must not hold NUL or half characters: {shown(argument)}")
    if not value[0].strip():
        raise ValueError("the program (argument 0) must not be empty")
    if sum(len(argument.encode()) + 1 for argument in value) > ARGS_BYTES_MAX:
        raise ValueError(f"has more than {ARGS_BYTES_MAX} bytes; hand large values over in params or a file")
    return [str(argument) for argument in value]
