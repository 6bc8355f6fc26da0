"""Whether what a page shows would be accepted: by the command line, by what reads definitions, by the settings."""

from __future__ import annotations

import ast
import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import click
from ruamel.yaml import YAML

import rota
from rota.alarms.channels.registry import CHANNELS
from rota.cli.lazy import Globals
from rota.cli.main import cli
from rota.config import load, unknown_variables
from rota.core.time.cron import parse
from rota.definitions.yaml import read_yaml
from rota.execution.kinds.registry import KINDS
from rota.storage.sql.connect import read_store_url
from tests.e2e.pages import ROOT, Block

TODAY = date(2026, 11, 16)
FOREIGN = {"airflow", "apscheduler", "celery"}
"""What people come from: their programs are shown beside ours, and are not installed."""
_PLACEHOLDER = re.compile(r"\b[A-Z]+\b|…|\.\.\.|\[|\||<|\*")
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def command(text: str, *, is_whole: bool = True) -> None:
    """The words after `rota`: a command that there is, with options that it has and values that they take. Inside of a
    sentence it need not be whole."""
    words = shlex.split(text.rstrip(" &"), comments=True)
    words = [it for it in words[1:] if not re.fullmatch(r"\d?>.*|.*\.log|-h|--help|--version", it)]
    if _PLACEHOLDER.search(text):
        _options(words)
        return
    name, found, rest, above = _resolved(words)
    try:
        found.make_context(name, rest, parent=above)
    except (click.MissingParameter, click.BadOptionUsage, click.exceptions.NoArgsIsHelpError):
        assert not is_whole, f"rota {' '.join(words)} is not whole"
        _options(words)


def _options(words: Sequence[str]) -> None:
    """With placeholders among them: the command, and each option by its name."""
    plain = [it for it in words if re.fullmatch(r"[a-z-]+", it) and not it.startswith("-")]
    _, found, _, above = _resolved(plain[:2])
    known = {it for param in [*found.params, *above.command.params] for it in (*param.opts, *param.secondary_opts)}
    given = {it for word in words for it in _OPTION.findall(word)}
    unknown = given - known - {"-h", "--help"}
    assert not unknown, f"rota {' '.join(words)}: no option {', '.join(sorted(unknown))}"


def _resolved(words: Sequence[str]) -> tuple[str, click.Command, list[str], click.Context]:
    """The command that words lead to, what is left of them, and the context of its group."""
    above = click.Context(cli, info_name="rota", obj=Globals())
    name, found, rest = "rota", cli, list(words)
    step: click.Command | None = cli
    while isinstance(step, click.Group) and rest and not rest[0].startswith("-"):
        above = click.Context(step, info_name=name, parent=above)
        word, step, rest = step.resolve_command(above, rest)
        assert word is not None
        assert step is not None
        name, found = word, step
    return name, found, rest, above


class Accepted:
    """Looks at the blocks of one page, from top to bottom: what one defines the next may use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[str, Any] = {}
        self._titles: set[str] = set()
        self._packages = 0

    def look_at(self, block: Block) -> None:
        looks: dict[str, Callable[[Block], None]] = {
            "python": self._python,
            "yaml": self._yaml,
            "toml": self._toml,
            "ini": self._unit,
            "dockerfile": self._dockerfile,
            "crontab": self._crontab,
            "json": lambda block: json.loads(block.text),
            "url": self._url,
            "text": lambda _: None,
        }
        assert block.language in looks, f"{block.where}: nothing checks a block of {block.language or 'no language'!r}"
        self._titles.add(Path(block.title).stem)
        try:
            looks[block.language](block)
        except Exception as error:
            raise AssertionError(f"{block.where}: {error}") from error

    def _python(self, block: Block) -> None:
        compile(block.text, block.where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if block.title:
            (self._folder / block.title).write_text(block.text)
        for word in set(re.findall(r"\brota\.(?!testing|execution|alarms|errors)([A-Za-z_]\w*)", block.text)):
            assert hasattr(rota, word), f"there is no rota.{word}"
        tree = ast.parse(block.text)
        imported = {it.split(".")[0] for node in ast.walk(tree) for it in _imports(node)}
        if imported & {*FOREIGN, *self._titles} or "__init__(" in block.text:
            return
        if "rota.App(" in block.text or block.text.startswith("@app."):
            self._names.setdefault("rota", rota)
            if "app" not in self._names:
                self._names["app"] = rota.App()
            definitions = [it for it in tree.body if isinstance(it, _DEFINING)]
            exec(compile(ast.Module(definitions, []), block.where, "exec"), self._names)

    def _yaml(self, block: Block) -> None:
        documents = list(YAML(typ="safe", pure=True).load_all(block.text))
        if any(isinstance(it, dict) and "apiVersion" in it for it in documents):
            for document in documents:
                _manifest(document)
            return
        with self._plugged():
            assert read_yaml(block.text, file=block.page, today=TODAY)

    def _toml(self, block: Block) -> None:
        content = tomllib.loads(block.text)
        if "project" in content:
            return self._package(content["project"])
        file = self._folder / "looked-at.toml"
        file.write_text(block.text)
        load({}, file=file, environment={})
        return None

    def _package(self, project: Mapping[str, Any]) -> None:
        """A plugin: its entry points are declared as an installed package would."""
        groups = project["entry-points"]
        assert set(groups) <= {KINDS.group, CHANNELS.group}, f"no such entry points: {', '.join(groups)}"
        self._packages += 1
        info = self._folder / f"plugin{self._packages}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: plugin{self._packages}\nVersion: 1.0\n")
        lines = [f"[{group}]\n" + "".join(f"{it} = {what}\n" for it, what in groups[group].items()) for group in groups]
        (info / "entry_points.txt").write_text("".join(lines))

    @contextmanager
    def _plugged(self) -> Iterator[None]:
        """With the plugins of the page, and without them afterwards."""
        sys.path.insert(0, str(self._folder))
        KINDS.forget()
        CHANNELS.forget()
        try:
            yield
        finally:
            sys.path.remove(str(self._folder))
            KINDS.forget()
            CHANNELS.forget()

    def _unit(self, block: Block) -> None:
        if block.title.endswith(".env"):
            return _variables(dict(it.split("=", 1) for it in block.text.splitlines()))
        configparser.RawConfigParser(strict=False).read_string(block.text)
        for line in block.text.splitlines():
            word, _, value = line.partition("=")
            if word == "ExecStart":
                _program(shlex.split(value))
            if word == "Environment":
                _variables(dict(it.split("=", 1) for it in shlex.split(value)))
        if analyse := shutil.which("systemd-analyze"):
            _verify(analyse, self._folder, block)
        return None

    def _dockerfile(self, block: Block) -> None:
        for line in block.text.replace("\\\n", "").splitlines():
            word, _, rest = line.strip().partition(" ")
            assert word in {"", "FROM", "RUN", "COPY", "USER", "WORKDIR", "ENV", "EXPOSE", "ENTRYPOINT", "CMD", "#"}, (
                line
            )
            if word == "ENTRYPOINT":
                _program(json.loads(rest))
            if word == "ENV":
                _variables(dict(it.split("=", 1) for it in shlex.split(rest)))
            if word == "COPY":
                source = shlex.split(rest)[-2]
                assert (ROOT / source).exists() or Path(source).stem in self._titles or source == "jobs/", source

    def _url(self, block: Block) -> None:
        for line in block.text.splitlines():
            read_store_url(line, port=1, form="")

    def _crontab(self, block: Block) -> None:
        lines = [it for it in block.text.splitlines() if it and not it.startswith("#")]
        assert lines, "an empty crontab"
        for line in lines:
            if "=" not in line.split(" ")[0]:
                parse(" ".join(line.split()[:5]), seed="")


_DEFINING = (ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Expr)


def _imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (it.name for it in node.names)
    if isinstance(node, ast.ImportFrom):
        yield node.module or ""


def _program(words: Sequence[str]) -> None:
    """The command line of a service."""
    assert Path(words[0]).name == "rota", words
    command(shlex.join(["rota", *words[1:]]))


def _variables(given: Mapping[str, str]) -> None:
    """Variables of the environment that are settings, with values that they take."""
    _known(given)
    known = {name: value for name, value in given.items() if name.startswith("ROTA_")}
    load({}, environment={name: value.replace("%H", "berlin-1") for name, value in known.items()})


def _known(given: Iterable[str]) -> None:
    strangers = [name for name, _ in unknown_variables(dict.fromkeys(given, ""))]
    assert not strangers, f"no settings: {', '.join(strangers)}"


def _manifest(document: Mapping[str, Any]) -> None:
    """An object of Kubernetes: whatever runs rota has a command line, behind the `rota node start` of the image, and
    variables that it takes."""
    assert {"apiVersion", "kind", "metadata"} <= set(document), document
    for container in _containers(document):
        given = {it["name"]: it.get("value") for it in container.get("env", ())}
        _known(given)
        _variables({name: value for name, value in given.items() if value is not None})
        if "args" in container:
            command(shlex.join(["rota", "node", "start", *container["args"]]))
        for probe in ("livenessProbe", "readinessProbe"):
            if probe in container:
                path = container[probe]["httpGet"]["path"]
                assert path in ("/healthz", "/readyz"), f"nodes do not serve {path}"
        names = [it["name"] for it in container.get("volumeMounts", ())]
        volumes = document["spec"]["template"]["spec"].get("volumes", ())
        assert set(names) <= {it["name"] for it in volumes}, f"not all of {names} are volumes"
    if document["kind"] == "StatefulSet":
        labels = document["spec"]["template"]["metadata"]["labels"]
        selected = document["spec"]["selector"]["matchLabels"]
        assert selected.items() <= labels.items(), f"{selected} selects nothing"


def _containers(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    spec = document.get("spec", {}).get("template", {}).get("spec", {})
    yield from (*spec.get("containers", ()), *spec.get("initContainers", ()))


def _verify(analyse: str, folder: Path, block: Block) -> None:
    """What systemd says of a unit. That its program and its user are not on this host is no fault of the page."""
    file = folder / Path(block.title).name
    file.write_text(re.sub(r"(?<==)/\S*/rota(?= )", "/bin/true", block.text))
    done = subprocess.run([analyse, "verify", "--man=no", str(file)], capture_output=True, text=True, timeout=30)
    faults = [it for it in done.stderr.splitlines() if file.name in it and "Unknown user" not in it]
    assert not faults, "\n".join(faults)
