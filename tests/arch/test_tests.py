"""Rules for the tests themselves: they assert, never sleep, and say why they skip."""

from __future__ import annotations

import ast

from tests.arch.source import TESTS, Source, calls, sources

MAY_SLEEP = {
    "tests/support/wait.py",
    "tests/support/evaluator.py",  # an experiment; being busy is its work
}
CHECKING_CALLS = ("campaign", "pytest.raises", "pytest.fail", "run_state_machine_as_test")


def test_files() -> list[Source]:
    """Files that pytest collects."""
    return [source for source in sources(TESTS) if source.path.name.startswith("test_")]


test_files.__test__ = False  # type: ignore[attr-defined]


def test_no_test_sleeps() -> None:
    found = [
        f"{source.at(node)}: {name}"
        for source in sources(TESTS)
        if source.name not in MAY_SLEEP
        for node, name in calls(source)
        if name.split(".")[-1] in ("sleep", "usleep")
    ]
    assert not found, "wait for a condition with tests/support/wait.py:\n" + "\n".join(found)


def _checks(source: Source) -> bool:
    if any(isinstance(node, ast.Assert) for node in ast.walk(source.tree)):
        return True
    return any(
        name in CHECKING_CALLS or name.split(".")[-1].startswith(("assert_", "check_"))
        for _, name in calls(source)
    )


def test_every_test_file_asserts_something() -> None:
    found = [source.name for source in test_files() if not _checks(source)]
    assert not found, f"nothing is checked in {found}"


def test_every_skip_says_why() -> None:
    found = []
    for source in sources(TESTS):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.skip":
                found += _bare_mark(source, node)
        for node, name in calls(source):
            reason = [k.value for k in node.keywords if k.arg == "reason"]
            if name in ("pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail"):
                given = bool(reason) or (name == "pytest.mark.skip" and bool(node.args))
            elif name in ("pytest.skip", "pytest.xfail"):
                given = bool(reason or node.args)
            elif name == "pytest.importorskip":
                given = bool(reason)
            else:
                continue
            if not given:
                found.append(f"{source.at(node)}: {name} without a reason")
    assert not found, "\n".join(found)


def _bare_mark(source: Source, mark: ast.Attribute) -> list[str]:
    """A `pytest.mark.skip` that is not called has no reason."""
    called = [node.func for node, _ in calls(source)]
    return [] if mark in called else [f"{source.at(mark)}: pytest.mark.skip without a reason"]
