"""Rows on a terminal: what is learned is green, or in brackets; neighbours in two shades, so that each token shows."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.text import Text

from ike_data.commands.pieces import Piece, visible
from ike_data.commands.views import ExampleView, PartView, RowView

LEARNED = ("bold green", "bold bright_green")
READ = ("bright_black", "default")
CONTROL = "reverse"
OPENING, CLOSING = "⟦", "⟧"
"""Around what is learned, where there is no colour to tell it."""


def legend(*, has_colours: bool) -> Text:
    """What the marks mean."""
    if not has_colours:
        return Text(f"{OPENING}learned{CLOSING}, read only")
    learned, read, control = Text("learned", LEARNED[0]), Text("read only", READ[0]), Text("control token", CONTROL)
    return Text.assemble(learned, ", ", read, ", ", control, "; two shades part neighbours")


def show(console: Console, row: RowView) -> None:
    """A row with all that was made of it."""
    for example in row.examples:
        _show_example(console, example)
    if not row.examples:
        console.print(Text(f"{visible(row.source)}  no example", "bold"))
    for remark in row.remarks:
        console.print(Text(f"  {visible(remark)}", "yellow"))
    console.print()


def _show_example(console: Console, example: ExampleView) -> None:
    console.print(Text.assemble((visible(example.source), "bold"), f"  {example.facts}"))
    for name, value in example.fields.items():
        console.print(Text(f"  {visible(f'{name} = {value!r}')}", "cyan"))
    for part in example.parts:
        if part.title:
            console.print(Text(f"── {part.title}: {part.tokens:,} tokens, {part.learned:,} learned ──", "cyan"))
        text = _text(part, has_colours=console.color_system is not None)
        console.print(text, end="" if text.plain.endswith("\n") else "\n")


def _text(part: PartView, *, has_colours: bool) -> Text:
    text = Text()
    for weight, run in groupby(part.pieces, key=lambda piece: piece.weight):
        if weight and not has_colours:
            text.append(OPENING)
        if weight not in (0.0, 1.0):
            text.append(f"{weight:g}*", "yellow")
        text.append_text(Text.assemble(*_styled(list(run))))
        if weight and not has_colours:
            text.append(CLOSING)
    return text


def _styled(run: Sequence[Piece]) -> Iterator[tuple[str, str]]:
    for number, piece in enumerate(run):
        shade = (LEARNED if piece.weight else READ)[number % 2]
        yield piece.text, f"{shade} {CONTROL}" if piece.is_control else shade
