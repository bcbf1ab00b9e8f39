"""The model that learns, those that don't, and the engine around them."""

import copy
from collections.abc import Mapping
from typing import Any

import attrs

from ike_core.batch import Vocabulary
from ike_core.config import Config
from ike_core.config.sections import FrozenSection, LoraSection
from ike_core.door import runtime
from ike_core.errors import ConfigError
from ike_core.interfaces import (
    BuildContext,
    Collate,
    Engine,
    EnginePart,
    EngineSettings,
    OptimizerPart,
    ParameterNames,
    SavedModel,
    Say,
    Tokenizer,
    World,
)


@attrs.frozen(kw_only=True)
class ModelBuilder:
    """Builds what one run needs of torch, in the order that ZeRO-3 wants."""

    config: Config
    engine_part: EnginePart
    world: World
    vocabulary: Vocabulary | None
    trains: bool
    say: Say
    """One line for the console."""

    def context(self, *, dtype: str | None = None, attention: str | None = None) -> BuildContext:
        model, precision = self.config.model, self.config.engine.precision
        return BuildContext(
            device=self.world.device,
            dtype=runtime("dtypes:named")(dtype or self.engine_part.dtype(precision=precision, trains=False)),
            attention=attention or (model.attention if model is not None else "auto"),
            vocabulary=self.vocabulary,
            world=self.world,
            seed=self.config.run.seed,
        )

    def model(self, given: Any) -> Any:
        """The module that learns: given, built by a given callable, or by `[model]`; what doesn't learn is frozen."""
        section = self.config.model
        with self.engine_part.building(precision=self.config.engine.precision):
            self._seed()
            if given is None:
                if section is None:
                    raise ConfigError("[model] is missing: say model.path, or give a model in Python")
                dtype = self.engine_part.dtype(precision=self.config.engine.precision, trains=self.trains)
                module = section.part.build().build(self.context(dtype=dtype))
            else:
                module = runtime("modules:given_module")(given)
            has_grown = self._grow(module, "the model")
            if self._lora is not None:
                self._seed()  # whatever was drawn before: adapters begin alike under every stage
                runtime("lora:add_adapter")(module, self._lora, has_grown=has_grown)
                self.say(f"{self._lora.variant}: {runtime('lora:learning_share')(module)}")
        if section is not None:
            runtime("freezing:apply_freeze")(module, section.freeze, section.train)
            if section.activation_checkpointing:
                runtime("activation_checkpointing:enable_activation_checkpointing")(module)
        return module

    def _grow(self, module: Any, called: str) -> bool:
        """Room for tokens that were added to the tokenizer; a model that has it already stays as it is."""
        rows = runtime("growing:grow_embeddings")(module, self.vocabulary)
        if rows:
            self.say(f"{called} has {rows[1]:,} embeddings, grown from {rows[0]:,} to fit tokenizer.add_tokens")
        return bool(rows)

    def _seed(self) -> None:
        """New weights are drawn alike on every rank, and by a second call."""
        runtime("seeds:seed_dropout")(self.config.run.seed)

    @property
    def _lora(self) -> LoraSection | None:
        """What is to be adapted; a model that only runs is as its files say."""
        return self.config.model.lora if self.config.model is not None and self.trains else None

    def frozen(self, policy: Any, *, given: Any, collate: Collate) -> dict[str, Any]:
        """Models that don't learn, on the device. Without a path: the policy as it stands now.

        Those that `adapter_off` makes are not among them.
        """
        return {
            name: self._frozen(name, policy, given, collate)
            for name, section in self.config.frozen.items()
            if not self._is_adapter_off(section, policy)
        }

    def adapter_off(self, policy: Any, engine: Engine) -> dict[str, Any]:
        """The policy with its adapter off, under the names of the frozen models that it is."""
        names = [name for name, section in self.config.frozen.items() if self._is_adapter_off(section, policy)]
        return dict.fromkeys(names, runtime("adapter_off:AdapterOff")(engine.model)) if names else {}

    def _is_adapter_off(self, section: FrozenSection, policy: Any) -> bool:
        """Whether it is the policy at step 0, and that stays beneath the adapter: nothing else learns."""
        model = self.config.model
        if self._lora is None or model is None or "path" in section.part.table:
            return False
        is_policy = section.part.uses == model.part.uses and section.dtype is None and section.attention == "auto"
        is_policy = is_policy and not section.precomputed
        return is_policy and not runtime("lora:whole_names")(policy)

    def _frozen(self, name: str, policy: Any, given: Any, collate: Collate) -> Any:
        section = self.config.frozen[name]
        own = "path" in section.part.table or self.config.model is None
        if not own and given is not None and runtime("modules:is_module")(given):
            module = copy.deepcopy(policy)
        elif not own and given is not None:
            self._seed()
            module = given()
        else:
            policy_part = {} if self.config.model is None else self.config.model.part.table
            part = attrs.evolve(section.part, table={**policy_part, **section.part.table})
            module = part.build().build(self.context(dtype=section.dtype, attention=section.attention))
        self._grow(module, f"frozen.{name}")
        return runtime("freezing:frozen")(collate.prepare(module.to(self.world.device)))

    def saved(self, module: Any, engine: Engine, tokenizer: Tokenizer | None) -> SavedModel:
        """What a checkpoint part writes: all of the model, or what was trained beside it."""
        saved: SavedModel
        if self._lora is None:
            saved = runtime("modules:saved_model")(module, engine.weights, tokenizer)
        else:
            assert self.config.model is not None
            base = self.config.model.part.table.get("path") or runtime("modules:folder_of")(module)
            saved = runtime("saved_adapter:saved_adapter")(module, engine, tokenizer, base=base)
        return saved

    def engine(self, module: Any, wrapped: Any, optimizer: Any) -> Engine:
        """Collective: the engine that trains."""
        section = self.config.engine
        made = EngineSettings(
            precision=section.precision,
            clip_norm=section.clip_norm,
            new_optimizer=lambda _: self._optimizer(module, optimizer),
        )
        return self.engine_part.build(wrapped, ParameterNames(module), settings=made, world=self.world)

    def engine_for_inference(self, module: Any, wrapped: Any) -> Engine:
        """Collective: the engine that only runs."""
        made = EngineSettings(precision=self.config.engine.precision, clip_norm=0.0)
        return self.engine_part.build_for_inference(wrapped, ParameterNames(module), settings=made, world=self.world)

    def _optimizer(self, module: Any, given: Any) -> Any:
        """What it does not hold does not learn, and has no gradient: stages differ in whose norm they clip by."""
        optimizer = self._made_optimizer(module, given)
        runtime("freezing:freeze_others")(module, optimizer)
        return optimizer

    def _made_optimizer(self, module: Any, given: Any) -> Any:
        section = self.config.optimizer
        if given is not None and not isinstance(given, OptimizerPart):
            return runtime("modules:given_optimizer")(given, module)
        part = section.part.build() if given is None else given
        named = list(module.named_parameters())
        groups = runtime("parameter_groups:parameter_groups")(named, section.groups, section.peak_lr)
        return part.build(named, groups, self.context())


def schedules(config: Config) -> Mapping[str, Any]:
    """By optimizer group; '' is the run's."""
    own = {
        name: group.schedule.build() for name, group in config.optimizer.groups.items() if group.schedule is not None
    }
    return {"": config.schedule.build(), **own}
