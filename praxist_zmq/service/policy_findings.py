"""What is to be said about a contract: findings with a stable code and a place in its text.

The one table of codes is here; a code is never given another meaning, because editors and scripts
filter by it. It knows no field of the contract and reads no file.
Source: line and column as PyYAML marks them; the contract's two modes from the reference of the
original system (central refuses what is malformed, legacy takes the default).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from yaml.nodes import Node, ScalarNode

SECTION = ("compute_budget", "resource_scheduler")
_PREFIXES = (".".join(SECTION) + ".", SECTION[1] + ".")
_RAW_CHARACTERS_MAX = 80


@dataclass(frozen=True, slots=True)
class FindingCode:
    """One row of the table: a code, what it says, and what to do."""

    code: str
    title: str
    meaning: str
    mend: str


def _rows(*rows: FindingCode) -> dict[str, FindingCode]:
    table = {row.code: row for row in rows}
    assert len(table) == len(rows), "a code occurs twice"
    return table


# fmt: off
CODES: dict[str, FindingCode] = _rows(
    FindingCode("PZ100", "not readable", "The file is no YAML text in UTF-8, or is empty.",
                "Repair the text at the place told."),
    FindingCode("PZ101", "unknown key", "No such key exists here. Nothing unknown is ignored.",
                "Use the nearest valid key, or take it out."),
    FindingCode("PZ102", "wrong value", "The value has the wrong type, or is none of the choices.",
                "Write a value of the type told."),
    FindingCode("PZ103", "set twice", "The same key stands twice; YAML would drop one in silence.",
                "Keep one of the two."),
    FindingCode("PZ104", "wrong shape", "A mapping or a list was expected.",
                "Write it in the shape told."),
    FindingCode("PZ105", "undeclared profile", "`default_profile` is blank or declared nowhere.",
                "Name one of the declared profiles."),
    FindingCode("PZ106", "wrong profile name", "The name of a profile is no plain printable text.",
                "Quote it, or choose another name."),
    FindingCode("PZ107", "over a limit", "The text is larger or deeper than any contract.",
                "Take out what does not belong there."),
    FindingCode("PZ108", "legacy mode", "`up` does not serve legacy mode.",
                "Set `mode: central`."),
    FindingCode("PZ109", "wrong merge", "`<<` names no mapping, or merges merge each other.",
                "Write the keys out."),
    FindingCode("PZ120", "out of range", "The value is outside its range; the nearest bound holds.",
                "Write the bound, or a value within the range."),
    FindingCode("PZ121", "without effect", "What is written there has no effect.",
                "Take it out, or change what makes it void."),
    FindingCode("PZ122", "marks cross", "`cpu_low_pct` is not below `cpu_high_pct`.",
                "Leave a band between them."),
    FindingCode("PZ123", "nothing set", "The contract, the mode or profiles are missing.",
                "Write it, so that readers see what holds."),
    FindingCode("PZ124", "legacy tolerance", "In legacy mode what is malformed becomes a default.",
                "Repair it; in central mode it is an error."),
    FindingCode("PZ125", "min over max",
                "`min_concurrent_experiments` is over the maximum and is lowered to it.",
                "Raise the maximum or lower the minimum."),
    FindingCode("PZ126", "always reached", "A high mark of 0 is always reached.",
                "Write a mark over 0; `pressure_domains: []` is how a profile ignores pressure."),
    FindingCode("PZ127", "a share for percent", "Percent points of 1 or less look like a share.",
                "Write percent points: 45 for 0.45."),
    FindingCode("PZ128", "no such size", "The value is larger than any such thing.",
                "Write it in the unit of the key; that unit is told."),
    FindingCode("PZ130", "cannot run here", "The default profile can never run on this host.",
                "Name another default, or another host."),
    FindingCode("PZ131", "profile cannot run here", "A profile can never run on this host.",
                "Submissions under it will be refused."),
    FindingCode("PZ132", "host not known", "Whether a profile can run here could not be found out.",
                "See what the driver says, then check again."),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in the text. Lines and columns count from 1; 0 is nowhere.

    `end_column` is the first column after it, 0 when it goes on to the end of the line or further.
    """

    line: int = 0
    column: int = 0
    end_column: int = 0
    raw: str | None = None
    """The scalar as written, without quotes and cut; None for a list, a mapping or nothing."""


NOWHERE = Place()


def place_of(node: Node | None) -> Place:
    """The place of a node; NOWHERE for none."""
    if node is None or node.start_mark is None:
        return NOWHERE
    start, end = node.start_mark, node.end_mark
    ends_here = end is not None and end.line == start.line
    end_column = max(end.column, start.column + 1) + 1 if ends_here else 0
    raw = str(node.value)[:_RAW_CHARACTERS_MAX] if isinstance(node, ScalarNode) else None
    return Place(start.line + 1, start.column + 1, end_column, raw)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to say about a contract, and where."""

    code: str
    place: Place
    key: str
    """The key's path, as `compute_budget.resource_scheduler.profiles.gpu_work`; may be empty."""
    message: str
    help: str | None = None

    @property
    def line(self) -> int:
        """Its line, from 1; 0 is nowhere."""
        return self.place.line

    @property
    def column(self) -> int:
        """Its column, from 1; 0 is nowhere."""
        return self.place.column

    def text(self) -> str:
        """In one line: place, code, key, message, help."""
        at = f"{self.line}:{self.column}: " if self.line else ""
        key = f"{self.key}: " if self.key else ""
        advice = f"; {self.help}" if self.help else ""
        return f"{at}{self.code} {key}{self.message}{advice}"

    def order(self) -> tuple[int, int, str]:
        """What findings are sorted by: their place in the text."""
        return (self.line, self.column, self.message)


def meant(name: str) -> str:
    """The help that names what was probably meant."""
    return f"did you mean `{name}`?"


def short_key(key: str) -> str:
    """A key's path inside the contract: `profiles.gpu_work.gpu_count`."""
    for prefix in _PREFIXES:
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return key


@dataclass(slots=True)
class Findings:
    """Errors and warnings of one contract, as they are found, and where its values stand."""

    tolerant: bool = False
    """Legacy mode: what is malformed is a warning."""
    errors: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    """By the key's path inside the contract: where its value is written."""

    def error(
        self, code: str, node: Node | None, key: str, message: str, help: str | None = None
    ) -> None:
        """Note what makes the contract invalid in every mode."""
        self.errors.append(Finding(code, place_of(node), key, message, help))

    def mistyped(self, key: str) -> bool:
        """Whether an unknown key beside it was probably meant to be `key`, and that is told."""
        parent, _, name = key.rpartition(".")
        return any(
            finding.help == meant(name) and finding.key.rpartition(".")[0] == parent
            for finding in (*self.errors, *self.warnings)
        )

    def wrong(
        self,
        code: str,
        node: Node | None,
        key: str,
        message: str,
        help: str | None = None,
        *,
        instead: str = "the default will be used",
    ) -> None:
        """Note what is malformed: an error; in legacy mode a warning that says what is taken."""
        if self.tolerant:
            self.warn("PZ124", node, key, f"{message}; in legacy mode {instead}", help)
        else:
            self.error(code, node, key, message, help)

    def warn(
        self, code: str, node: Node | None, key: str, message: str, help: str | None = None
    ) -> None:
        """Note what is put right, or has no effect."""
        self.warnings.append(Finding(code, place_of(node), key, message, help))
