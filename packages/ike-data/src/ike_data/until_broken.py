"""What can be had of something before it breaks, so that it is accounted for before the error."""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import attrs

from ike_core.errors import DataError

T = TypeVar("T")


@attrs.define
class UntilBroken(Generic[T]):
    """Ends where reading on is a DataError; `check` raises it."""

    items: Iterable[T]
    _fault: DataError | None = None

    def __iter__(self) -> Iterator[T]:
        try:
            yield from self.items
        except DataError as error:
            self._fault = error

    def check(self) -> None:
        """Once all items were dealt with."""
        if self._fault is not None:
            raise self._fault
