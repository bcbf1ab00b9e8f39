"""The DeepSpeed engine: ZeRO 0 to 3, one division, which is ike's.

DeepSpeed is told that every backward is a step of its own (gradient_accumulation_steps = 1), which micro-batch is the
last, and not to divide; what it still does is to average over ranks, which the loop's factor `replicas` undoes.
"""

import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import attrs
import torch
from torch import Tensor, nn

from ike_core.batch import Batch
from ike_core.errors import ConfigError
from ike_core.fragments import Counters, Fragment, SavedFragments
from ike_core.interfaces import EngineSettings, ParameterNames, UpdateReport
from ike_core.runtime.deepspeed_config import deepspeed_config, refuse
from ike_core.runtime.deepspeed_release import release_with
from ike_core.runtime.dtypes import DTYPES
from ike_core.runtime.evaluation_mode import evaluation_mode
from ike_core.runtime.gradients import gradient_norm, poisoned
from ike_core.runtime.learning_rates import peaks_of, set_learning_rates
from ike_core.runtime.masters import float32_of, set_masters
from ike_core.runtime.placement import place
from ike_core.runtime.seeds import seed_dropout
from ike_core.runtime.torch_engine import TorchEngine, named_weights, replica
from ike_core.runtime.torch_world import TorchWorld, has_gpu
from ike_core.runtime.training_state import TrainingState
from ike_core.runtime.zero_pieces import refresh, training_state


@attrs.frozen
class DeepSpeed:
    """Any number of ranks, by DeepSpeed."""

    zero_stage: Literal[0, 1, 2, 3] = 1
    """What the ranks share out: 0 nothing, 1 optimizer states, 2 and gradients, 3 and parameters."""
    raw: Mapping[str, Any] = attrs.field(factory=dict)
    """Handed on to DeepSpeed; keys that ike owns, or that DeepSpeed doesn't know, are refused."""

    def start(self) -> TorchWorld:
        return TorchWorld.start(needs_group=True)

    def dtype(self, *, precision: str, trains: bool) -> str:
        """A bf16 run is built in float32, which its masters keep; under ZeRO-3 in bf16, which is what is dealt out."""
        return "float32" if precision == "bf16" and trains and self.zero_stage < 3 else DTYPES[precision]

    def check(self, *, precision: str) -> None:
        refuse(self.raw)
        if precision == "fp64":
            raise ConfigError(
                "engine.precision = fp64 is for engine.uses = ike_core.runtime:PlainTorch; DeepSpeed's ZeRO-0 has none"
            )
        if precision == "bf16" and self.zero_stage == 0:
            raise ConfigError(
                "engine.precision = bf16 needs engine.zero_stage >= 1: without ZeRO, DeepSpeed takes a step of its own "
                "when it starts, and the weights have already moved"
            )

    def building(self, *, precision: str) -> AbstractContextManager[None]:
        if self.zero_stage < 3:
            return nullcontext()
        return _zero3_building(self._config(precision, clip_norm=0.0))

    def build(
        self, model: nn.Module, names: ParameterNames, *, settings: EngineSettings, world: TorchWorld
    ) -> "DeepSpeedEngine":
        assert settings.new_optimizer is not None
        config = self._config(settings.precision, clip_norm=settings.clip_norm)
        if self.zero_stage < 3:
            model.to(world.device)
        optimizer = settings.new_optimizer(model)
        peaks = peaks_of(optimizer)
        masters = float32_of(names.module) if settings.precision == "bf16" else {}
        engine = _initialize(model, optimizer, config)
        set_masters(names.module, masters)
        engine.train()
        return DeepSpeedEngine(engine, names, world, self.zero_stage, peaks, clip_norm=settings.clip_norm)

    def build_for_inference(
        self, model: nn.Module, names: ParameterNames, *, settings: EngineSettings, world: TorchWorld
    ) -> "DeepSpeedEngine | TorchEngine":
        if self.zero_stage < 3:
            return replica(model, names, world)
        engine = _initialize(model, None, self._config(settings.precision, clip_norm=0.0))
        engine.eval()
        return DeepSpeedEngine(engine, names, world, self.zero_stage, [], clip_norm=0.0)

    def _config(self, precision: str, *, clip_norm: float) -> dict[str, Any]:
        return deepspeed_config(zero_stage=self.zero_stage, precision=precision, clip_norm=clip_norm, raw=self.raw)


@contextmanager
def _zero3_building(config: dict[str, Any]) -> Iterator[None]:
    """Parameters are dealt out as they are made, and transformers knows that it loads into shards."""
    from transformers.integrations.deepspeed import HfDeepSpeedConfig, unset_hf_deepspeed_config  # seconds: for ZeRO-3

    deepspeed = _deepspeed()
    alive = HfDeepSpeedConfig(config)  # from_pretrained asks for it through a weak reference
    try:
        with deepspeed.zero.Init(config_dict_or_path=config):
            yield
    finally:
        del alive
        unset_hf_deepspeed_config()


def _initialize(model: nn.Module, optimizer: torch.optim.Optimizer | None, config: dict[str, Any]) -> Any:
    engine, *_ = _deepspeed().initialize(model=model, optimizer=optimizer, config=config)
    return engine


def _deepspeed() -> Any:
    """The package, imported on first use (2.4 s, and the plain engine needs none of it), with its habits settled.

    It greets with a page a rank, and on a CPU compiles an operator at its first start. That operator (an all-reduce for
    inference in shared memory) is never called here; compiling it takes 30 s or more, and a build that was killed
    leaves a lock on which every later run waits in silence. On a GPU it has no such operator, and the list of what
    could be compiled is left alone: making it runs compilers.
    """
    on_cpu = not has_gpu()
    if on_cpu:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # it would warn that it found nothing else
    import deepspeed
    import deepspeed.ops

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)  # what it warns of, a skipped step, ike says itself
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    if on_cpu:
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_init_required=False)  # takes the groups that are there
    return deepspeed


@attrs.define(eq=False)
class DeepSpeedEngine:
    """See `ike_core.interfaces.Engine`."""

    model: Any
    """The deepspeed engine: calling it runs the module with ZeRO's hooks."""
    names: ParameterNames
    world: TorchWorld
    zero_stage: int
    _peaks: list[float]
    clip_norm: float = attrs.field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        release_with(self, self.model)

    @property
    def gathers(self) -> bool:
        return self.zero_stage == 3

    def begin(self, *, is_last: bool, seed: int) -> None:
        seed_dropout(seed)
        self.model.set_gradient_accumulation_boundary(is_last)

    def place(self, batch: Batch) -> Batch:
        return place(batch, self.world.device)

    def accumulate(self, loss: Tensor) -> None:
        self.model.backward(poisoned(loss), scale_wrt_gas=False)

    def update(self, factors: Mapping[str, float]) -> UpdateReport:
        learning_rate = set_learning_rates(self.model.optimizer, self._peaks, factors)
        if self.zero_stage == 0:
            return self._update_unsharded(learning_rate)
        skipped = self.model.skipped_steps
        self.model.step()
        norm = self.model.get_global_grad_norm()
        return UpdateReport(norm, learning_rate, applied=self.model.skipped_steps == skipped)

    def _update_unsharded(self, learning_rate: float) -> UpdateReport:
        """Without ZeRO DeepSpeed tells no norm, and applies what is not finite: both are seen to here."""
        norm = float(gradient_norm(self.model.module.parameters()))  # the one read of an update
        applied = math.isfinite(norm)
        if applied:
            self.model.step()
        else:
            self.model.zero_grad()
        return UpdateReport(norm, learning_rate, applied=applied)

    def evaluating(self) -> AbstractContextManager[None]:
        return evaluation_mode(self.model)

    def weights(self, wanted: Callable[[str], bool] | None = None) -> Iterator[tuple[str, Tensor]]:
        in_pieces = dict(self.names.module.named_parameters()) if self.gathers else {}
        for name, parameter in in_pieces.items():  # one at a time: a gather holds one full tensor a rank
            if wanted is None or wanted(name):
                with _deepspeed().zero.GatheredParameters([parameter]):
                    yield name, parameter.detach()
        for name, tensor in named_weights(self.names.module):
            if name not in in_pieces and (wanted is None or wanted(name)):
                yield name, tensor

    def fragments(self) -> Iterator[Fragment]:
        return self._training_state().fragments()

    def counters(self) -> Counters:
        return self._training_state().counters()

    def restore(self, saved: SavedFragments) -> None:
        self._training_state().restore(saved)
        refresh(self.model, self.zero_stage)

    def _training_state(self) -> TrainingState:
        return training_state(
            self.model, self.names.module, self.zero_stage, rank=self.world.rank, ranks=self.world.size
        )
