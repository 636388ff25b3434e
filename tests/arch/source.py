"""The source of the package and the tests as syntax trees, for the tests in this folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "praxist_zmq"
TESTS = CHECKOUT / "tests"


@dataclass(frozen=True, slots=True)
class Source:
    """One parsed file."""

    path: Path
    tree: ast.Module
    lines: int

    @property
    def name(self) -> str:
        """Its path in the checkout."""
        return str(self.path.relative_to(CHECKOUT))

    @property
    def parts(self) -> tuple[str, ...]:
        """Its module path below the package: `("core", "queue")`."""
        return self.path.relative_to(PACKAGE).with_suffix("").parts

    @property
    def unit(self) -> str:
        """What the layer table names: the folder, or the module at the top of the package."""
        return self.parts[0]

    def at(self, node: ast.AST) -> str:
        """A place for messages."""
        return f"{self.name}:{getattr(node, 'lineno', 1)}"


@cache
def sources(folder: Path) -> tuple[Source, ...]:
    """All Python files below a folder."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Source(path, ast.parse(text, str(path)), text.count("\n")))
    return tuple(found)


def package() -> tuple[Source, ...]:
    """The package's files."""
    return sources(PACKAGE)


def in_folder(*units: str) -> list[Source]:
    """The package's files in these folders or top modules."""
    return [source for source in package() if source.unit in units]


def imports(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Every import of a package file, at any depth, as absolute dotted names.

    `from X import Y` gives `X.Y`: Y may be a module. The reader cuts what it does not need.
    """
    here = ("praxist_zmq", *source.parts)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) - node.level]) if node.level else ""
            stem = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                yield node, f"{stem}.{alias.name}"


def called(node: ast.Call) -> str:
    """The dotted name of what is called, as far as it is made of names: `os.fsync`, `open`."""
    parts: list[str] = []
    target: ast.expr = node.func
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    parts.append(target.id if isinstance(target, ast.Name) else "?")
    return ".".join(reversed(parts))


def calls(source: Source) -> Iterator[tuple[ast.Call, str]]:
    """Every call with its dotted name."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            yield node, called(node)
