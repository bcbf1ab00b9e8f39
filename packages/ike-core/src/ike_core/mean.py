"""A loss as total and weight, so that cutting a batch can't change it."""

from typing import Any, Self

import attrs


@attrs.frozen
class Mean:
    """An undivided sum with the weight it will be divided by.

    The loop divides the gradient once, by the weight of the whole step (`weights[per]` summed over all ranks and
    micro-batches); `value` divides for logs alone.
    """

    total: Any
    """Scalar tensor or float: the sum."""
    weight: Any
    """Float or scalar tensor: how much was summed, this micro-batch's own `batch.weights[per]` for a loss."""
    per: str = "tokens"
    """Which of the batch's weights it is a mean over."""

    def __add__(self, other: Self) -> Self:
        if self.per != other.per:
            raise ValueError(f"a mean per {self.per} and one per {other.per} don't add up")
        return attrs.evolve(self, total=self.total + other.total, weight=self.weight + other.weight)

    @property
    def value(self) -> Any:
        """The mean, for logs; nan where nothing was summed."""
        return self.total / self.weight if self.weight else float("nan")
