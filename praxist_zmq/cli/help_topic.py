"""`help`: a verb's page, or a topic that belongs to no single verb."""

from __future__ import annotations

import click

from . import output
from .advice import nearest
from .documents import head
from .lazy import ENDING, MEANT
from .settings import global_options, settings_of
from .topics import TOPICS
from .words import PROGRAM, cut, safe


@click.command("help")
@click.argument("topic", required=False, nargs=-1, metavar="[VERB [VERB]|TOPIC]")
@global_options()
@click.pass_context
def command(ctx: click.Context, topic: tuple[str, ...]) -> int:
    """Explain a verb or a topic.

    \b
    praxist-zmq help exit-codes
    praxist-zmq help ledger verify
    """
    lines = help_lines(ctx, topic)
    if settings_of(ctx).is_json:
        output.document({**head("help"), "topic": " ".join(topic) or None, "lines": lines})
    else:
        output.answer(*lines)
    return 0


def help_lines(ctx: click.Context, words: tuple[str, ...]) -> list[str]:
    """The lines of a topic, of a verb's page, or of the overview. A usage error for neither."""
    root = ctx.find_root()
    if not words:
        topics = [f"  {name:<12} {text.summary}" for name, text in TOPICS.items()]
        return [*root.get_help().split("\n"), "", "Topics:", *topics]
    if len(words) == 1 and words[0] in TOPICS:
        return TOPICS[words[0]].lines()
    at = root
    for depth, word in enumerate(words):
        group = at.command
        found = group.get_command(at, word) if isinstance(group, click.Group) else None
        if found is None:
            raise _no_topic(ctx, at, words[: depth + 1])
        at = click.Context(found, info_name=word, parent=at)
    return at.get_help().split("\n")


def _no_topic(ctx: click.Context, at: click.Context, words: tuple[str, ...]) -> click.UsageError:
    group = at.command
    known = group.list_commands(at) if isinstance(group, click.Group) else []
    known = [name for name in known if name not in ENDING]
    if len(words) == 1:
        known = [*TOPICS, *known]
    if words == ("topics",):
        return click.UsageError(f"no such topic `topics`; `{PROGRAM} help` lists them", ctx)
    close = MEANT.get(words[0]) if len(words) == 1 else None
    close = close or nearest(words[-1], known)
    before = " ".join(words[:-1])
    hint = (
        f"; did you mean `{f'{before} {close}'.strip()}`?" if close else f"; see `{PROGRAM} help`"
    )
    return click.UsageError(f"no such topic `{cut(safe(' '.join(words)), 40)}`{hint}", ctx)
