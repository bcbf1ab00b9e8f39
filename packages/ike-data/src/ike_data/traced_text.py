"""Texts that a chat template may move, join and print as it likes, but can't look into without its being known.

A template is rendered with these in the place of what a row says. Where it passes them on, what it gives is a form that
holds for any contents. Where it asks (does the answer hold `</think>`?), the contents at hand answer, and the answer is
a condition of the form. Where it looks in a way that can't be followed (a length, a letter, a filter), the form holds
for nothing. They are no `str`, so that C code can't look into them either: every way to look is here, or fails.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import attrs

from ike_data.form import Form
from ike_data.marks import is_marked

FOLLOWED = frozenset(
    {
        "strip",
        "lstrip",
        "rstrip",
        "split",
        "rsplit",
        "replace",
        "removeprefix",
        "removesuffix",
        "startswith",
        "endswith",
    }
)
"""Methods that are asked of the contents."""
STRIPS = frozenset({"strip", "lstrip", "rstrip"})


class LookedError(Exception):
    """A template wants to know more of a text than can be said of others in its place."""


@attrs.frozen
class Condition:
    """A method of `str`, on a form that texts fill, gives this."""

    subject: Form
    method: str
    arguments: tuple[Any, ...]
    answer: "bool | Form | tuple[Form, ...]"
    """A form, or a list of them, where the method gives text."""

    def holds(self, texts: Sequence[str]) -> bool:
        """Whether these texts answer so."""
        asked = getattr(self.subject.filled(texts), self.method)(*self.arguments)
        if isinstance(self.answer, tuple):
            return bool(asked == [form.filled(texts) for form in self.answer])
        return bool(asked == (self.answer.filled(texts) if isinstance(self.answer, Form) else self.answer))


@attrs.frozen
class Traced:
    """What a template gives, whatever is said, as long as the conditions hold."""

    form: Form
    conditions: tuple[Condition, ...]


@attrs.define
class Trace:
    """What a template asked of the texts while it rendered."""

    texts: Sequence[str]
    """What is said, by number of its marks. No white space at their ends, and none is empty."""
    conditions: list[Condition] = attrs.field(factory=list)
    """In the order in which they were met."""
    is_lost: bool = False
    """Whether it looked in a way that can't be followed."""

    def text(self, marked: str) -> "TracedText | str":
        """Traced where it holds anything that is marked."""
        return TracedText(marked, self) if is_marked(marked) else marked

    def value(self, value: Any) -> Any:
        """A JSON value with its texts traced."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return {key: self.value(item) for key, item in value.items()} if isinstance(value, dict) else value

    def lose(self) -> NoReturn:
        """Raises LookedError. Filters may swallow that, so it is kept, too."""
        self.is_lost = True
        raise LookedError

    def answer(self, marked: str, method: str, arguments: tuple[Any, ...]) -> Any:
        """What the method gives for a text. Raises LookedError where that is no text as others would give it."""
        if not all(isinstance(argument, str | int | None) for argument in arguments):
            self.lose()
        given = getattr(marked, method)(*arguments)
        if method in STRIPS and not "".join(arguments).strip():
            return self.text(given)  # what is said neither begins nor ends with white space: true of any
        subject = Form.of(marked)
        if isinstance(given, bool):
            given = getattr(subject.filled(self.texts), method)(*arguments)
            self.conditions.append(Condition(subject, method, arguments, given))
            return given
        forms = Form.of(given) if isinstance(given, str) else tuple(map(Form.of, given))
        condition = Condition(subject, method, arguments, forms)
        if not condition.holds(self.texts):
            self.lose()
        self.conditions.append(condition)
        return self.text(given) if isinstance(given, str) else list(map(self.text, given))


@attrs.frozen(eq=False, repr=False)
class TracedText:
    """A text with marks, and nothing between the marks of a text."""

    _marked: str
    _trace: Trace

    @classmethod
    def shown(cls, value: Any) -> Any:
        """A value as it is printed: the marks of a traced text."""
        return value._marked if isinstance(value, cls) else value

    def __bool__(self) -> bool:
        return True  # it holds something that is said, and no such thing is empty

    def __add__(self, other: object) -> "TracedText":
        return TracedText(self._marked + self._plain(other), self._trace)

    def __radd__(self, other: object) -> "TracedText":
        return TracedText(self._plain(other) + self._marked, self._trace)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            self._trace.lose()
        return bool(self._trace.answer(self._marked, "__eq__", (other,)))

    def __hash__(self) -> int:
        return self._look()

    def __contains__(self, other: object) -> bool:
        return bool(self._trace.answer(self._marked, "__contains__", (other,)))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in FOLLOWED:
            self._trace.lose()
        return lambda *arguments: self._trace.answer(self._marked, name, arguments)

    def _look(self, *_: object) -> NoReturn:
        self._trace.lose()

    def _plain(self, other: object) -> str:
        if isinstance(other, TracedText):
            return other._marked
        return other if isinstance(other, str) else self._look()

    __str__ = __repr__ = __format__ = __len__ = __iter__ = __getitem__ = _look
    __int__ = __float__ = __index__ = __lt__ = __le__ = __gt__ = __ge__ = __mul__ = __mod__ = _look
