"""Chat templates, rendered as transformers renders them, in jinja's sandbox: a template is someone else's code.

Two things differ. `{% generation %}` blocks can be marked in the text. And there is no `strftime_now`: a text that
changes from day to day would make the same rows other data; templates that ask whether it is defined go on without.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from ike_core.errors import ConfigError, DataError
from ike_data.messages import Message
from ike_data.row_error import RowError

if TYPE_CHECKING:
    from jinja2 import Template

GENERATION = ("\U0010fffc", "\U0010fffd")
"""Stand around what `{% generation %}` blocks give, in a marked rendering: the last two private-use characters."""


@attrs.frozen(eq=False)
class ChatTemplate:
    """The source of a template and the names it may use, bos_token and its like."""

    source: str
    variables: Mapping[str, str]

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None,
        *,
        add_generation_prompt: bool = False,
        marked: bool = False,
    ) -> str:
        """The text of a conversation. `marked`: with GENERATION around what the template says is generated.

        Raises RowError where the template refuses the conversation or breaks on it.
        """
        template = self._marked if marked else self._plain
        try:
            return template.render(
                messages=messages,
                tools=tools,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self.variables,
            )
        except Exception as error:  # a template is code: it may raise anything
            raise RowError(f"the chat template refuses it: {type(error).__name__}: {error}") from error

    @cached_property
    def has_markers(self) -> bool:
        """Whether the template says what is generated."""
        return "endgeneration" in self.source

    @cached_property
    def _plain(self) -> "Template":
        return _compiled(self.source, ("", ""))

    @cached_property
    def _marked(self) -> "Template":
        return _compiled(self.source, GENERATION)


def _compiled(source: str, around_generation: tuple[str, str]) -> "Template":
    try:
        from jinja2 import TemplateSyntaxError, nodes
        from jinja2.ext import Extension, loopcontrols
        from jinja2.parser import Parser
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:  # an optional extra, as transformers is
        raise ConfigError(f"chat templates need jinja2: pip install 'ike-data[hf]' ({error})") from error

    class Generation(Extension):
        """`{% generation %} ... {% endgeneration %}`"""

        tags = {"generation"}  # noqa: RUF012  # jinja's own way to say it

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_around"), [], [], body).set_lineno(line)

        def _around(self, caller: Callable[[], str]) -> str:
            return around_generation[0] + caller() + around_generation[1]

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    try:
        return environment.from_string(source)
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
