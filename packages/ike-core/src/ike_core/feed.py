"""Whole steps of micro-batches, made ahead of time in a thread."""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from ike_core.batch import Batch, weigh
from ike_core.cutting import Ceiling, Cut, cut
from ike_core.examples import AnyExample
from ike_core.interfaces import Dataset, World
from ike_core.mixing import Mixture
from ike_core.ordering import Ordering
from ike_core.progress import Drawn

AHEAD = 2
"""Steps that wait ready; more only hold memory."""

CutStep = Callable[[Sequence[int], int, Ceiling, Sequence[int] | None], Cut]
"""See `ike_core.cutting.cut`."""


@attrs.frozen
class MicroBatch:
    """One forward on this rank."""

    batch: Batch
    examples: tuple[AnyExample, ...]
    """In the order of its rows; none: filler."""
    positions: tuple[int, ...]
    """Of these examples in the step's order."""

    @property
    def is_filler(self) -> bool:
        return not self.examples


@attrs.frozen
class Step:
    """What this rank does for one update."""

    step: int
    """Updates before this one."""
    epoch: float
    """Passes over the set when this step is done."""
    micro_batches: Sequence[MicroBatch]
    weights: Mapping[str, float]
    """Of the whole step, over all ranks."""
    size: int
    """Examples of the whole step."""
    tokens: int
    """Of the whole step, trunks once."""
    examples: Sequence[AnyExample]
    """Of the whole step, in step order, where a StepObjective wants them; else empty."""
    sources: Mapping[str, Drawn] = attrs.field(factory=dict)
    """What the step draws of each of data.train's sources; empty where there are none."""


@attrs.frozen
class Batches:
    """How examples become micro-batches on this rank; the same for training and for evaluation."""

    collate: Callable[[Sequence[AnyExample]], Batch]
    ceiling: Ceiling
    world: World
    counts_as_weigh: bool
    """The collate counts weights as `weigh` does: the step's are known without talking."""
    cut: CutStep = cut
    finish: Callable[[Batch], Batch] = lambda batch: batch
    """Last thing done in the thread: pins memory on a GPU."""

    def make(self, examples: Callable[[int], AnyExample], sizes: Sequence[int]) -> list[MicroBatch]:
        """This rank's micro-batches of `len(sizes)` examples; `examples(i)` reads the i-th.

        `sizes` count a trunk once. Padded rows don't: there a branch is a row, and its trunk stands in front of it.
        """
        rows: list[int] | None = None
        if self.ceiling.pads:
            trees = [examples(position).tree for position in range(len(sizes))]
            sizes, rows = [tree.longest_path for tree in trees], [max(1, len(tree.branches)) for tree in trees]
        mine = self.cut(sizes, self.world.replicas, self.ceiling, rows)[self.world.rank]
        return [self._micro_batch(examples, positions) for positions in mine]

    def _micro_batch(self, examples: Callable[[int], AnyExample], positions: Sequence[int]) -> MicroBatch:
        rows = tuple(examples(position) for position in positions)
        return MicroBatch(self.finish(self.collate(rows)), rows, tuple(positions))

    def weights(self, micro_batches: Sequence[MicroBatch]) -> dict[str, float]:
        """Collective: what the collate counted, over all ranks."""
        names = sorted(micro_batches[0].batch.weights)
        local = [sum(micro.batch.weights[name] for micro in micro_batches) for name in names]
        return dict(zip(names, self.world.sum(local), strict=True))


@attrs.frozen
class Feed:
    """The training set as steps, a function of the step."""

    dataset: Dataset
    ordering: Ordering | Mixture
    batches: Batches
    widen: Callable[[Sequence[AnyExample]], Sequence[AnyExample]] | None = None
    """Of a StepObjective."""
    source_of: Callable[[int], str] | None = None
    """The source of an example, where the set is made of several."""

    def steps(self, first: int, last: int) -> Iterator[Step]:
        """Steps `first` to `last` - 1. Collective where weights must be counted over ranks."""
        for step in _ahead(lambda: (self._step(number) for number in range(first, last))):
            if self.batches.counts_as_weigh:
                yield step
            else:  # in the caller's thread: collectives of two threads would meet in any order
                yield attrs.evolve(step, weights=self.batches.weights(step.micro_batches))

    def _step(self, number: int) -> Step:
        indices = self.ordering.examples(number)
        if self.widen is not None:
            return self._coupled(number, indices)
        sizes = [self.dataset.size(index) for index in indices]
        counted = [self.dataset.weights(index) for index in indices] if self.batches.counts_as_weigh else []
        return Step(
            number,
            self.ordering.epoch(number + 1),
            self.batches.make(lambda position: self.dataset[indices[position]], sizes),
            {name: sum(row[name] for row in counted) for name in (counted[0] if counted else ())},
            len(indices),
            sum(sizes),
            (),
            self._drawn(indices),
        )

    def _drawn(self, indices: Sequence[int]) -> dict[str, Drawn]:
        if self.source_of is None:
            return {}
        drawn = dict[str, Drawn]()
        for index in indices:
            one = Drawn(1, self.dataset.size(index), self.dataset.weights(index)["tokens"])
            name = self.source_of(index)
            drawn[name] = drawn.get(name, Drawn()) + one
        return drawn

    def _coupled(self, number: int, indices: Sequence[int]) -> Step:
        assert self.widen is not None
        examples = self.widen([self.dataset[index] for index in indices])
        sizes = [len(example) for example in examples]
        return Step(
            number,
            self.ordering.epoch(number + 1),
            self.batches.make(lambda position: examples[position], sizes),
            weigh(examples),
            len(indices),
            sum(sizes),
            tuple(examples),
            self._drawn(indices),
        )


def _ahead(make: Callable[[], Iterator[Step]]) -> Iterator[Step]:
    """Runs the iterator in a thread, AHEAD items before the reader, who is raised its exception."""
    ready: queue.Queue[Any] = queue.Queue(AHEAD)
    stopped = threading.Event()
    end = object()

    def put(item: Any) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def fill() -> None:
        try:
            for item in make():
                if not put(item):
                    return
            put(end)
        except BaseException as error:  # noqa: BLE001  the reader raises it
            put(error)

    thread = threading.Thread(target=fill, name="ike-feed", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not end:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()
