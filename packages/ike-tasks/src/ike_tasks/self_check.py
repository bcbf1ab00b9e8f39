"""Once, at the start: does the model, as it will be called, say what it says when it reads each text alone?

P paths of the sample.

Every comparison goes through `model(...)`, so that it is the forward that trains, ZeRO-3 included. What is run follows
from the examples and the model, which are the same on every rank: so is the number of forwards.
"""

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ike_core.batch import Batch, Vocabulary
from ike_core.errors import TrainingError
from ike_core.examples import AnyExample, Comparison, Example, Segment
from ike_core.interfaces import Collate
from ike_tasks import attention
from ike_tasks.logprobs import target_logprobs
from ike_tasks.scoring import pick_logprobs, prepared

SAMPLE = 4
"""Examples that are compared: the shortest, since each path costs a forward of its own."""
TOLERANCE = 1e-4
"""Largest relative difference of a path's summed log-probability in float32 and float64."""
HALF_TOLERANCE = 0.02
"""The same in bf16 and fp16; or twice the difference between two orders of the same rows, where that is more."""


def check_head(model: nn.Module, examples: Sequence[AnyExample], vocabulary: Vocabulary, *, padded: Collate) -> str:
    """Collective under ZeRO-3. Turns to full logits where the lean head differs from them; says so, or ''."""
    scoring, trial = prepared(model), _Trial.of(model, examples, vocabulary)
    if not scoring.is_lean or not trial.sample:
        return ""
    off = difference(trial.scores(padded), trial.own_scores(padded, trial.sample))
    if off <= trial.tolerance(padded):
        return ""
    scoring.is_lean = False
    return f"log-probabilities come from full logits: the lean head's are off by {off:.1e} of the model's own"


def choose(
    model: nn.Module,
    examples: Sequence[AnyExample],
    vocabulary: Vocabulary,
    *,
    packed: Collate,
    padded: Collate,
    packing: str,
) -> tuple[Collate, str]:
    """Collective under ZeRO-3. `packed` where the model reads such rows right; else `padded`, and why.

    TrainingError where packing is 'required' and can't be had, and where padded rows are read wrong as well.
    """
    said = check_head(model, examples, vocabulary, padded=padded)
    trial = _Trial.of(model, examples, vocabulary)
    refusal = prepared(model).packing_refusal or (trial.packing_refusal(packed, padded) if trial.sample else "")
    if not refusal:
        return packed, said
    if packing == "required":
        raise TrainingError(f"batch.packing = 'required', but {refusal}; set batch.packing = 'auto' to pad instead")
    return padded, "; ".join(filter(None, [said, f"rows are padded, not packed: {refusal}"]))


def difference(scores_P: Tensor, reference_P: Tensor) -> float:
    """Largest difference relative to the reference, or to 1 where that is less."""
    return ((scores_P - reference_P).abs() / reference_P.abs().clamp(min=1.0)).max().item()


@attrs.frozen
class _Trial:
    """The model, and the texts that it reads in several ways."""

    model: nn.Module
    sample: tuple[AnyExample, ...]
    vocabulary: Vocabulary
    device: torch.device
    is_half: bool

    @classmethod
    def of(cls, model: nn.Module, examples: Sequence[AnyExample], vocabulary: Vocabulary) -> "_Trial":
        shortest = sorted((example for example in examples if len(example) > 1), key=len)[:SAMPLE]
        sample = tuple(_supervised_throughout(example) for example in shortest)
        parameter = next(model.parameters())
        is_half = parameter.dtype in (torch.bfloat16, torch.float16)
        # alone in its row, a document has no other that it could see
        return cls(model, sample * 2 if len(sample) == 1 else sample, vocabulary, parameter.device, is_half)

    def packing_refusal(self, packed: Collate, padded: Collate) -> str:
        """What is wrong with packed rows; '' where nothing is."""
        tolerance = self.tolerance(padded)
        alone_P = torch.cat([self.own_scores(padded, [path]) for path in _paths(self.sample)])
        off = difference(self.scores(padded), alone_P)
        if not off <= tolerance:  # so that nan is no agreement
            raise TrainingError(
                f"padded rows give log-probabilities that are off by {off:.1e} of those of each text alone (more than "
                f"{tolerance:.1e}); set batch.examples_per_device = 1 and batch.packing = 'off'"
            )
        with attention.witnessed() as witness:
            packed_P = self.scores(packed)
        layers = _attention_layers(self.model)
        if witness.refusals:
            return witness.refusals[0]
        if len(witness.layers) != layers:
            return f"{len(witness.layers)} of {layers} layers were told where documents end"
        off = difference(packed_P, alone_P)
        return "" if off <= tolerance else f"packed rows are off by {off:.1e} of each text alone"

    def tolerance(self, padded: Collate) -> float:
        """In half precision the same rows in another order already differ."""
        if not self.is_half:
            return TOLERANCE
        paths = _paths(self.sample)
        backwards_P = self._path_sums(self._batch(padded, paths[::-1])).flip(0)
        return max(HALF_TOLERANCE, 2 * difference(backwards_P, self.scores(padded)))

    def scores(self, collate: Collate) -> Tensor:
        """As objectives see them: a sum a path, [P]."""
        return self._path_sums(self._batch(collate, self.sample))

    def own_scores(self, padded: Collate, examples: Sequence[AnyExample]) -> Tensor:
        """By the model's own logits of padded rows, [P]."""
        batch = self._batch(padded, examples)
        output = self.model(**prepared(self.model).inputs(batch))
        return _sum_by_path(pick_logprobs(output if isinstance(output, Tensor) else output.logits, batch), batch)

    def _path_sums(self, batch: Batch) -> Tensor:
        return _sum_by_path(target_logprobs(self.model, batch), batch)

    def _batch(self, collate: Collate, examples: Sequence[AnyExample]) -> Batch:
        batch = collate.collate(examples, self.vocabulary)
        return attrs.evolve(batch, tensors={name: tensor.to(self.device) for name, tensor in batch.tensors.items()})


def _supervised_throughout(example: AnyExample) -> AnyExample:
    trunk = Segment.answer(example.trunk.tokens)
    branches = tuple(Segment.answer(branch.tokens) for branch in example.branches)
    return Comparison(trunk, branches) if branches else Example((trunk,))


def _paths(examples: Sequence[AnyExample]) -> list[AnyExample]:
    """Each path as an example of its own; a trunk is supervised in the first only, as it is in a tree."""
    paths: list[AnyExample] = []
    for example in examples:
        if not example.branches:
            paths.append(example)
        for number, branch in enumerate(example.branches):
            trunk = Segment.prompt(example.trunk.tokens) if number else example.trunk
            paths.append(Example((trunk, branch)))
    return paths


def _sum_by_path(logp_N: Tensor, batch: Batch) -> Tensor:
    return logp_N.new_zeros(batch["ends"].numel()).index_add(0, batch["target_paths"], logp_N)


def _attention_layers(model: nn.Module) -> int:
    lm = prepared(model).lm
    assert isinstance(lm, PreTrainedModel)  # others have a packing_refusal
    layers: int = lm.config.get_text_config().num_hidden_layers
    return layers
