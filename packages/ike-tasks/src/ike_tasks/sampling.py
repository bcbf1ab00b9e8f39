"""What steers transformers' own `generate`: noise that belongs to an example, and where an answer ends.

B answers, L tokens of prompt and answer, V vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)


@attrs.frozen
class KeyedNoise(LogitsProcessor):
    """Makes the largest score a draw from the softmax, each row with a generator of its own.

    argmax(log p + g) with standard Gumbel noise g is distributed as p; here g = -log(e), e exponential. A row's draws
    depend on its generator and on how many tokens it has, not on the rows beside it.
    """

    generators: Sequence[torch.Generator]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002
        """[B, L], [B, V] -> [B, V]"""
        noise_BV = torch.empty_like(scores)
        for row, generator in zip(noise_BV, self.generators, strict=True):
            row.exponential_(generator=generator)
        return scores - noise_BV.log_()


def sampler(
    generators: Sequence[torch.Generator], *, temperature: float, top_k: int, top_p: float
) -> LogitsProcessorList:
    """Temperature, then the k most likely, then the fewest whose sum reaches top_p, then the draw."""
    processors = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        processors.append(TopKLogitsWarper(top_k))
    if top_p < 1.0:
        processors.append(TopPLogitsWarper(top_p))
    processors.append(KeyedNoise(generators))
    return processors


@attrs.frozen
class AtOnce(StoppingCriteria):
    """For filler: done after one token. Under ZeRO-3 its rank then goes on with empty forwards until all are done."""

    def __call__(self, input_ids: Tensor, scores: Any, **others: Any) -> Tensor:  # noqa: ARG002
        return torch.ones(len(input_ids), dtype=torch.bool, device=input_ids.device)


@attrs.frozen
class AtText(StoppingCriteria):
    """Done where the answer contains one of some texts, however they are cut into tokens."""

    texts: tuple[str, ...]
    decode: Callable[[Iterable[int]], str]
    prompt_length: int
    """Tokens before the answers, padding included."""

    def __call__(self, input_ids: Tensor, scores: Any, **others: Any) -> Tensor:  # noqa: ARG002
        # A token gives a byte at least, so this many hold any text that ends with the newest one.
        window = max(len(text.encode()) for text in self.texts)
        tails = input_ids[:, max(self.prompt_length, input_ids.shape[1] - window) :].tolist()
        done = [any(text in tail for text in self.texts) for tail in map(self.decode, tails)]
        return torch.tensor(done, device=input_ids.device)


def cut(text: str, stops: Iterable[str]) -> tuple[str, bool]:
    """The text before the first of the stops, and whether there is one."""
    places = [place for place in map(text.find, stops) if place >= 0]
    return (text[: min(places)], True) if places else (text, False)
