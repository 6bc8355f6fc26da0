"""The environment of a task's processes: a few basic variables, the task's own, and those that tell it who it is.

Values are values: nothing here is ever read by a shell.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from rota.execution.users import user_entry
from rota.model.value import Json
from rota.model.work import Attempt

BASIC = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/"}
KEPT = ("PATH", "HOME", "LANG", "TZ")
"""What is taken over of what the node hands on."""


def basic(node: Mapping[str, str], user: str | None, own: Mapping[str, str]) -> dict[str, str]:
    """What every process gets: the basic variables, and the task's own over them."""
    kept = {name: node[name] for name in KEPT if name in node}
    if (store := node.get("ROTA_STORE", "")).startswith("sqlite:///"):  # any other address may hold a password
        kept["ROTA_STORE"] = store
    home = {} if user is None else {"HOME": _home(user), "USER": user, "LOGNAME": user}
    return {**BASIC, **kept, **home, **own}


def of_program(attempt: Attempt, node: Mapping[str, str], result: str) -> dict[str, str]:
    """What the program of an attempt gets. Its own variables cannot change those that say who it is."""
    return {
        **basic(node, attempt.spec.bounds.user, attempt.spec.env),
        **_parameters(attempt.params),
        "ROTA_RUN": str(attempt.run_id),
        "ROTA_ITEM": str(attempt.item_id),
        "ROTA_ATTEMPT": str(attempt.attempt),
        "ROTA_TOKEN": str(attempt.token),
        "ROTA_KEY": attempt.idempotency_key,
        "ROTA_JOB": attempt.spec.name,
        "ROTA_TASK": attempt.spec.task,
        "ROTA_INDEX": str(attempt.index),
        "ROTA_SLOT": "" if attempt.slot_at is None else attempt.slot_at.isoformat(),
        "ROTA_PARAMS": json.dumps(attempt.params, ensure_ascii=False),
        "ROTA_RESULT": result,
        **({} if attempt.number is None else {"ROTA_NUMBER": attempt.number}),
        **({} if attempt.info is None else {"ROTA_INFO": attempt.info}),
    }


def _parameters(params: Mapping[str, Json]) -> dict[str, str]:
    """Texts, numbers and truth values one by one, in capital letters; two names that differ only in that are left to
    ROTA_PARAMS."""
    names = [name.upper() for name in params]
    return {
        f"ROTA_PARAM_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in params.items()
        if isinstance(value, str | int | float) and names.count(name.upper()) == 1
    }


def _home(user: str) -> str:
    found = user_entry(user)
    return "/" if found is None else found.pw_dir  # the boundary will say that there is no such user
