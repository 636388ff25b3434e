"""Sizes, names, and constructs that have no place here."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator

from tests.arch.source import CHECKOUT, TESTS, Source, calls, package, sources

FILE_LINES_MAX = 450  # aim at 400
FUNCTION_LINES_MAX = 80  # aim at 60
TOP_LEVEL = frozenset(
    {"pyproject.toml", "README.md", "praxist_zmq", "tests", "conf", "bin", "docs"}
)
VAGUE_MODULES = frozenset({"utils", "util", "helpers", "helper", "common", "misc", "manager"})
BROAD = frozenset({"Exception", "BaseException"})


def test_files_stay_small() -> None:
    found = [f"{s.name}: {s.lines} lines" for s in package() if s.lines > FILE_LINES_MAX]
    assert not found, f"over {FILE_LINES_MAX} lines; split by meaning:\n" + "\n".join(found)


def test_functions_stay_small() -> None:
    found = []
    for source in package():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > FUNCTION_LINES_MAX:
                    found.append(f"{source.at(node)}: {node.name} has {size} lines")
    assert not found, f"over {FUNCTION_LINES_MAX} lines:\n" + "\n".join(found)


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for source in package():
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(source.at(node))
    found = [f"{name}: {', '.join(at)}" for name, at in places.items() if len(at) > 1]
    assert not found, "one name, one class:\n" + "\n".join(found)


def _names_listed(source: Source) -> Iterator[tuple[frozenset[str], str]]:
    """The strings of each constant of a module, with its place."""
    for node in source.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            strings = frozenset(
                each.value
                for each in ast.walk(node.value)
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )
            if len(strings) >= 4:
                yield strings, source.at(node)


def test_a_list_of_names_has_one_home() -> None:
    places: dict[frozenset[str], list[str]] = defaultdict(list)
    for source in package():
        for strings, place in _names_listed(source):
            places[strings].append(place)
    copies = [" = ".join(found) for found in places.values() if len(found) > 1]
    assert not copies, "import it:\n" + "\n".join(copies)


def test_an_address_is_made_in_one_place() -> None:
    """Where its length is checked."""
    makers = {
        source.name
        for source in package()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.JoinedStr) and ast.unparse(node)[2:].startswith("ipc://")
    }
    assert makers == {"praxist_zmq/transport/context.py"}


def test_an_alias_of_a_type_has_one_home() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for source in package():
        for node in source.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
                homes[ast.unparse(node)].append(source.at(node))
    copies = [f"{alias}: {places}" for alias, places in homes.items() if len(places) > 1]
    assert not copies, "import it:\n" + "\n".join(copies)


def test_no_vague_module_names() -> None:
    found = [source.name for source in package() if VAGUE_MODULES & set(source.parts)]
    assert not found, f"name the module after what it does: {found}"


def test_modules_and_public_names_have_docstrings() -> None:
    found = []
    for source in package():
        if not ast.get_docstring(source.tree):
            found.append(f"{source.name}: module")
        for node in source.tree.body:
            named = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if named and not node.name.startswith("_") and not ast.get_docstring(node):
                found.append(f"{source.at(node)}: {node.name}")
    assert not found, "without a docstring:\n" + "\n".join(found)


def _names(expression: ast.expr | None) -> set[str]:
    items = expression.elts if isinstance(expression, ast.Tuple) else [expression]
    return {item.id for item in items if isinstance(item, ast.Name)}


def _does_nothing(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(statement, ast.Pass | ast.Continue)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in body
    )


def test_no_exception_is_swallowed() -> None:
    found = []
    for source in (*package(), *sources(TESTS)):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ExceptHandler):
                if node.type is None:
                    found.append(f"{source.at(node)}: bare except")
                elif _names(node.type) & BROAD and _does_nothing(node.body):
                    found.append(f"{source.at(node)}: swallows every exception")
        for node, name in calls(source):
            if name.split(".")[-1] == "suppress" and any(_names(a) & BROAD for a in node.args):
                found.append(f"{source.at(node)}: suppresses every exception")
    assert not found, "\n".join(found)


def test_nothing_is_left_for_later() -> None:
    marker = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    found = []
    for source in (*package(), *sources(TESTS)):
        for number, line in enumerate(source.path.read_text("utf-8").splitlines(), 1):
            if marker.search(line):
                found.append(f"{source.name}:{number}: {line.strip()}")
    assert not found, "\n".join(found)


def test_the_top_level_stays_as_designed() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=True, timeout=60
    )
    top = {name.split("/")[0] for name in listed.stdout.decode().split("\0") if name}
    assert {name for name in top if not name.startswith(".")} - TOP_LEVEL == set()
