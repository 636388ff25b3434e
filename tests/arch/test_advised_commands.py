"""Every command line that our texts advise is one that the command line takes: verb and options.

`tests/e2e/test_advice.py` runs them in the states that print them.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator

import click

from praxist_zmq.cli.main import command

from .source import package

_ADVISED = re.compile(r"praxist-zmq (?![.(])([^`\n]+?)(?=`|$|   \||   \()")
_STANDS_FOR = {
    "JOB": "j-1", "VERB": "queue", "KEY": "mode", "FILE": "file", "DIR": "dir", "TOPIC": "units",
    "CMD": "true", "TAG": "t", "NAME": "default",
    "gpus=N,memory=GIB": "gpus=2,memory=80", "N": "3",
}  # fmt: skip
_FILLED = "j-1"
"""What stands for a value that the text gets when it is printed."""


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every string of a module that is no docstring, with a word in the place of what it takes."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(_part(part) for part in node.values)
        elif isinstance(node, ast.Constant) and id(node) not in docstrings | inside:
            yield node.lineno, str(node.value)


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    named = part.value if isinstance(part, ast.FormattedValue) else part
    return "praxist-zmq" if ast.unparse(named) == "PROGRAM" else _FILLED


def _words(advised: str) -> list[str]:
    """The words of an advised command, what people fill in filled in."""
    words = shlex.split(advised.rstrip(" .,;:)"))
    return [_STANDS_FOR.get(word, word) for word in words]


def _advised() -> Iterator[tuple[str, list[str]]]:
    for source in package():
        for line, text in _texts(source.tree):
            if "`praxist-zmq " in text or "next  praxist-zmq " in text:
                for match in _ADVISED.finditer(text):
                    yield f"{source.name}:{line}: {match.group()}", _words(match.group(1))


def _refusal(words: list[str]) -> str | None:
    """Why the command line does not take these words; None when it does. Nothing is run."""
    try:
        context = command.make_context("praxist-zmq", list(words))
        while isinstance(context.command, click.Group):
            name, found, rest = context.command.resolve_command(
                context, [*context._protected_args, *context.args]
            )
            assert found is not None
            context = found.make_context(name, rest, parent=context)
    except click.exceptions.Exit:
        return None
    except click.UsageError as error:
        missing = isinstance(error, click.MissingParameter)
        return None if missing else error.format_message()
    return None


def test_every_advised_command_is_one() -> None:
    advised = list(_advised())
    assert len(advised) > 30, "the search for advice finds nothing any more"
    wrong = [f"{place}: {why}" for place, words in advised if (why := _refusal(words))]
    assert not wrong, "\n".join(wrong)
