"""One value of a contract: from a YAML scalar to a strict type, or a finding that says why not.

Integers are written in decimal, as a number or as text; a boolean is never a number and a number
never a boolean; numbers are finite. Out-of-range numbers become the nearest bound with a warning
that says so. Values are never echoed beyond a few characters.
Source: the parsing rules in the reference of the original system; public faults of configuration
files (a boolean read as a number of seconds).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from yaml.nodes import MappingNode, Node, ScalarNode

from .policy_document import nearest
from .policy_findings import Findings

_TAG = "tag:yaml.org,2002:"
TEXT_TAG = f"{_TAG}str"
_DIGITS_MAX = 15
_DECIMAL_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_TEXT_INT = re.compile(r"[-+]?[0-9]+")
_DECIMAL_FLOAT = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
TRUE_WORDS = ("1", "true", "yes", "on")
FALSE_WORDS = ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Size:
    """The most that a key may say, and the smaller unit that is soon written in its place."""

    most: float
    unit: str
    factor: float
    smaller: str


SIZES = {
    "gpu_memory_gb": Size(1_024.0, "GiB", 1_024, "MiB"),
    "adjustment_interval_seconds": Size(3_600.0, "seconds", 1_000, "milliseconds"),
}
_BOOLEAN_WORDS = ("true", "false", "yes", "no")


def kind_of(node: Node) -> str:
    """What a node is, for people: `text`, `true or false`, `a number`, `a list`, ..."""
    if isinstance(node, MappingNode):
        return "a mapping"
    if not isinstance(node, ScalarNode):
        return "a list"
    name = node.tag.removeprefix(_TAG)
    names = {"null": "nothing", "bool": "true or false", "int": "a number", "float": "a number"}
    return names.get(name, "text" if name == "str" else f"a value of type {name[:40]}")


def _shown(node: Node) -> str:
    """`got 'yess'`, `got a list`."""
    if isinstance(node, ScalarNode) and node.tag != f"{_TAG}null":
        quote = "" if _is(node, "bool", "int", "float") else '"'
        return f"got {quote}{node.value[:40]}{quote}"
    return f"got {kind_of(node)}"


def _is(node: Node, *names: str) -> bool:
    return isinstance(node, ScalarNode) and node.tag in {_TAG + name for name in names}


def bool_value(node: Node, key: str, findings: Findings) -> bool | None:
    """A boolean, or one of the words for it. A bare 0 or 1 is a number, so it is refused."""
    if isinstance(node, ScalarNode) and _is(node, "bool", "str"):
        word = node.value.strip().lower()
        if word in TRUE_WORDS:
            return True
        if word in FALSE_WORDS:
            return False
    word = node.value if isinstance(node, ScalarNode) and _is(node, "str") else ""
    help = nearest(word, _BOOLEAN_WORDS) or "write true or false"
    findings.wrong("PZ102", node, key, f"must be a boolean (true or false), {_shown(node)}", help)
    return None


def int_value(node: Node, key: str, findings: Findings) -> int | None:
    """An integer in decimal, as a number or as text."""
    text = node.value.strip() if isinstance(node, ScalarNode) else ""
    pattern = _TEXT_INT if _is(node, "str") else _DECIMAL_INT
    if _is(node, "int", "str") and pattern.fullmatch(text):
        if len(text.lstrip("+-0")) > _DIGITS_MAX:
            findings.wrong(
                "PZ102", node, key, f"must be an integer of at most {_DIGITS_MAX} digits"
            )
            return None
        return int(text)
    help = None
    if _is(node, "int"):
        help = "write it in plain decimal digits: YAML reads this notation as another number"
    findings.wrong("PZ102", node, key, f"must be an integer, {_shown(node)}", help)
    return None


def float_value(node: Node, key: str, findings: Findings, help: str | None = None) -> float | None:
    """A finite number in decimal, as a number or as text. `help` is told when it is none."""
    text = node.value.strip() if isinstance(node, ScalarNode) else ""
    octal = _is(node, "int") and not _DECIMAL_INT.fullmatch(text)
    if _is(node, "int", "float", "str") and len(text) <= 400 and not octal:
        number = float(text) if _DECIMAL_FLOAT.fullmatch(text) else math.nan
        if math.isfinite(number):
            return number
    findings.wrong("PZ102", node, key, f"must be a finite number, {_shown(node)}", help)
    return None


def is_percent(value: float, node: Node, key: str, findings: Findings) -> bool:
    """Whether percent points were written. A share of one, as in 0.95, is refused: as percent it
    would hold everything back for ever, and nobody would see why."""
    if not 0 < value <= 1:
        return True
    message = f"{value:g} looks like a share of one; percent points are wanted"
    findings.wrong("PZ127", node, key, message, f"write {100 * value:g} for the share {value:g}")
    return False


def is_sane(value: float, name: str, node: Node, key: str, findings: Findings) -> bool:
    """Whether a size is one that there is, in the unit of its key."""
    size = SIZES.get(name)
    if size is None or value <= size.most:
        return True
    message = f"must be at most {size.most:g} {size.unit}, got {value:.15g}"
    meant = f"write {value / size.factor:g} for {value:.15g} {size.smaller}"
    findings.wrong("PZ128", node, key, message, meant)
    return False


def bounded(
    value: float, low: float, high: float, node: Node, key: str, findings: Findings
) -> float:
    """`value` within [low, high]; a change is a warning that says what it became."""
    if value < low:
        findings.warn(
            "PZ120", node, key, f"{value:.15g} is below {low:.15g}; {low:.15g} will be used"
        )
        return low
    if value > high:
        findings.warn(
            "PZ120", node, key, f"{value:.15g} is above {high:.15g}; {high:.15g} will be used"
        )
        return high
    return value
