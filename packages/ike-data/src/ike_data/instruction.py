"""Prompt and response rows, without a template: bos if the tokenizer adds it, prompt, response, eos."""

from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property

import attrs

from ike_core.errors import ConfigError
from ike_core.examples import Example, Segment, Skip
from ike_core.interfaces import Record, Tokenizer
from ike_data.encoding import Encoded
from ike_data.tokenizers import OffsetTokenizer, offset_tokenizer


@attrs.frozen
class _Pair:
    prompt: str
    response: str

    @property
    def text(self) -> str:
        return self.prompt + self.response


@attrs.frozen
class InstructionProcessor:
    """A row with a prompt and a response to one example; the response and the eos are learned.

    Both are encoded as one text. A token that holds characters of both counts as the response's: it is what the model
    must say after the last token that is the prompt's alone. What spells a control token is read as text.
    """

    tokenizer: Tokenizer
    prompt: str = "prompt"
    """Column of what is read."""
    response: str = "response"
    """Column of what is learned."""

    def process(self, record: Record) -> Iterable[Example | Skip]:
        return self.process_block([record])[0]

    def process_block(self, records: Sequence[Record]) -> list[list[Example | Skip]]:
        """What `process` yields for each record."""
        rows = [self._pair(record) for record in records]
        encoded = iter(self._encode([row.text for row in rows if isinstance(row, _Pair)]))
        return [[self._example(next(encoded), row) if isinstance(row, _Pair) else row] for row in rows]

    def _pair(self, record: Record) -> _Pair | Skip:
        columns = (self.prompt, self.response)
        if any(column not in record for column in columns):
            found = ", ".join(map(repr, record)) or "none"
            return Skip(f"no columns {self.prompt!r} and {self.response!r}: the row has {found}")
        for column in columns:
            if not isinstance(record[column], str):
                return Skip(f"column {column!r} is not text: it holds {type(record[column]).__name__}")
        if not record[self.response].strip():
            return Skip("empty response")
        return _Pair(record[self.prompt], record[self.response])

    def _encode(self, texts: Sequence[str]) -> list[Encoded]:
        encoder = self._offsets.encoder
        return [
            encoder.encode_plain(encoded.text) if encoder.spells_control(encoded.text) else encoded
            for encoded in encoder.encode(texts)
        ]

    def _example(self, encoded: Encoded, pair: _Pair) -> Example | Skip:
        border = encoded.holder(range(len(pair.prompt), len(encoded.text)))
        if border is None:
            return Skip("the tokenizer makes nothing of the response")
        opening = self._offsets.opening
        tokens = array("i", [*opening, *encoded.ids, self._eos])
        read = len(opening) + border
        weights = array("f", [0.0]) * read + array("f", [1.0]) * (len(tokens) - read)
        return Example((Segment(tokens, weights),))

    @cached_property
    def _offsets(self) -> OffsetTokenizer:
        return offset_tokenizer(self.tokenizer, part=self)

    @cached_property
    def _eos(self) -> int:
        eos = self._offsets.vocabulary.eos
        if eos is None:
            raise ConfigError("the tokenizer has no eos token, so a response would never be taught to end")
        return eos
