"""Nothing in a step waits for the device: from `place` to the end of `accumulate` no tensor's value is asked for.

Two witnesses that need no GPU. A dispatch mode refuses the calls that read a value, on real tensors; and a whole step
on the meta device, whose tensors have no values, so that whatever would read one must fail.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from ike_core import Batch, Comparison, Context, Example, Mean, Segment, StepOutput, TrainingPipeline, load_config
from ike_core.cutting import Cut
from ike_tasks import BCO, DPO, KTO, ORPO, SFT, CoupledDPO, Distillation, device_attention, target_logprobs

aten = torch.ops.aten
READS = {
    aten._local_scalar_dense.default,  # .item(), float(), int(), bool(), `if tensor`
    aten.nonzero.default,
    aten.masked_select.default,
    aten.equal.default,
    aten.bincount.default,
    aten._unique2.default,
    aten.repeat_interleave.Tensor,
}
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._unsafe_index.Tensor}


class WaitsError(AssertionError):
    """On a GPU the host would have waited here."""


class NoReads(TorchDispatchMode):
    """Refuses what would make the host wait for a device, on any device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READS:
            raise WaitsError(str(func))
        if func in INDEXING and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        ):
            raise WaitsError(f"{func} by a mask")  # its shape depends on the values
        return func(*args, **(kwargs or {}))


class Reads(TorchDispatchMode):
    """Counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in READS
        return func(*args, **(kwargs or {}))


# -- what is trained ----------------------------------------------------------------------------------------------


@attrs.frozen
class TokenRows:
    """{"prompt": [...], "answers": [[...], ...]}: one answer, or a tree of several."""

    def process(self, record: Mapping[str, Any]) -> Iterable[Example | Comparison]:
        prompt, answers = Segment.prompt(record["prompt"]), [Segment.answer(tokens) for tokens in record["answers"]]
        yield Example((prompt, answers[0])) if len(answers) == 1 else Comparison(prompt, tuple(answers))


def path_sums(model: Any, batch: Batch) -> Tensor:
    """[P]: the log-probability of each path's answer."""
    logp_N = target_logprobs(model, batch)
    return logp_N.new_zeros(batch["ends"].numel()).index_add(0, batch["target_paths"], logp_N)


@attrs.frozen
class TwoTerms:
    """Cross-entropy over tokens, and half the mean square over examples, which is a metric as well."""

    def __call__(self, model: Any, batch: Batch, context: Context) -> StepOutput:
        sums_P = path_sums(model, batch)
        tokens = Mean(-sums_P.sum(), batch.weights["tokens"])
        squares = Mean((sums_P / 100).square().sum(), batch.weights["examples"], per="examples")
        return StepOutput([(1.0, tokens), (0.5, squares)], {"square": squares})


@attrs.frozen
class Spread:
    """The variance over the step of the answers' log-probabilities / 100: a loss that couples examples."""

    def widen(self, examples: Sequence[Any]) -> Sequence[Any]:
        return examples

    def scores(self, model: Any, batch: Batch, context: Context) -> Tensor:
        return path_sums(model, batch).unsqueeze(1) / 100

    def couple(self, scores_EK: Tensor, examples: Sequence[Any], context: Context) -> StepOutput:
        centred_EK = scores_EK - scores_EK.mean(0)
        return StepOutput(Mean(centred_EK.square().sum(), float(len(examples)), per="examples"))


ROWS = [
    {"prompt": [3, 4, 5], "answers": [[6, 7]]},
    {"prompt": [8], "answers": [[9, 10, 11, 12]]},
    {"prompt": [13, 14], "answers": [[15]]},
    {"prompt": [16, 17, 18], "answers": [[19, 20, 21]]},
]
TREES = [
    {"prompt": [3, 4, 5], "answers": [[6, 7], [8]]},
    {"prompt": [9, 10], "answers": [[11], [12, 13], [14]]},
    {"prompt": [15, 16], "answers": [[17, 18], [19]]},
]

PAIRS = [
    {"prompt": [3, 4, 5], "answers": [[6, 7], [8]]},
    {"prompt": [9, 10], "answers": [[11], [12, 13]]},
    {"prompt": [15, 16], "answers": [[17, 18], [19]]},
]


def cut(sizes: Sequence[int], ranks: int, ceiling: Any, rows: Any) -> Cut:
    """Three micro-batches, the one between them filler."""
    return [[[0, 1], [], list(range(2, len(sizes)))]]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seeded; its heads are as large as the GPU's kernels ask for."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, eos_token_id=2,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


NewPipeline = Callable[..., TrainingPipeline]


@pytest.fixture
def new_pipeline(tmp_path: Path, llama: Path) -> NewPipeline:
    """Packed rows under the plain engine; built, and not yet run."""

    def build(objective: Any, *overrides: str, rows: Sequence[Mapping[str, Any]] = ROWS) -> TrainingPipeline:
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "run.toml").write_text(
            f"""
[run]
root = "runs"
[model]
path = "{llama}"
[data.train]
files = ["rows.jsonl"]
[engine]
uses = "ike_core.runtime:PlainTorch"
[optimizer]
peak_lr = 1e-3
[batch]
examples_per_step = {len(rows)}
packing = "required"
[length]
steps = 2
"""
        )
        return TrainingPipeline(
            train_forward_step_fn=objective,
            data_processor_classes=[TokenRows],
            config=load_config(tmp_path / "run.toml", "~checkpoint", *overrides),
            cut=cut,
        )

    return build


def steps(pipeline: TrainingPipeline) -> Iterator[Any]:
    return pipeline.parts.feed.steps(0, 2)


TEACHER = ('frozen.teacher.uses="ike_core.runtime:PretrainedModel"',)
REFERENCE = ('frozen.reference.uses="ike_core.runtime:PretrainedModel"',)
CASES = {
    "DPO": (DPO(), PAIRS, REFERENCE),
    "DPO, weighed": (DPO(loss={"sigmoid": 1.0, "discopop": 0.5}, ld_alpha=0.5, wpo=True), PAIRS, REFERENCE),
    "DPO, precomputed": (DPO(), PAIRS, (*REFERENCE, "frozen.reference.precomputed=true")),
    "coupled pairs": (CoupledDPO(loss={"aot": 1.0, "aot_unpaired": 1.0, "bco_pair": 1.0}), PAIRS, REFERENCE),
    "KTO": (KTO(), PAIRS, REFERENCE),
    "BCO": (BCO(), PAIRS, REFERENCE),
    "ORPO": (ORPO(), PAIRS, ()),
    "SFT": (SFT(), ROWS, ()),
    "SFT, activations recomputed": (SFT(), ROWS, ("model.activation_checkpointing=true",)),
    "SFT, every option of its loss": (SFT(label_smoothing=0.1, z_loss=1e-4, dft=True), ROWS, ()),
    "distillation": (Distillation(sft_weight=0.5), ROWS, TEACHER),
    "distillation, top k": (
        Distillation(divergence="jensen_shannon", top_k=4),
        ROWS,
        TEACHER,
    ),
    "two terms": (TwoTerms(), ROWS, ()),
    "two terms over trees": (TwoTerms(), TREES, ()),
    "a coupled loss": (Spread(), ROWS, ()),
}


@pytest.fixture(params=CASES)
def pipeline(request: pytest.FixtureRequest, new_pipeline: NewPipeline) -> TrainingPipeline:
    objective, rows, overrides = CASES[request.param]
    return new_pipeline(objective, *overrides, rows=rows)


# -- the promise --------------------------------------------------------------------------------------------------


def test_a_step_reads_no_value_from_place_to_the_end_of_accumulate(pipeline: TrainingPipeline) -> None:
    for step in steps(pipeline):
        with NoReads():
            tally = pipeline.accumulate(step, pipeline.parts.objective)
        pipeline.update(step, tally)


def test_noise_on_the_embeddings_reads_no_value(new_pipeline: NewPipeline) -> None:
    """Not on the meta device, which has no generators."""
    pipeline = new_pipeline(SFT(neftune_alpha=5.0))
    step = next(steps(pipeline))
    with NoReads():
        pipeline.accumulate(step, pipeline.parts.objective)


def test_a_step_can_be_computed_where_tensors_have_no_values(pipeline: TrainingPipeline) -> None:
    engine = pipeline.parts.engine
    engine.world.device = torch.device("meta")
    for model in (engine.model, *pipeline.parts.frozen.values()):
        model.to("meta")
    for step in steps(pipeline):
        pipeline.accumulate(step, pipeline.parts.objective)
    assert all(parameter.grad.is_meta for parameter in engine.model.parameters())


def test_an_update_of_the_plain_engine_reads_one_number(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline(TwoTerms())
    for step in steps(pipeline):
        with Reads() as reads:
            pipeline.train_step(step)
        assert reads.count == 1  # is the norm finite?


def test_the_road_of_flat_rows_in_half_precision_reads_no_value(
    new_pipeline: NewPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's varlen attention as a GPU takes it, forward and backward, by shapes alone."""
    calls = []

    def by_varlen(*arguments: Any, **said: Any) -> Tensor:
        calls.append(arguments)
        return device_attention.by_varlen(*arguments, **said)

    pipeline = new_pipeline(SFT())
    engine = pipeline.parts.engine
    engine.world.device = torch.device("meta")
    engine.model.to("meta", torch.bfloat16)
    monkeypatch.setattr(device_attention, "choose", lambda query, layout, *, dropout: by_varlen)
    for step in steps(pipeline):
        pipeline.accumulate(step, pipeline.parts.objective)
    assert len(calls) == 2 * 3 * 2  # steps x micro-batches x layers
    assert all(parameter.grad.dtype == torch.bfloat16 for parameter in engine.model.parameters())


# -- the witnesses see ---------------------------------------------------------------------------------------------


class ReadsGoingBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * grad.item()


SLIPS: dict[str, Callable[[Tensor], Tensor]] = {
    ".item()": lambda sums: sums.sum() * sums[0].item(),
    "float()": lambda sums: sums.sum() * float(sums[0]),
    "if tensor": lambda sums: sums.sum() if sums.sum() < 0 else sums.mean(),
    "a mask": lambda sums: sums[sums < 0].sum(),
    "masked_select": lambda sums: sums.masked_select(sums < 0).sum(),
    "nonzero": lambda sums: sums.index_select(0, (sums < 0).nonzero()[:, 0]).sum(),
    "a set by a mask": lambda sums: sums.index_put([sums < 0], sums.new_zeros(())).sum(),
    "in the backward": lambda sums: ReadsGoingBack.apply(sums.sum()),
}


@attrs.frozen
class Slips:
    """An objective with a slip of the pen."""

    slip: Callable[[Tensor], Tensor]

    def __call__(self, model: Any, batch: Batch, context: Context) -> Mean:
        return Mean(self.slip(path_sums(model, batch)), batch.weights["tokens"])


@pytest.mark.parametrize("slip", SLIPS)
def test_the_mode_sees_an_objective_that_reads(slip: str, new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline(Slips(SLIPS[slip]))
    with pytest.raises(WaitsError), NoReads():
        pipeline.accumulate(next(steps(pipeline)), pipeline.parts.objective)


@pytest.mark.parametrize("read", [Tensor.item, Tensor.tolist, Tensor.cpu, Tensor.numpy, Tensor.nonzero, bool])
def test_the_meta_device_refuses_whoever_reads(read: Callable[[Tensor], Any]) -> None:
    with pytest.raises((RuntimeError, TypeError, NotImplementedError)):
        read(torch.ones((), device="meta"))
