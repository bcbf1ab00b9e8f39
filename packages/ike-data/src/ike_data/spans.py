"""Which characters of a rendered conversation are a turn's: what the template renders after the header that a
generation starts from (with others than the assistant: after what precedes any text of theirs), up to and with its
end-of-turn.

The rendering is taken as it is, and nothing is assumed of the template. Where texts lie is known from marks
(`ike_data.marks`); what stands between them is the template's. Where in there a turn starts and ends is found by
rendering parts of the conversation:

- the start: the messages before the turn, with the generation prompt. What that adds behind the last text is what a
  model has read when it starts to answer; the turn's rendering must begin with it.
- the end: the messages up to the turn, and the same with a user's message behind. What both have behind the turn's
  last text belongs to the turn; its first control tokens end it.

A template that rewrites earlier turns (drops their reasoning, say) is no exception: only what stands around the turn
is compared, never a whole prefix. What can't be placed so is refused, with the reason.
"""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import takewhile

import attrs

from ike_data.conversation import Conversation, after
from ike_data.encoding import Span
from ike_data.marks import MarkedText
from ike_data.messages import ASSISTANT, Message, Talk
from ike_data.row_error import RowError
from ike_data.templates import ChatTemplate
from ike_data.turns import Turn, find_turns, generated, own_spans

DECISIONS_KEPT = 4096
"""Texts between texts, with where turns start or end in them: a template renders few different ones."""


@attrs.frozen
class Rendering:
    """A conversation as the template renders it."""

    text: str
    turns: tuple[Span, ...]
    """Those that were asked for."""
    own: tuple[Span, ...] | None
    """Where the template spells control tokens, if the row's texts spell some too; None: all are the template's, or
    it was not asked."""
    spells: bool
    """Whether the row's own texts spell control tokens."""


@attrs.frozen(eq=False)
class TurnFinder:
    """Finds turns in what one template renders."""

    template: ChatTemplate
    control: re.Pattern[str]
    """Matches the control tokens: the first behind a turn end it."""
    _decisions: dict[Hashable, int] = attrs.field(factory=dict, init=False)

    def find(self, talk: Talk, learned: Sequence[int], *, allows_special: bool = False) -> Rendering:
        """With the turns at the places `learned`. Raises RowError where one can't be placed exactly.

        `allows_special`: whose a control token is need not be known.
        """
        text = self.template.render(list(talk.messages), talk.tools)  # templates add lists to it
        conversation = Conversation.of(self.template, talk.messages, talk.tools)
        marked = conversation.whole()
        if marked.text != text:
            raise RowError("can't tell whose text is whose: the chat template renders the marked row otherwise")
        claims = self._claims(marked, talk.messages)
        turns = find_turns(marked, conversation.marker, talk.messages, learned)
        spans = [self._span(conversation, marked, turn, claims.get(turn.message)) for turn in turns]
        marker = conversation.marker
        if allows_special:
            spells = any(map(self.control.search, [*marker.unmarked, *(said.text for said in marker.said)]))
            return Rendering(text, tuple(spans), None, spells=spells)
        own = own_spans(marked, marker, self.control)
        return Rendering(text, tuple(spans), own, spells=own is not None)

    def _claims(self, marked: MarkedText, messages: Sequence[Message]) -> Mapping[int, Span]:
        """What `{% generation %}` says of each message of the assistant; nothing where it does not say one each."""
        claims = generated(marked)
        answers = [place for place, message in enumerate(messages) if message["role"] == ASSISTANT]
        return dict(zip(answers, claims, strict=True)) if len(claims) == len(answers) else {}

    def _span(self, conversation: Conversation, marked: MarkedText, turn: Turn, claim: Span | None) -> Span:
        """Where the turn lies; what `{% generation %}` claims, if that is true of it."""
        derived: Span | None = None
        try:
            derived = self._derived(conversation, marked, turn)
        except RowError:
            if claim is None:
                raise
        if claim is not None and self._is_true(claim, marked.text, turn, derived):
            return claim
        if derived is None:
            raise RowError("can't place a turn: and what the chat template marks as generated is not the turn")
        return derived

    def _is_true(self, claim: Span, text: str, turn: Turn, derived: Span | None) -> bool:
        """The claim holds the turn's texts and end-of-turn, none of its header, nothing of anyone else."""
        start, end = claim
        if not (turn.before_position <= start <= turn.first.position and turn.last.position <= end <= turn.limit):
            return False
        ending = _first_run(self.control, text[turn.last.position : end])
        if ending is None or text[turn.last.position + ending : end].strip():
            return False
        if derived is not None:
            return start >= derived[0]
        return self.control.search(text, start, turn.first.position) is None

    def _derived(self, conversation: Conversation, marked: MarkedText, turn: Turn) -> Span:
        lead = marked.text[turn.before_position : turn.first.position]
        trail = marked.text[turn.last.position : turn.limit]
        start = self._decided(
            (
                "start",
                turn.role,
                lead,
                conversation.marker.said[turn.first.text].indent,
                turn.speaker_before,
                turn.first.opens,
            ),
            lambda: _start(conversation, turn, lead),
        )
        end = self._decided(
            ("end", turn.role, trail, turn.speaker_after, turn.calls), lambda: self._end(conversation, turn, trail)
        )
        return turn.before_position + start, turn.last.position + end

    def _decided(self, key: Hashable, decide: Callable[[], int]) -> int:
        """The same text between the same speakers is decided once."""
        if key not in self._decisions:
            if len(self._decisions) >= DECISIONS_KEPT:
                self._decisions.clear()
            self._decisions[key] = decide()
        return self._decisions[key]

    def _end(self, conversation: Conversation, turn: Turn, trail: str) -> int:
        """Where in what follows the turn's last text its end-of-turn ends."""
        alone = after(conversation.part(turn.message + 1), turn.last)
        if alone is None:
            raise RowError("can't place a turn's end: the chat template does not render the turn as the last one")
        followed: str | None = trail
        if turn.speaker_after is None:
            reply = conversation.part(turn.message + 1, speaker="user")
            followed = after(reply, turn.last, until=len(conversation.marker.said))
        common = alone if followed is None else _common(alone, followed)
        end = self._ending(conversation, turn, common)
        if end is None and turn.speaker_after is None:
            end = self._ending(conversation, turn, alone)
        if end is None:
            raise RowError(f"no end-of-turn: behind the turn's text the chat template has {trail[:40]!r}")
        return end

    def _ending(self, conversation: Conversation, turn: Turn, trail: str) -> int | None:
        """Behind a call of tools there may be control tokens of its syntax: there the end is that of a plain answer."""
        if not turn.calls:
            return _first_run(self.control, trail)
        plain = after(conversation.part(turn.message, speaker=ASSISTANT), conversation.probe) or ""
        start = self.control.search(plain)
        ending = plain[start.start() : _first_run(self.control, plain)] if start else ""
        return trail.index(ending) + len(ending) if ending and ending in trail else None


def _start(conversation: Conversation, turn: Turn, lead: str) -> int:
    """Where in what precedes the turn's first text its header ends."""
    if turn.role != ASSISTANT:
        return _start_without_prompt(conversation, turn, lead)
    prompted = after(conversation.part(turn.message, add_generation_prompt=True), turn.before)
    bare = after(conversation.part(turn.message), turn.before)
    if prompted is not None and prompted == bare:
        return _start_without_prompt(conversation, turn, lead)
    if prompted is not None and lead.startswith(prompted):
        return len(prompted)
    if turn.first.opens:  # then the lead holds the template's own text, and the white space that the turn starts with
        header = _generation_prompt(conversation)
        for own in dict.fromkeys((lead, lead.removesuffix(conversation.marker.said[turn.first.text].indent))):
            if prompted is not None and bare is not None and prompted.startswith(own) and len(own) > len(bare):
                return len(own)  # the prompt goes on with what this turn does not have, such as an opened think block
            if header and own.endswith(header):
                return len(own)
    raise RowError(f"can't place a turn's start: before the turn's text the chat template has {lead[-40:]!r}")


def _start_without_prompt(conversation: Conversation, turn: Turn, lead: str) -> int:
    """Where no generation prompt tells, the header is what stands before any text of theirs."""
    reply = conversation.part(turn.message, speaker=turn.role)
    header = after(reply, turn.before, until=len(conversation.marker.said))
    for candidate in () if header is None else (header, header.rstrip()):
        if lead.startswith(candidate):
            return len(candidate)
    raise RowError(f"can't place a turn's start: before the turn's text the chat template has {lead[-40:]!r}")


def _generation_prompt(conversation: Conversation) -> str:
    count = len(conversation.messages)
    bare, prompted = conversation.part(count), conversation.part(count, add_generation_prompt=True)
    if bare is None or prompted is None or not prompted.text.startswith(bare.text):
        return ""
    return prompted.text[len(bare.text) :]


def _common(one: str, other: str) -> str:
    """The longest text that both begin with."""
    return one[: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))]


def _first_run(control: re.Pattern[str], text: str) -> int | None:
    """Where the first control token, and those that follow it at once, end; None: there is none."""
    found = control.search(text)
    if found is None:
        return None
    end = found.end()
    while (following := control.match(text, end)) is not None:
        end = following.end()
    return end
