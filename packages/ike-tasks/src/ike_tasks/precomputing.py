"""Computes what a frozen model says of a run's rows, on all ranks, unless an earlier run has."""

import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

import attrs
import torch
from torch import Tensor, nn

from ike_core.batch import Batch
from ike_core.feed import Batches
from ike_core.interfaces import Dataset, Say, World
from ike_tasks.answers_read import names_of, taken_apart
from ike_tasks.kept_logprobs import KeptLogprobs, is_whole, write_index, write_part
from ike_tasks.logprobs import target_logprobs
from ike_tasks.precomputed import PrecomputedModel, WithLogprobs

FORMAT = "1"
"""Of the files, and so of the key."""
ROWS_AT_ONCE = 1024
"""Rows that are named, and computed, together; the key depends on it."""


@attrs.frozen(kw_only=True)
class Precomputing:
    """One frozen model of a run."""

    name: str
    model: nn.Module
    datasets: Sequence[Dataset]
    batches: Batches
    place: Callable[[Batch], Batch]
    world: World
    folder: Path
    """What is kept lies in folders of it, one a key."""
    say: Say

    def run(self) -> tuple[PrecomputedModel, Batches]:
        """Collective: what takes the model's place, and the batches that bring along what it says."""
        folder = self.folder / self._key()
        started, is_there = time.perf_counter(), bool(self.world.broadcast(is_whole(folder)))
        if not is_there:
            self._build(folder)
        kept = KeptLogprobs.open(folder)
        took = "read" if is_there else f"computed in {time.perf_counter() - started:.0f} s"
        self.say(f"frozen.{self.name}: log-probabilities of {len(kept):,} answers {took}; kept in {folder}")
        collate = WithLogprobs(self.name, kept, self.batches.collate, _wide(self.model))
        return PrecomputedModel(self.name), attrs.evolve(self.batches, collate=collate)

    def _build(self, folder: Path) -> None:
        """Beside the place, renamed last: two runs may build at once, and one that is killed leaves nothing whole."""
        partial = folder.with_name(self.world.broadcast(f"{folder.name}.{time.time_ns()}.partial"))
        answers = dict[int, Tensor]()
        with torch.no_grad():
            for dataset, rows in self._chunks():
                answers |= self._answers(dataset, rows)
        write_part(partial, self.world.rank, answers, _wide(self.model))
        self.world.synchronize()
        if self.world.is_first:
            write_index(partial, self.world.size)
            if not is_whole(folder):
                partial.rename(folder)
        self.world.synchronize()

    def _answers(self, dataset: Dataset, rows: range) -> Mapping[int, Tensor]:
        """This rank's share of some rows."""
        found = dict[int, Tensor]()
        sizes = [dataset.size(row) for row in rows]
        for micro in self.batches.make(lambda position: dataset[rows[position]], sizes):
            if not micro.is_filler:
                logp_N = target_logprobs(self.model, self.place(micro.batch)).cpu()
                found |= {name: logp.clone() for name, logp in taken_apart(logp_N, micro.examples)}
        return found

    def _chunks(self) -> Iterator[tuple[Dataset, range]]:
        for dataset in self.datasets:
            for first in range(0, len(dataset), ROWS_AT_ONCE):
                yield dataset, range(first, min(first + ROWS_AT_ONCE, len(dataset)))

    def _key(self) -> str:
        """Of the weights and of every row's tokens and what of them is supervised: each rank reads its share."""
        whole = [*self._of_weights(), *self._of_rows()]
        mine = [(number, part()) for number, part in enumerate(whole) if number % self.world.size == self.world.rank]
        parts = dict(pair for pairs in self.world.gather(mine) for pair in pairs)
        text = "".join([FORMAT, *(parts[number] for number in range(len(whole)))])
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def _of_weights(self) -> Iterator[Callable[[], str]]:
        for name, tensor in self.model.state_dict().items():
            yield lambda name=name, tensor=tensor: _digest(name.encode(), *_bytes(tensor))  # type: ignore[misc]

    def _of_rows(self) -> Iterator[Callable[[], str]]:
        for dataset, rows in self._chunks():
            yield lambda dataset=dataset, rows=rows: _digest(*_names(dataset, rows))  # type: ignore[misc]


def _names(dataset: Dataset, rows: range) -> Iterator[bytes]:
    for row in rows:
        yield array("q", names_of(dataset[row])).tobytes()


def _bytes(tensor: Tensor) -> tuple[bytes, memoryview]:
    flat = tensor.detach().cpu().contiguous().flatten()
    return f"{tensor.dtype}{tuple(tensor.shape)}".encode(), flat.view(torch.uint8).numpy().data


def _digest(*parts: bytes | memoryview) -> str:
    made = blake2b(digest_size=16)
    for part in parts:
        made.update(part)
    return made.hexdigest()


def _wide(model: nn.Module) -> torch.dtype:
    """Of log-probabilities."""
    return torch.promote_types(next(model.parameters()).dtype, torch.float32)
