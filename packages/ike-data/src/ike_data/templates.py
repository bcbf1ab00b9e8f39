"""Chat templates, rendered as transformers renders them, in jinja's sandbox: a template is someone else's code.

Three things differ. `{% generation %}` blocks can be marked in the text. A template that runs too long is stopped. And
`strftime_now` tells the date that is given, if any: a text that changes from day to day would make the same rows other
data; templates that ask whether it is defined go on without.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from ike_core.errors import DataError
from ike_data.form import Form
from ike_data.marks import GENERATION
from ike_data.messages import Message
from ike_data.row_error import RowError
from ike_data.sandbox import sandbox
from ike_data.time_limit import LIMIT_SECONDS, Clock, TooLongError
from ike_data.traced_text import Trace, Traced, TracedText
from ike_data.tracer import Tracer

if TYPE_CHECKING:
    from jinja2 import Template


@attrs.frozen(eq=False)
class ChatTemplate:
    """The source of a template and the names it may use, bos_token and its like."""

    source: str
    variables: Mapping[str, str]
    today: date | None = None
    """What `strftime_now` tells; None: there is none."""
    _clock: Clock = attrs.field(factory=Clock, init=False, repr=False)
    _tracer: Tracer = attrs.field(factory=Tracer, init=False, repr=False)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None,
        *,
        add_generation_prompt: bool = False,
        marked: bool = False,
    ) -> str:
        """The text of a conversation. `marked`: with GENERATION around what the template says is generated.

        Raises RowError where the template refuses the conversation or breaks on it, DataError where it does not end.
        """
        template = self._marked if marked else self._plain
        self._clock.start()
        try:
            names = {
                **self._names,
                "messages": messages,
                "tools": tools,
                "documents": None,
                "add_generation_prompt": add_generation_prompt,
            }
            # What Template.render does, but for a copy of all names and a rewritten traceback: half the time of a row.
            pieces = template.root_render_func(template.new_context(names, shared=True))
            return "".join(map(TracedText.shown, pieces))
        except TooLongError as error:
            raise DataError(f"the chat template does not end: it ran longer than {LIMIT_SECONDS:g} s") from error
        except Exception as error:  # a template is code: it may raise anything
            raise RowError(f"the chat template refuses it: {type(error).__name__}: {error}") from error

    def traced(self, messages: Sequence[Message], tools: Sequence[Any] | None, texts: Sequence[str]) -> Traced | None:
        """The rendering of messages with nothing between their marks, as a form for whatever is said.

        `texts`: what is said here, by the number of its marks. None where the template refuses it, or looks into what
        is said in a way that can't be followed.
        """
        self._tracer.trace = trace = Trace(texts)
        try:
            marked = self.render(trace.value(messages), tools, marked=True)
        except RowError:
            return None
        finally:
            self._tracer.trace = None
        return None if trace.is_lost else Traced(Form.of(marked), tuple(trace.conditions))

    def ends_with(self, token: str) -> bool:
        """Whether a token stands behind a plain answer; true where the template refuses to be asked."""
        answer = "probe"
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}]
        try:
            return token in self.render(messages, None).rpartition(answer)[2]
        except RowError:
            return True

    @cached_property
    def _names(self) -> Mapping[str, Any]:
        return {**self._plain.globals, **self.variables}

    @cached_property
    def _plain(self) -> "Template":
        return self._compiled("", "")

    @cached_property
    def _marked(self) -> "Template":
        return self._compiled(*GENERATION)

    def _compiled(self, opening: str, closing: str) -> "Template":
        environment = sandbox(self._clock, self._tracer, opening, closing)
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        if self.today is not None:
            environment.globals["strftime_now"] = self.today.strftime
        from jinja2 import TemplateSyntaxError  # the sandbox has said it if there is none

        try:
            return environment.from_string(self.source)
        except TemplateSyntaxError as error:
            raise DataError(f"the chat template can't be read, line {error.lineno}: {error.message}") from error


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise ValueError(message)
