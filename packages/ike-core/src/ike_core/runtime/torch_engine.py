"""The plain engine: torch in one process, no DeepSpeed. Laptops, and the float64 yardstick."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from ike_core.batch import Batch
from ike_core.errors import ConfigError
from ike_core.fragments import Counters, Fragment, SavedFragments
from ike_core.interfaces import EngineSettings, ParameterNames, UpdateReport
from ike_core.runtime.dtypes import DTYPES
from ike_core.runtime.evaluation_mode import evaluation_mode
from ike_core.runtime.gradients import gradient_norm, poisoned
from ike_core.runtime.learning_rates import peaks_of, set_learning_rates
from ike_core.runtime.pieces import saved_buffers, whole_pieces, whole_stills
from ike_core.runtime.placement import place
from ike_core.runtime.seeds import seed_dropout
from ike_core.runtime.torch_world import TorchWorld
from ike_core.runtime.training_state import TrainingState


@attrs.frozen
class PlainTorch:
    """One process, no DeepSpeed needed. fp32, or fp64."""

    def start(self) -> TorchWorld:
        world = TorchWorld.start(needs_group=False)
        if world.size > 1:
            raise ConfigError(
                f"engine.uses = ike_core.runtime:PlainTorch runs in one process, and there are {world.size} ranks; "
                "use ike_core.runtime:DeepSpeed, or --ranks 1"
            )
        return world

    def dtype(self, *, precision: str, trains: bool) -> str:  # noqa: ARG002  it trains in what it is built in
        return DTYPES[precision]

    def check(self, *, precision: str) -> None:
        if precision == "bf16":
            raise ConfigError(
                "engine.precision = bf16 keeps float32 masters, which the plain engine has not; "
                "use fp32 or fp64, or engine.uses = ike_core.runtime:DeepSpeed"
            )

    def building(self, *, precision: str) -> AbstractContextManager[None]:  # noqa: ARG002  whole, whatever it is
        return nullcontext()

    def build(
        self, model: nn.Module, names: ParameterNames, *, settings: EngineSettings, world: TorchWorld
    ) -> "TorchEngine":
        assert settings.new_optimizer is not None
        model.to(world.device).train()
        return TorchEngine(model, names, world, settings.clip_norm, settings.new_optimizer(model))

    def build_for_inference(
        self,
        model: nn.Module,
        names: ParameterNames,
        *,
        settings: EngineSettings,  # noqa: ARG002  a replica has the dtype it was built with
        world: TorchWorld,
    ) -> "TorchEngine":
        return replica(model, names, world)


def replica(model: nn.Module, names: ParameterNames, world: TorchWorld) -> "TorchEngine":
    """A whole model on this rank's device, without an optimizer."""
    model.to(world.device).eval()
    return TorchEngine(model, names, world, 0.0, None)


@attrs.define(eq=False)
class TorchEngine:
    """See `ike_core.interfaces.Engine`."""

    model: nn.Module
    names: ParameterNames
    world: TorchWorld
    clip_norm: float
    optimizer: torch.optim.Optimizer | None
    gathers: bool = attrs.field(default=False, init=False)
    _peaks: list[float] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._peaks = peaks_of(self.optimizer) if self.optimizer else []

    def begin(self, *, is_last: bool, seed: int) -> None:  # noqa: ARG002  nothing is reduced, so the last is no different
        seed_dropout(seed)

    def place(self, batch: Batch) -> Batch:
        return place(batch, self.world.device)

    def accumulate(self, loss: Tensor) -> None:
        poisoned(loss).backward()

    def update(self, factors: Mapping[str, float]) -> UpdateReport:
        assert self.optimizer is not None
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = gradient_norm(parameters)
        learning_rate = set_learning_rates(self.optimizer, self._peaks, factors)
        finite = bool(torch.isfinite(norm))  # the one read of an update
        if finite:
            if self.clip_norm:
                torch.nn.utils.clip_grads_with_norm_(parameters, self.clip_norm, norm)
            self.optimizer.step()
        self.optimizer.zero_grad()
        return UpdateReport(norm, learning_rate, applied=finite)

    def evaluating(self) -> AbstractContextManager[None]:
        return evaluation_mode(self.model)

    def weights(self, wanted: Callable[[str], bool] | None = None) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in named_weights(self.names.module):
            if wanted is None or wanted(name):
                yield name, tensor

    def fragments(self) -> Iterator[Fragment]:
        return self._training_state().fragments()

    def counters(self) -> Counters:
        return self._training_state().counters()

    def restore(self, saved: SavedFragments) -> None:
        self._training_state().restore(saved)

    def _training_state(self) -> TrainingState:
        assert self.optimizer is not None
        pieces = whole_pieces(self.names.module, self.optimizer)
        stills = whole_stills(self.names.module, [piece.name for piece in pieces])
        return TrainingState(pieces=pieces, stills=stills, optimizer=self.optimizer, rank=0, ranks=1)


def named_weights(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Parameters and the buffers that are saved, tied ones once."""
    seen: set[int] = set()
    for name, tensor in [*module.named_parameters(), *saved_buffers(module)]:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor.detach()
