"""NEFTune: uniform noise on the embeddings.  Jain et al. 2023, arXiv:2310.05914

R rows, T tokens of a row, L tokens of a document, D embedding size.
"""

from collections.abc import Iterator

import attrs
import torch
from torch import Tensor

from ike_core.batch import Batch
from ike_core.context import Context
from ike_core.errors import TrainingError
from ike_core.examples import AnyExample
from ike_tasks.logits import wide


@attrs.frozen
class NeftuneNoise:
    """embedding + alpha / sqrt(L D) * uniform(-1, 1), algorithm 1 of the paper.

    L is the document's own length: neither padding nor what it is packed with scales its noise. The draws belong to the
    example and the step, so no cut changes them. All branches of a tree share their trunk's.
    """

    alpha: float
    """5 to 15 in the paper."""
    batch: Batch
    context: Context
    """Whose `examples` are those of the batch, in order."""

    def __call__(self, embeddings_RTD: Tensor) -> Tensor:
        """The noisy embeddings."""
        if not self.context.examples and self.batch.weights["examples"]:
            raise TrainingError(
                "noise is drawn example by example, and the context names none; give Context(examples=...) those of "
                "the batch, in its order"
            )
        rows = [self._padded(torch.cat(pieces), embeddings_RTD) for pieces in self._rows(embeddings_RTD)]
        return embeddings_RTD + torch.stack(rows) if rows else embeddings_RTD

    def _rows(self, like: Tensor) -> Iterator[list[Tensor]]:
        """Noise of what lies in each row, end to end; nothing for filler."""
        noises = (self._noise(example, like) for example in self.context.examples)
        if not self.context.examples:
            return
        if self.batch.layout is not None:
            for trees in self.batch.layout.rows:
                yield [next(noises) for _ in trees]
            return
        for example, noise_LD in zip(self.context.examples, noises, strict=True):
            trunk, *branches = noise_LD.split([example.tree.trunk, *example.tree.branches])
            yield from ([trunk, branch] for branch in branches or [trunk[:0]])

    def _noise(self, example: AnyExample, like: Tensor) -> Tensor:
        """[tokens of the tree, D]"""
        generator = self.context.noise(example, "neftune")
        noise_LD = torch.empty(example.tree.size, like.shape[2], dtype=wide(like), device=like.device)
        scale = self.alpha / (example.tree.longest_path * like.shape[2]) ** 0.5
        return noise_LD.uniform_(-scale, scale, generator=generator)

    @staticmethod
    def _padded(noise_LD: Tensor, like: Tensor) -> Tensor:
        """[T, D], zero where nothing lies."""
        padded_TD = like.new_zeros(like.shape[1:])
        padded_TD[: len(noise_LD)] = noise_LD
        return padded_TD
