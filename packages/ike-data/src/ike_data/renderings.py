"""Conversations as one template renders them; what differs only in what is said is worked out once."""

from collections.abc import Sequence

import attrs
from xxhash import xxh3_128_digest

from ike_data.marks import Marker
from ike_data.messages import Message, Talk
from ike_data.skeleton import Skeleton
from ike_data.spans import Rendering, TurnFinder

KEPT = 4096
"""Structures: roles, white space around texts, tools."""
MISSES = 16
"""Conversations of one structure that are tried: where a template asks something of the texts, each answer has its own
skeleton."""


@attrs.define
class _Structure:
    """Conversations alike in all but what is said."""

    skeletons: list[Skeleton] = attrs.field(factory=list)
    misses: int = 0
    """Conversations that no skeleton fitted."""


@attrs.frozen(eq=False)
class Renderings:
    """Finds turns, as a TurnFinder does."""

    finder: TurnFinder
    _structures: dict[bytes, _Structure] = attrs.field(factory=dict, init=False)

    def find(self, talk: Talk, learned: Sequence[int], *, allows_special: bool = False) -> Rendering:
        """See `TurnFinder.find`. Raises RowError."""
        marker = Marker(is_hollow=True)
        hollow = marker.messages(talk.messages)
        texts = [said.core for said in marker.said]
        if any(map(self.finder.control.search, texts)):
            return self.finder.find(talk, learned, allows_special=allows_special)
        structure = self._structure(repr((hollow, talk.tools, learned, allows_special)))
        for skeleton in structure.skeletons:
            if (rendering := skeleton.rendering(texts)) is not None:
                if skeleton.is_due:
                    truth = self.finder.find(talk, learned, allows_special=allows_special)
                    assert rendering == truth, f"a skeleton renders {talk} otherwise than the chat template"
                return rendering
        rendering = self.finder.find(talk, learned, allows_special=allows_special)
        structure.misses += 1
        if 1 < structure.misses <= MISSES:  # of the first: most structures that are met once are met only once
            self._learn(structure, hollow, talk, texts, rendering)
        return rendering

    def _structure(self, outline: str) -> _Structure:
        key = xxh3_128_digest(outline.encode(errors="surrogatepass"))
        if key not in self._structures:
            if len(self._structures) >= KEPT:
                self._structures.clear()
            self._structures[key] = _Structure()
        return self._structures[key]

    def _learn(
        self, structure: _Structure, hollow: Sequence[Message], talk: Talk, texts: Sequence[str], rendering: Rendering
    ) -> None:
        traced = self.finder.template.traced(hollow, talk.tools, texts)
        skeleton = traced and Skeleton.of(traced, rendering, texts)
        if skeleton:
            structure.skeletons.append(skeleton)
