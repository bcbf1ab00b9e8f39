"""Which of the known shapes a row has. A row that could be of two is refused, never guessed."""

from collections.abc import Mapping, Sequence

import attrs

from ike_core.interfaces import Record
from ike_data.row_columns import names, renamed
from ike_data.row_error import RowError
from ike_data.transcripts import is_transcript

AUTO = "auto"


@attrs.frozen
class Shape:
    """What a row of a shape has."""

    name: str
    columns: tuple[tuple[str, ...], ...]
    """One of each of these."""
    transcript: tuple[str, ...] = ()
    """Of these columns, the first that the row has must start like a transcript."""
    text: tuple[str, ...] = ()
    """And of these it must not."""

    def fits(self, record: Record) -> bool:
        """Whether a row can be of this shape."""
        for one_of in self.columns:
            if record.keys().isdisjoint(one_of):
                return False
        if self.transcript and not is_transcript(_first(record, self.transcript)):
            return False
        return not (self.text and is_transcript(_first(record, self.text)))

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(map('/'.join, self.columns))})"


CONVERSATIONS: Mapping[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("messages", (("messages",),)),
        Shape("sharegpt", (("conversations",),)),
        Shape("alpaca", (("instruction",), ("output",))),
        Shape("prompt_completion", (("prompt",), ("completion", "response"))),
        Shape("question_answer", (("question",), ("answer",))),
        Shape("transcript", (("transcript", "text"),), transcript=("transcript", "text")),
    )
}


def shape_of(record: Record, said: str, shapes: Mapping[str, Shape]) -> Shape:
    """The shape of a row: the one that was `said`, or with 'auto' the only one it fits. Raises RowError."""
    if said != AUTO:
        shape = shapes[said]
        if not shape.fits(record):
            raise RowError(f"not of shape {shape}: the row has {names(record)}")
        return shape
    fitting = [shape for shape in shapes.values() if shape.fits(record)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        which = " and ".join(shape.name for shape in fitting)
        raise RowError(f"more than one shape: {which}; say which by the processor's `shape`")
    known = ", ".join(map(str, shapes.values()))
    raise RowError(f"no known shape: the row has {names(record)}; known are {known}")


def name_of(record: Record, columns: Mapping[str, str], said: str, shapes: Mapping[str, Shape]) -> str:
    """The name of a row's shape, its columns renamed; '': it has none, or more than one."""
    try:
        return shape_of(renamed(record, columns), said, shapes).name
    except RowError:
        return ""


def _first(record: Record, columns: Sequence[str]) -> object:
    return next((record[name] for name in columns if name in record), None)
