"""`help`: a verb's page, or a topic that belongs to no single verb."""

from __future__ import annotations

import difflib

import click

from . import output
from .settings import global_options
from .topics import TOPICS
from .words import PROGRAM, cut, safe


@click.command("help")
@click.argument("topic", required=False)
@global_options()
@click.pass_context
def command(ctx: click.Context, topic: str | None) -> int:
    """Explain a verb or a topic.

    \b
    praxist-zmq help exit-codes
    praxist-zmq help launch
    """
    root = ctx.find_root()
    if topic is None:
        output.answer(root.get_help(), "", "Topics:")
        output.answer(*(f"  {name:<12} {text.summary}" for name, text in TOPICS.items()))
        return 0
    if topic in TOPICS:
        output.answer(*TOPICS[topic].lines())
        return 0
    group = root.command
    assert isinstance(group, click.Group)
    verb = group.get_command(root, topic)
    if verb is None:
        known = [*TOPICS, *group.list_commands(root)]
        close = difflib.get_close_matches(topic, known, n=1)
        hint = f"; did you mean `{close[0]}`?" if close else f"; see `{PROGRAM} help`"
        raise click.UsageError(f"no such topic `{cut(safe(topic), 40)}`{hint}", ctx)
    with click.Context(verb, info_name=topic, parent=root) as page:
        output.answer(verb.get_help(page))
    return 0
