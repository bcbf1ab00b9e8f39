"""The protocols that join the packages. A part need not import ike to satisfy one.

A part is a frozen attrs class: its fields are its TOML table, its call takes what only the run knows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import attrs

from ike_core.batch import Batch, Vocabulary
from ike_core.context import Context
from ike_core.examples import AnyExample, Example, Skip
from ike_core.fragments import Counters, Fragment, SavedFragments
from ike_core.mean import Mean
from ike_core.progress import Progress
from ike_core.step_output import StepOutput

Record = Mapping[str, Any]
"""A row as the file says it."""
Tensor = Any
Module = Any
Say = Callable[[str], None]
"""Takes one line for whoever watches."""


@attrs.frozen(kw_only=True)
class BuildContext:
    """What a part that builds something of torch's receives."""

    device: Any
    dtype: Any
    """Of the parameters: torch.float32, torch.bfloat16 or torch.float64."""
    attention: str
    """'auto', or a name that transformers knows."""
    vocabulary: Vocabulary | None
    world: "World"
    seed: int


# -- data ---------------------------------------------------------------------------------------------------------


@runtime_checkable
class DataProcessor(Protocol):
    """One record to its examples. Pure and picklable; the tokenizer, where one is needed, is a field."""

    def process(self, record: Record) -> Iterable[AnyExample | Skip]: ...


@runtime_checkable
class Tokenizer(Protocol):
    """A field annotated `Tokenizer` that its table leaves out is filled with the run's."""

    def encode(self, text: str, *, special_tokens: bool = False) -> list[int]:
        """Token ids; `special_tokens` adds what the tokenizer itself puts around a text (a bos, say)."""
        ...

    def decode(self, tokens: Iterable[int]) -> str: ...

    @property
    def vocabulary(self) -> Vocabulary: ...

    def save(self, folder: Path) -> None:
        """Writes the files that transformers reads."""
        ...


@runtime_checkable
class ChatTokenizer(Tokenizer, Protocol):
    """A tokenizer with a chat template."""

    def chat_prompt(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Token ids of a conversation (role and content each), up to where the assistant begins its answer.

        DataError where there is no template, or the template refuses the messages.
        """
        ...


@runtime_checkable
class Source(Protocol):
    """Records or examples with random access. Picklable; `self[i]` may be a pure function of i (rows that are made up).

    Records go through the processor; Examples are taken as they are.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Record | Example: ...


class Dataset(Protocol):
    """Examples with random access, alike on every rank; sizes and weights are read without their tokens."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> AnyExample: ...

    def size(self, index: int) -> int:
        """Tokens of an example, the trunk once."""
        ...

    def weights(self, index: int) -> Mapping[str, float]:
        """`weigh([self[index]])`, known beforehand."""
        ...


class RecordReader(Protocol):
    """Files to records in their order, each with its source (`questions.jsonl:3`)."""

    def __call__(self, files: Sequence[str], *, limit: int) -> Iterator[tuple[str, Record]]: ...


class DatasetReader(Protocol):
    """Files to a dataset: every rank calls it, one rank of each host processes the rows, the others map the result."""

    def __call__(
        self,
        name: str,
        files: Sequence[str] | Source,
        processor: DataProcessor,
        *,
        limit: int,
        max_tokens: int,
        too_long: str,
        budget: float,
        holdout: "Holdout | None",
        folder: Path,
        world: "World",
        cache: Path | None,
        workers: int,
        say: Say,
    ) -> "DatasetParts":
        """`files`: names, as `find_files` of ike-data reads them, or a user's part. `cache`: where what was processed
        is kept for later runs, None: the user's own place for it. `workers`: processes that process rows, 0: as many as
        there are cores, where it takes long. `say`: one line for the console, at once."""
        ...


@attrs.frozen
class Holdout:
    """Rows kept from training, drawn by the seed before they are processed: `count` rows, or `share` of them."""

    count: int
    share: float
    seed: int


@attrs.frozen
class DatasetParts:
    """What a reader returns."""

    kept: Dataset
    held_out: Dataset | None
    """The rows of the holdout, where one was asked for."""
    summary: str
    """One line for the console: rows, examples, tokens, what was skipped and why."""
    largest_token: int = 0
    """The highest id of all examples; 0: it is not known."""


# -- what is learned ----------------------------------------------------------------------------------------------


class Objective(Protocol):
    """A micro-batch to its undivided loss."""

    def __call__(self, model: Module, batch: Batch, context: Context) -> StepOutput | Mean: ...


@runtime_checkable
class StepObjective(Protocol):
    """Where the loss couples the examples of a step. Exact for any cut, by gradient caching.

    Scores are made without gradient over the whole step and gathered in example order; `couple` gives the loss and so
    d loss / d scores; scores are made again with gradient and (scores * coefficient).sum() goes backward.
    Gao et al. 2021, arXiv:2101.06983.
    """

    def widen(self, examples: Sequence[AnyExample]) -> Sequence[AnyExample]:
        """The whole step before it is cut; the examples themselves, or more."""
        ...

    def scores(self, model: Module, batch: Batch, context: Context) -> Tensor:
        """[E, K]: a row an example of this micro-batch; filler gives [0, K] that still has a graph.

        Called without gradient for the numbers, and with gradient for the slope: then columns that nothing is learned
        through, such as a reference's, may be left 0.
        """
        ...

    def couple(self, scores_EK: Tensor, examples: Sequence[AnyExample], context: Context) -> StepOutput:
        """Over all examples of the step, in step order, alike on every rank."""
        ...


@runtime_checkable
class NeedsFrozen(Protocol):
    """An objective that can't do without some of `context.frozen`: a run that lacks one is refused before it starts."""

    @property
    def needs_frozen(self) -> Sequence[str]:
        """Names of `[frozen.<name>]` tables."""
        ...


@runtime_checkable
class Collates(Protocol):
    """An objective, or anything, that makes its own batches."""

    def collate(self, examples: Sequence[AnyExample], vocabulary: Vocabulary) -> Batch: ...


@runtime_checkable
class Collate(Protocol):
    """`[batch] collate`: how examples become rows, and what the model needs to read them."""

    @property
    def pads(self) -> bool:
        """True: every example takes a row as long as the longest of its micro-batch."""
        ...

    def prepare(self, model: Module) -> Module:
        """After the model is built and before the engine wraps it: what the engine wraps."""
        ...

    def collate(self, examples: Sequence[AnyExample], vocabulary: Vocabulary) -> Batch:
        """`weights` must be those of `weigh(examples)`. No examples: filler, one row whose weights are 0."""
        ...

    def check(
        self, model: Module, examples: Sequence[AnyExample], vocabulary: Vocabulary, *, packing: str
    ) -> "tuple[Collate, str]":
        """Once, before the first step, in evaluation mode, alike on every rank: does this model read these rows right?

        Returns the collate to use from here on and a line for the log ('' where there is nothing to say).
        `packing` is `batch.packing`: 'required' raises TrainingError where 'auto' falls back.
        """
        ...


@runtime_checkable
class Stateful(Protocol):
    """Anything that outlives a step: part of the checkpoint."""

    def state(self) -> Mapping[str, Any]:
        """Tensors and JSON values."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None: ...


# -- what learns --------------------------------------------------------------------------------------------------


@runtime_checkable
class ModelPart(Protocol):
    """Builds a model; under ZeRO-3 the call stands inside the engine's init context."""

    def build(self, context: BuildContext) -> Module: ...


@runtime_checkable
class OptimizerPart(Protocol):
    """Builds a torch optimizer."""

    def build(
        self, named_parameters: Sequence[tuple[str, Tensor]], groups: Sequence[Mapping[str, Any]], context: BuildContext
    ) -> Any:
        """`groups` are ready parameter groups: params, lr (the group's peak), name, and weight_decay where the group
        says one (biases and norms say 0); where it is absent the optimizer's own default holds."""
        ...


class SchedulePart(Protocol):
    """The share of the peak learning rate that an update uses. Pure."""

    def __call__(self, step: int, steps: int) -> float:
        """`step` counts from 0."""
        ...


# -- inference ----------------------------------------------------------------------------------------------------


class InferenceTask(Protocol):
    """One class for `infer`, for `[evaluate.*]` during training, and offline."""

    def prepare(self, record: Record) -> Example | Skip: ...

    def collate(self, examples: Sequence[Example], vocabulary: Vocabulary) -> Batch:
        """No examples: filler, as in `Collate`."""
        ...

    def __call__(self, model: Module, batch: Batch, context: Context) -> Sequence[Mapping[str, Any]]:
        """JSON rows, one an example; filler gives none but makes the same collective calls."""
        ...

    def metrics(self, rows: Iterable[Mapping[str, Any]]) -> Mapping[str, float]:
        """Once, over all rows in input order (a row is the record's columns and what the call gave), on rank 0."""
        ...


@runtime_checkable
class Lengthens(Protocol):
    """An InferenceTask whose answers take room in the model: they count under tokens_per_device and its positions."""

    max_new_tokens: int


# -- the machinery ------------------------------------------------------------------------------------------------


@runtime_checkable
class World(Protocol):
    """The ranks, and what they tell each other: tensors and JSON bytes, never pickles."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    replicas: int
    """Ranks that see different examples; today all."""
    device: Any

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0."""
        ...

    def broadcast(self, value: Any) -> Any:
        """Collective: rank 0's JSON value, on every rank. Host group."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """Collective: every rank's JSON value, by rank, on every rank. Host group."""
        ...

    def sum(self, values: Sequence[float]) -> list[float]:
        """Collective: float64 sums over ranks, host group."""
        ...

    def sum_tensor(self, tensor: Tensor) -> Tensor:
        """Collective: in place on the device's group."""
        ...

    def synchronize(self) -> None:
        """Collective: returns when every rank has come."""
        ...


@attrs.frozen
class UpdateReport:
    """What an update did."""

    grad_norm: Any
    """Before clipping; a float or a scalar tensor."""
    learning_rate: float
    applied: bool
    """False: loss or gradient was not finite, and the weights are as before."""


@runtime_checkable
class Engine(Protocol):
    """What is asked of the distributed machinery."""

    model: Module
    """What objectives call."""
    world: World
    gathers: bool
    """True under ZeRO-3: a forward is collective, every rank makes as many."""

    def begin(self, *, is_last: bool, seed: int) -> None:
        """Before each forward of a step; `is_last` says that `update` follows this micro-batch.

        Dropout draws from `seed`, so that a step repeats exactly on the same layout.
        """
        ...

    def place(self, batch: Batch) -> Batch:
        """Host to device, without waiting."""
        ...

    def accumulate(self, loss: Tensor) -> None:
        """Backward of one micro-batch; collective on the last."""
        ...

    def update(self, factors: Mapping[str, float]) -> UpdateReport:
        """Collective: clip, set each group's learning rate to its factor x its peak, step.

        `factors` is by group name; '' is for all groups that are not named.
        """
        ...

    def evaluating(self) -> AbstractContextManager[None]:
        """Evaluation mode, no gradient; the mode before comes back."""
        ...

    def weights(self, wanted: Callable[[str], bool] | None = None) -> Iterator[tuple[str, Tensor]]:
        """Collective under ZeRO-3: every rank iterates to the end. Full tensors under the model's own names; tied once.

        Of `wanted` names, all by default; no other is gathered.

        Only rank 0 may keep what it is given beyond the next turn, and then as a copy.
        """
        ...

    def fragments(self) -> Iterator[Fragment]:
        """This rank's pieces of masters, moments, frozen parameters and buffers: all ranks' together are the state.

        Not collective. CheckpointError for an optimizer whose state can't be cut into pieces.
        """
        ...

    def counters(self) -> Counters:
        """The numbers that go with them; not collective. Of this rank's parameters: the ranks' are merged by name."""
        ...

    def restore(self, saved: SavedFragments) -> None:
        """Collective: the state becomes the saved one, whatever ranks and stage it comes from."""
        ...


@runtime_checkable
class EnginePart(Protocol):
    """`[engine]`: starts the ranks' world and builds engines in it."""

    def check(self, *, precision: str) -> None:
        """ConfigError for settings that don't go together; asked before any rank starts, and by each rank first."""
        ...

    def start(self) -> World:
        """Collective: the device is chosen, the ranks have met."""
        ...

    def dtype(self, *, precision: str, trains: bool) -> str:
        """What the model is built in, before the engine makes of it what `precision` says."""
        ...

    def building(self, *, precision: str) -> AbstractContextManager[None]:
        """Stands around the building of the model (ZeRO-3 deals out parameters as they are made)."""
        ...

    def build(self, model: Module, names: "ParameterNames", *, settings: "EngineSettings", world: World) -> Engine:
        """Collective: an engine that trains. `model` is what `Collate.prepare` returned."""
        ...

    def build_for_inference(
        self, model: Module, names: "ParameterNames", *, settings: "EngineSettings", world: World
    ) -> Engine:
        """Collective: an engine that only runs: a replica a rank, or shards under ZeRO-3."""
        ...


@attrs.frozen
class ParameterNames:
    """The module whose parameter names are the model's own, whatever wraps it."""

    module: Module


@attrs.frozen(kw_only=True)
class EngineSettings:
    """What core takes from `[engine]` and `[optimizer]` for any part."""

    precision: str
    clip_norm: float
    new_optimizer: Callable[[Module], Any] | None = None
    """Module with its parameters in place -> torch optimizer; each group's lr is its peak."""


# -- the run ------------------------------------------------------------------------------------------------------


@attrs.frozen
class SavedModel:
    """What a checkpoint part writes into `model/`."""

    weights: Callable[[], Iterator[tuple[str, Tensor]]]
    """Collective; see `Engine.weights`."""
    config: Any
    """With `save_pretrained(folder)` for config.json (a transformers config), or None."""
    generation_config: Any
    tokenizer: Tokenizer | None
    tied: Mapping[str, str] = attrs.field(factory=dict)
    """Names that share a tensor with another, which is written."""
    adapter_config: Any = None
    """With `save_pretrained(folder)` for adapter_config.json, where the weights are an adapter's, in peft's names."""


@attrs.frozen(kw_only=True)
class SavedState:
    """What a checkpoint part writes into `state/`: what a run needs to go on, of this rank."""

    fragments: Callable[[], Iterator[Fragment]]
    """See `Engine.fragments`."""
    counters: Callable[[], Counters]
    """See `Engine.counters`."""
    parts: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    """What Stateful parts keep, alike on every rank, by their table: `objective`, `hooks.ema`."""


@attrs.frozen(kw_only=True)
class LoadedStep:
    """A step that is gone on from."""

    fragments: SavedFragments
    progress: Progress
    facts: Mapping[str, Any]
    """All of progress.json."""
    parts: Mapping[str, Mapping[str, Any]]
    """See `SavedState.parts`."""


@attrs.frozen(kw_only=True)
class OpenedRun:
    """A run's folder, this job's own."""

    file_id: str
    step: Path | None
    """The step folder to go on from; None: from the start."""
    note: str
    """One line: what is gone on with and why; '' where there is nothing to say."""
    release: Callable[[], None]
    """Others may join the run from then on; may be called again."""


@runtime_checkable
class CheckpointStore(Protocol):
    """`[checkpoint]`: names the run, keeps it, and finds it again."""

    def open_run(self, name: str, root: Path, world: World, *, identity: str) -> OpenedRun:
        """Collective: rank 0 makes the id and the folder `root/<id>` with its owner file, or finds the run to go on
        with; every rank receives it. `identity`: of all that changes an update; '' where nothing is learned."""
        ...

    def load(self, step: Path) -> LoadedStep:
        """Collective: verified, whatever ranks wrote it."""
        ...

    def save(
        self,
        folder: Path,
        *,
        model: SavedModel | None,
        state: SavedState | None,
        progress: Progress,
        final: bool,
        facts: Mapping[str, Any],
    ) -> Path:
        """Collective: `folder/step-000500`, whole or absent. None: this step keeps no `model/`, or no `state/`.

        `facts` are JSON values for progress.json (config fingerprint, versions). Then what `keep_last` no longer
        keeps is removed. Returns the step's folder.
        """
        ...

    def exports(self, *, final: bool) -> bool:
        """Whether a save gets a `model/` folder."""
        ...


class Tracker(Protocol):
    """Where numbers go. Called on rank 0 alone; an error in one switches it off with one warning."""

    def start(self, run: "RunFacts") -> None: ...

    def log(self, step: int, values: Mapping[str, Any]) -> None: ...

    def finish(self) -> None: ...


@attrs.frozen(kw_only=True)
class RunFacts:
    """What trackers and hooks know of the run."""

    file_id: str
    folder: Path
    name: str
    group: str
    steps: int
    """Updates of the whole run."""
    ranks: int
    config: Mapping[str, Any]
    """The resolved tree, secrets as the table that names them."""


@attrs.frozen(kw_only=True)
class StepReport:
    """What a step did; the tensors stay on the device until someone reads them."""

    step: int
    """Updates finished, this one included."""
    epoch: float
    update: UpdateReport
    loss: Sequence[tuple[float, Mean]]
    """This rank's share of each term."""
    metrics: Mapping[str, Mean]
    weights: Mapping[str, float]
    """Of the whole step."""
    examples: Sequence[AnyExample]
    """This rank's."""


class Hook(Protocol):
    """Any of these, on every rank, in the order of the tables. What a hook leaves out is not called."""

    def before_training(self, engine: Engine, context: Context) -> None: ...

    def before_update(self, engine: Engine, context: Context) -> None: ...

    def after_update(self, report: StepReport, context: Context) -> None: ...

    def after_evaluate(self, values: Mapping[str, float], context: Context) -> None: ...

    def after_save(self, folder: Path, context: Context) -> None: ...
