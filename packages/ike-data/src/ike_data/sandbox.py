"""Jinja's sandbox as chat templates need it: `{% generation %}` blocks, loop controls, and an end to endless loops."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ike_core.errors import ConfigError
from ike_data.rewriting import JOINED, WATCHED, rewritten
from ike_data.time_limit import Clock, check_operation
from ike_data.tracer import Tracer

if TYPE_CHECKING:
    from jinja2.runtime import Context
    from jinja2.sandbox import ImmutableSandboxedEnvironment


def sandbox(clock: Clock, tracer: Tracer, opening: str, closing: str) -> "ImmutableSandboxedEnvironment":
    """`opening` and `closing` stand around what `{% generation %}` blocks give.

    A template can go on for ever by its loops and by what it calls, so both look at the clock.
    """
    try:
        from jinja2 import nodes  # an optional extra, as transformers is
        from jinja2.ext import Extension, loopcontrols
        from jinja2.parser import Parser
        from jinja2.runtime import LoopContext
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise ConfigError(f"chat templates need jinja2: pip install 'ike-data[hf]' ({error})") from error

    class Generation(Extension):
        """`{% generation %} ... {% endgeneration %}`"""

        tags = {"generation"}  # noqa: RUF012  # jinja's own way to say it

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_around"), [], [], body).set_lineno(line)

        def _around(self, caller: Callable[[], str]) -> str:
            return opening + caller() + closing

    class Sandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"*", "**"})

        def call(self, context: "Context", obj: Any, /, *args: Any, **kwargs: Any) -> Any:
            clock.check()
            return super().call(context, obj, *args, **kwargs)

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            if type(obj) is LoopContext and not attr.startswith("_"):  # `loop.first`: the answer, without six questions
                return True
            return super().is_safe_attribute(obj, attr, value)

        def call_binop(self, context: "Context", operator: str, left: Any, right: Any) -> Any:
            check_operation(operator, left, right)
            return super().call_binop(context, operator, left, right)

        def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
            return rewritten(super()._parse(source, name, filename))

    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters[WATCHED] = clock.watched
    environment.filters[JOINED] = tracer.concatenated
    tracer.follow(environment)
    return environment
