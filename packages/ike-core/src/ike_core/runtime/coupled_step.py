"""A StepObjective's step: scores, one coupling, and the same scores again with gradient.

Gradient caching, Gao et al. 2021, arXiv:2101.06983: the gradient of a loss over scores s_1..s_E is
sum_e (d loss / d s_e) (d s_e / d theta), and the first factor needs only numbers. Exact for any cut of the examples.

E examples of the step, K scores an example.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ike_core.context import Context
from ike_core.errors import ConfigError
from ike_core.examples import AnyExample
from ike_core.feed import Batches, MicroBatch
from ike_core.interfaces import Engine, StepObjective
from ike_core.outputs import as_output
from ike_core.step_output import StepOutput

ContextOf = Callable[[MicroBatch, int], Context]
Begin = Callable[[int], None]


def coupled_step(
    engine: Engine,
    objective: StepObjective,
    micro_batches: Sequence[MicroBatch],
    examples: Sequence[AnyExample],
    weights: Mapping[str, float],
    context_of: ContextOf,
    begin: Begin,
) -> StepOutput:
    """Collective: both passes of a step; the gradient is accumulated. Returns the loss over all its examples.

    `begin(i)` says `Engine.begin` for the i-th micro-batch; both passes draw the same dropout.
    """
    with torch.no_grad():
        scores_EK = gathered_scores(engine, objective, micro_batches, len(examples), context_of, begin)
    scores_EK.requires_grad_()
    with torch.enable_grad():
        returned = objective.couple(scores_EK, examples, context_of(micro_batches[0], 0))
        output = as_output(returned, objective, learns=True)
        loss = sum(coefficient * mean.total / weights[mean.per] for coefficient, mean in output.terms)
        (slope_EK,) = torch.autograd.grad(loss, scores_EK)
    for number, micro in enumerate(micro_batches):
        begin(number)
        scores_eK = objective.scores(engine.model, engine.place(micro.batch), context_of(micro, number))
        mine_eK = slope_EK[_positions(micro, scores_eK)]
        engine.accumulate((scores_eK * mine_eK).sum() * engine.world.replicas)
    return output


def gathered_scores(
    engine: Engine,
    objective: StepObjective,
    micro_batches: Sequence[MicroBatch],
    count: int,
    context_of: ContextOf,
    begin: Begin,
) -> Tensor:
    """Collective: [E, K], every example's scores in the step's order, on every rank."""
    whole: Tensor | None = None
    for number, micro in enumerate(micro_batches):
        begin(number)
        scores_eK = objective.scores(engine.model, engine.place(micro.batch), context_of(micro, number)).detach()
        _check_shape(scores_eK, objective, micro)
        if whole is None:
            whole = scores_eK.new_zeros(count, scores_eK.shape[1])
        whole[_positions(micro, scores_eK)] = scores_eK
    assert whole is not None
    return engine.world.sum_tensor(whole)  # type: ignore[no-any-return]


def _check_shape(scores: Tensor, objective: StepObjective, micro: MicroBatch) -> None:
    if not micro.is_filler and (scores.ndim != 2 or len(scores) != len(micro.examples)):
        raise ConfigError(
            f"{type(objective).__name__}.scores returned {tuple(scores.shape)} for {len(micro.examples)} examples; it "
            "returns [E, K], a row an example"
        )


def _positions(micro: MicroBatch, scores: Tensor) -> Tensor:
    index = torch.tensor(micro.positions, dtype=torch.int64, pin_memory=scores.is_cuda)
    return index.to(scores.device, non_blocking=True)


def coupled_loss(
    objective: StepObjective,
    batches: Batches,
    engine: Engine,
    examples: Sequence[AnyExample],
    context_of: Callable[[tuple[AnyExample, ...], int], Context],
    number: int,
) -> StepOutput:
    """Collective, in evaluation mode: the loss over these examples, alike on every rank."""
    widened = objective.widen(examples)
    micro_batches = batches.make(widened.__getitem__, [len(example) for example in widened])

    def context(micro: MicroBatch, i: int) -> Context:
        return context_of(micro.examples, number + i)

    scores_EK = gathered_scores(engine, objective, micro_batches, len(widened), context, begin=lambda _: None)
    return as_output(objective.couple(scores_EK, widened, context_of((), number)), objective, learns=False)
