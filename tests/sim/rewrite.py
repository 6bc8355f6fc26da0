"""Wrong variants of placement, made by rewriting the product's syntax trees: one place of one module at a time.

    python -m tests.sim.rewrite list [MODULE]        every variant there is, with its number
    python -m tests.sim.rewrite draw SEED COUNT      some of them
    python -m tests.sim.rewrite try NUMBER [SEEDS]   simulate seeds with that variant until one shows it
    python -m tests.sim.rewrite test NUMBER TEST     run a test with that variant

A variant is named by what it changes (`Variant.name`), not by its number, so that the table of what was tried
(`rewritten.py`) stays right when code moves. Each is tried in a process of its own, which loads the one module from the
rewritten tree. A variant that breaks at import, or makes the simulation fail, is seen too.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

FILES = ("core/placement/*.py", "loops/placer/*.py", "coordinators/recipes.py")
SOURCE = Path(__file__).parents[2] / "src" / "rota"
SEEDS = 60
"""How many simulations a variant gets to be seen in."""

_NEXT = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
_NEXT |= {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}

Rewrite = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Variant:
    """One change of one module."""

    module: str
    where: str
    """The function that it is in."""
    what: str

    @property
    def name(self) -> str:
        return f"{self.module.removeprefix('rota.')}: {self.where}: {self.what}"


def modules() -> list[str]:
    found = [path for files in FILES for path in sorted(SOURCE.glob(files)) if path.stem != "__init__"]
    return ["rota." + ".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in found]


def variants(chosen: Sequence[str] = ()) -> list[Variant]:
    """Every variant of the modules, in the order of their text."""
    return [
        Variant(module, where, what) for module in chosen or modules() for where, what, _ in _rewrites(_tree(module))
    ]


def drawn(seed: int, count: int) -> list[Variant]:
    """Some variants, no two of one function."""
    found = variants()
    random.Random(seed).shuffle(found)
    by_place = {(it.module, it.where): it for it in reversed(found)}
    return [it for it in found if by_place[it.module, it.where] is it][:count]


def rewritten(variant: Variant) -> ast.Module:
    """The tree of its module, changed."""
    tree = _tree(variant.module)
    for where, what, rewrite in _rewrites(tree):
        if (where, what) == (variant.where, variant.what):
            rewrite()
            return ast.fix_missing_locations(tree)
    raise LookupError(variant.name)


class Loader(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from a rewritten tree."""

    def __init__(self, variant: Variant) -> None:
        self._variant = variant

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name == self._variant.module else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(rewritten(self._variant), self._variant.module, "exec"), module.__dict__)


def install(variant: Variant) -> None:
    """Have this process, which must not have loaded the product before, load the variant of it."""
    assert variant.module not in sys.modules, "the product is loaded already"
    sys.meta_path.insert(0, Loader(variant))


def seen(variant: Variant, seeds: int = SEEDS) -> str | None:
    """What shows the variant: a broken promise, or an error."""
    install(variant)
    try:
        from rota.sim.verdict import cases, verdict

        for case, _ in zip(cases(1, None, None), range(seeds), strict=False):
            found = verdict(case)
            if found.violations:
                return f"seed {case.seed}: {found.violations[0]}"
    except Exception as error:  # noqa: BLE001 - whatever it is, nobody would miss it
        return f"{type(error).__name__}: {error}"
    return None


def _tree(module: str) -> ast.Module:
    return ast.parse((SOURCE.parent / module.replace(".", "/")).with_suffix(".py").read_text())


def _rewrites(tree: ast.Module) -> Iterator[tuple[str, str, Rewrite]]:
    """Every change, by the function that it is in and what it does. The same text twice in a function is numbered."""
    for where, function in _functions(tree, ""):
        counts: dict[str, int] = {}
        for what, rewrite in _changes(function):
            counts[what] = counts.get(what, 0) + 1
            yield where, what if counts[what] == 1 else f"{what} ({counts[what]})", rewrite


def _functions(node: ast.AST, above: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{above}{child.name}"
            if not isinstance(child, ast.ClassDef):
                yield name, child
            yield from _functions(child, f"{name}.")


def _changes(function: ast.AST) -> Iterator[tuple[str, Rewrite]]:
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    todo = [child for child in ast.iter_child_nodes(function) if not isinstance(child, ast.arguments)]
    yield from _dropped(function)
    while todo:
        node = todo.pop(0)
        if isinstance(node, inner):
            continue
        yield from _dropped(node)
        yield from _changed(node)
        todo += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.arguments)]


def _dropped(node: ast.AST) -> Iterator[tuple[str, Rewrite]]:
    """Statements that are left out: calls, and assignments to attributes and entries."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        for place, it in enumerate(block) if isinstance(block, list) else ():
            if _is_droppable(it):
                yield f"without `{_text(it)}`", _put(block, place, ast.Pass())


def _is_droppable(it: ast.AST) -> bool:
    if isinstance(it, ast.Expr):
        value = it.value.value if isinstance(it.value, ast.Await) else it.value
        return isinstance(value, ast.Call) and not ast.unparse(value.func).startswith("log.")
    if isinstance(it, ast.AugAssign | ast.Assign):
        targets = it.targets if isinstance(it, ast.Assign) else [it.target]
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
    return False


def _changed(node: ast.AST) -> Iterator[tuple[str, Rewrite]]:
    match node:
        case ast.If() | ast.While() | ast.IfExp():
            yield f"if not `{_text(node.test)}`", _set(node, "test", ast.UnaryOp(ast.Not(), node.test))
        case ast.Compare(ops=[op]) if type(op) in _NEXT:
            other = _NEXT[type(op)]()
            changed = deepcopy(node)
            changed.ops = [other]
            yield f"`{_text(node)}` is `{_text(changed)}`", _set(node, "ops", [other])
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield f"`{_text(node)}` by `{'or' if isinstance(op, ast.And) else 'and'}`", _set(node, "op", other)
            yield f"`{_text(node)}` without its last part", _set(node, "values", [*values[:-2], values[-2], values[-2]])
        case ast.BinOp(left=left, op=ast.Sub() | ast.Div() | ast.FloorDiv() | ast.Mod(), right=right):
            yield f"`{_text(node)}` with its operands swapped", _swap(node, left, right)
        case ast.BinOp(op=ast.Add()):
            yield f"`{_text(node)}` subtracts", _set(node, "op", ast.Sub())
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            yield f"`{value}` is `{value + 1}`", _set(node, "value", value + 1)
        case ast.Constant(value=bool() as value):
            yield f"`{value}` is `{not value}`", _set(node, "value", not value)
        case ast.Return(value=ast.expr() as value):
            yield f"returns nothing instead of `{_text(value)}`", _set(node, "value", ast.Constant(None))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"`{_text(node)}` without `not`", _set(node, "operand", ast.UnaryOp(ast.Not(), operand))


def _put(block: list[ast.AST], place: int, new: ast.AST) -> Rewrite:
    def put() -> None:
        block[place] = new

    return put


def _set(node: ast.AST, field: str, new: object) -> Rewrite:
    return lambda: setattr(node, field, new)


def _swap(node: ast.BinOp, left: ast.expr, right: ast.expr) -> Rewrite:
    def swap() -> None:
        node.left, node.right = right, left

    return swap


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:67]}..."


def main(words: Sequence[str]) -> int:
    every = variants()
    match words:
        case ["list", *chosen]:
            shown = variants(chosen)
        case ["draw", seed, count]:
            shown = drawn(int(seed), int(count))
        case ["try", number, *seeds]:
            found = seen(every[int(number)], *(int(it) for it in seeds))
            print(f"{every[int(number)].name}\n{'not seen' if found is None else found}")
            return found is None
        case ["test", number, test]:
            install(every[int(number)])
            return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", test]))
        case _:
            print(__doc__)
            return 2
    for it in shown:
        print(f"{every.index(it):4}  {it.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
