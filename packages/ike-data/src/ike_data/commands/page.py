"""Rows as one self-contained HTML page: no script, nothing fetched, every character of the data escaped."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template

from ike_core.errors import DataError
from ike_data.commands.pieces import Piece, visible
from ike_data.commands.views import ExampleView, PartView, RowView

_PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --quiet: color-mix(in srgb, CanvasText 65%, Canvas);
  --warning: light-dark(#8a5a00, #e3b341); }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { font-size: 1rem; margin: 2rem 0 .3rem; }
h2 small, h3 { font-weight: normal; color: var(--quiet); }
h3 { font-size: .85rem; margin: .6rem 0 .2rem; border-top: 1px dashed; }
pre { font: 13px/1.7 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; }
pre span { border-right: 1px solid color-mix(in srgb, currentColor 25%, transparent); color: var(--quiet); }
pre span.learned { color: CanvasText; background: color-mix(in srgb, #2da44e 35%, Canvas); }
pre span.control { border: 1px solid; border-radius: 3px; padding: 0 1px 2px; margin: 0 1px; }
pre sup { color: var(--warning); }
.remark { color: var(--warning); margin: .2rem 0; }
</style>
</head>
<body>
<h1>$title</h1>
<pre><span class="learned">learned</span> <span>read only</span> <span class="control">control token</span></pre>
$rows
</body>
</html>
""")


def write_page(path: Path, rows: Sequence[RowView]) -> None:
    """DataError where it can't be written."""
    title = "1 row as the model sees it" if len(rows) == 1 else f"{len(rows)} rows as the model sees them"
    page = _PAGE.substitute(title=escape(title), rows="\n".join(line for row in rows for line in _row(row)))
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path} can't be written: {error.strerror}") from error


def _row(row: RowView) -> Iterator[str]:
    for example in row.examples:
        yield from _example(example)
    if not row.examples:
        yield _heading(row.source, "no example")
    yield from (f'<p class="remark">{escape(visible(remark))}</p>' for remark in row.remarks)


def _example(example: ExampleView) -> Iterator[str]:
    yield _heading(example.source, example.facts)
    for name, value in example.fields.items():
        yield f"<p>{escape(visible(f'{name} = {value!r}'))}</p>"
    for part in example.parts:
        if part.title:
            yield f"<h3>{escape(part.title)}: {part.tokens:,} tokens, {part.learned:,} learned</h3>"
        yield f"<pre>{''.join(_pieces(part))}</pre>"


def _heading(source: str, facts: str) -> str:
    return f"<h2>{escape(visible(source))} <small>{escape(facts)}</small></h2>"


def _pieces(part: PartView) -> Iterable[str]:
    weight = 0.0
    for piece in part.pieces:
        if piece.weight != weight and piece.weight not in (0.0, 1.0):
            yield f"<sup>{piece.weight:g}&times;</sup>"
        weight = piece.weight
        yield _piece(piece)


def _piece(piece: Piece) -> str:
    classes = " ".join(name for name, is_so in (("learned", piece.weight), ("control", piece.is_control)) if is_so)
    ids = " ".join(map(str, piece.tokens))
    told = f"token {ids}, weight {piece.weight:g}"
    return f'<span{f" class={classes!r}" if classes else ""} title="{told}">{escape(piece.text)}</span>'
