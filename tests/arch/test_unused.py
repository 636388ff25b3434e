"""What nothing in the package uses is not kept: a reader would take it for a rule that holds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.arch.source import CHECKOUT, package

# Only tests and people outside use these.
KEPT = {
    "check_at_rest": "a judge of states, for tests",
    "decode_reply": "the other side of encode_reply",
    "from_bytes": "the other side of to_bytes",
}
WORD = re.compile(r"\w+")


def used_names(tree: ast.Module) -> Iterator[str]:
    """Every name that is read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def exported_names(tree: ast.Module) -> Iterator[str]:
    """Strings that may be names: `__all__`, tables of verbs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and WORD.fullmatch(str(node.value)):
            yield str(node.value)


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Functions, classes and constants of a module; what is decorated is used by its decorator."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.decorator_list:
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def test_every_name_of_the_package_is_used_in_it() -> None:
    trees = [source.tree for source in package()]
    pages = ast.parse((CHECKOUT / "bin" / "docs").read_text(encoding="utf-8"))
    used = {name for tree in [*trees, pages] for name in used_names(tree)}
    used |= {name for tree in trees for name in exported_names(tree)}
    unused = [
        f"{source.name}: {name}"
        for source in package()
        for name in defined_names(source.tree)
        if name not in used and name not in KEPT and not name.startswith("__")
    ]
    assert not unused, "delete it, with the tests that only test it:\n" + "\n".join(unused)
