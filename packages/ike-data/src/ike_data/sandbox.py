"""Jinja's sandbox as chat templates need it: `{% generation %}` blocks, loop controls, and an end to endless loops.

A template can go on for ever by its loops and by what it calls, so both look at the clock. Imports jinja2.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ike_data.time_limit import LIMIT_SECONDS, TooLongError

_WATCHED = "ike_watched"
_LONGEST = 1 << 24
"""Elements of what `*` may repeat to."""


class Generation(Extension):
    """`{% generation %} ... {% endgeneration %}`, with the environment's marks around."""

    tags = {"generation"}  # noqa: RUF012  # jinja's own way to say it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_around"), [], [], body).set_lineno(line)

    def _around(self, caller: Callable[[], str]) -> str:
        assert isinstance(self.environment, Sandbox)
        return self.environment.opening + caller() + self.environment.closing


class Sandbox(ImmutableSandboxedEnvironment):
    """`opening` and `closing` stand around what `{% generation %}` blocks give."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self, opening: str, closing: str) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
        self.opening, self.closing = opening, closing
        self.deadline = 0.0
        self.filters[_WATCHED] = self._watched

    def start(self) -> None:
        """The clock starts now."""
        self.deadline = time.monotonic() + LIMIT_SECONDS

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """What a template calls."""
        self._check()
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """`*` and `**`, which no clock stops once they run."""
        if operator == "**" and not (abs(left) < _LONGEST and abs(right) < 64):
            raise OverflowError(f"{left} ** {right}")
        for one, other in ((left, right), (right, left)):
            if isinstance(one, str | list | tuple) and isinstance(other, int) and len(one) * other > _LONGEST:
                raise OverflowError(f"{len(one)} elements * {other}")
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in list(tree.find_all(nodes.For)):
            loop.iter = nodes.Filter(loop.iter, _WATCHED, [], [], None, None, lineno=loop.lineno)
        return tree

    def _watched(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._check()
            yield item

    def _check(self) -> None:
        if time.monotonic() > self.deadline:
            raise TooLongError
