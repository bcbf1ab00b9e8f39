"""Adapters from a run to a file, to peft, to a merged model, and back into runs.

One run a kind of adapter, in plain torch on a tiny Llama that knows nothing; 4 steps at a rate that moves it.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from ike_ckpt.cli import command
from ike_core import (
    Batch,
    Context,
    Example,
    InferencePipeline,
    Mean,
    StepOutput,
    TrainingPipeline,
    Vocabulary,
    load_config,
)
from ike_tasks import SFT, target_logprobs

pytest.importorskip("peft")

IDS = torch.tensor([[5, 9, 2, 40, 33, 17, 8]])
PLAIN = ('engine.uses="ike_core.runtime:PlainTorch"', "optimizer.peak_lr=0.05")


@attrs.frozen
class TokenRows:
    def process(self, record: Mapping[str, Any]) -> Iterable[Example]:
        yield Example.of(record["tokens"], [0.0] + [1.0] * (len(record["tokens"]) - 1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    for name, is_tied in (("untied", False), ("tied", True)):
        config = LlamaConfig(
            vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=is_tied, pad_token_id=0,
            initializer_range=0.2,
        )  # fmt: skip
        torch.manual_seed(3)
        LlamaForCausalLM(config).save_pretrained(folder / name)
    rows = [{"tokens": [3 + (7 * row + 5 * place) % 50 for place in range(4 + row)]} for row in range(8)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "run.toml").write_text(
        """
[data.train]
files = ["rows.jsonl"]
[schedule]
shape = "constant"
[batch]
examples_per_step = 8
[length]
steps = 4
[cadence]
log = { steps = 1 }
"""
    )
    return folder


Trained = tuple[nn.Module, Path, list[dict[str, Any]]]


def train(folder: Path, root: str, *overrides: str, objective: Any = None, model: str = "untied") -> Trained:
    """The trained module, the folder of its last step, and the log."""
    said = (*PLAIN, f'run.root="{folder / root}"', f'model.path="{folder / model}"', *overrides)
    pipeline = TrainingPipeline(
        train_forward_step_fn=objective or SFT(),
        data_processor_classes=[TokenRows],
        config=load_config(folder / "run.toml", *said),
    )
    pipeline.run()
    run = folder / root / pipeline.file_id
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return pipeline.parts.engine.names.module, run / "step-000004", log


KINDS: dict[str, tuple[str, ...]] = {
    "lora": ("model.lora.rank=4", "model.lora.alpha=8.0"),
    "rslora": ("model.lora.rank=4", 'model.lora.variant="rslora"', 'model.lora.target_modules=["q_proj", "up_proj"]'),
    "dora": ("model.lora.rank=4", 'model.lora.variant="dora"'),
    "tied embeddings": ("model.lora.rank=2", 'model.lora.modules_to_save=["embed_tokens"]'),
    "untied head": ("model.lora.rank=2", 'model.lora.modules_to_save=["lm_head"]'),
}


@pytest.fixture(scope="module")
def trained(folder: Path) -> Callable[[str], Trained]:
    """Made once each."""
    made: dict[str, Trained] = {}

    def one(kind: str) -> Trained:
        if kind not in made:
            made[kind] = train(folder, kind.replace(" ", "-"), *KINDS[kind], model=model_of(kind))
        return made[kind]

    return one


def model_of(kind: str) -> str:
    return "tied" if kind == "tied embeddings" else "untied"


def logits_of(model: nn.Module) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model.eval()(IDS).logits
    return logits


@pytest.mark.parametrize("kind", KINDS)
def test_the_adapter_learns_and_the_base_stays(kind: str, trained, folder: Path) -> None:
    module, _, log = trained(kind)
    before = dict(AutoModelForCausalLM.from_pretrained(folder / model_of(kind)).named_parameters())
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            torch.testing.assert_close(parameter, before[name.replace(".base_layer", "")], rtol=0, atol=0)
    assert log[-1]["loss"] < 0.9 * log[0]["loss"]


@pytest.mark.parametrize("kind", KINDS)
def test_peft_reads_the_folder_and_says_the_same(kind: str, trained, folder: Path) -> None:
    from peft import PeftModel

    module, step, _ = trained(kind)
    assert not (step / "model/model.safetensors").exists()
    base = AutoModelForCausalLM.from_pretrained(folder / model_of(kind))
    wrapped = PeftModel.from_pretrained(base, step / "model")
    torch.testing.assert_close(logits_of(wrapped), logits_of(module), rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_merged_model_says_what_the_adapter_does(kind: str, trained, folder: Path) -> None:
    module, step, _ = trained(kind)
    out = folder / f"merged-{kind}"
    assert command(["export", str(step), str(out), "--merge"]) == 0
    merged, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert far(merged, module) < 1e-6  # weights rounded once to float32
    assert far(AutoModelForCausalLM.from_pretrained(folder / model_of(kind)), module) > 0.02


def far(one: nn.Module, other: nn.Module) -> float:
    """Distance of the logits, in norms of the other's."""
    return float((logits_of(one) - logits_of(other)).norm() / logits_of(other).norm())


def test_transformers_reads_the_folder_with_its_base(trained) -> None:
    """Not of DoRA: transformers 5.23 leaves out the magnitudes, in peft's own files too."""
    module, step, _ = trained("lora")
    assert far(AutoModelForCausalLM.from_pretrained(step / "model"), module) == 0


@pytest.mark.parametrize("kind", ["dora", "tied embeddings"])
def test_a_run_takes_the_folder_as_its_model(kind: str, trained, folder: Path) -> None:
    """A second adapter learns on the first; each folder stands for all beneath it, merged in a chain too."""
    module, step, _ = trained(kind)
    again, second, _ = train(folder, f"on-{kind}", "model.lora.rank=2", model=str(step / "model"))
    for layer in again.modules():
        if "_disable_adapters" in vars(layer):
            layer._disable_adapters = True
    assert far(again, module) < 1e-6
    for layer in again.modules():
        if "_disable_adapters" in vars(layer):
            layer._disable_adapters = False
    assert command(["export", str(second.parent), str(folder / f"chain-{kind}"), "--merge"]) == 0
    assert far(AutoModelForCausalLM.from_pretrained(folder / f"chain-{kind}"), again) < 2e-6


@attrs.frozen
class FarFromReference:
    """Cross-entropy, and the square of each token's distance from the reference."""

    def __call__(self, model: nn.Module, batch: Batch, context: Context) -> StepOutput:
        logp_N = target_logprobs(model, batch)
        reference_N = target_logprobs(context.frozen["reference"], batch)
        moved_N = logp_N - reference_N
        weight = batch.weights["tokens"]
        return StepOutput(
            Mean(moved_N.square().sum() - logp_N.sum(), weight),
            {"reference": Mean(reference_N.sum(), weight), "moved": Mean(moved_N.detach().abs().sum(), weight)},
        )


@attrs.frozen
class NextToken:
    """What the model says after each record's tokens."""

    def prepare(self, record: Mapping[str, Any]) -> Example:
        return Example.of(record["tokens"], [0.0] * len(record["tokens"]))

    def collate(self, examples: Sequence[Example], vocabulary: Vocabulary) -> Batch:
        ids = torch.tensor([list(examples[0].segments[0].tokens) if examples else [vocabulary.pad]])
        return Batch({"input_ids": ids}, {})

    def __call__(self, model: nn.Module, batch: Batch, context: Context) -> Sequence[Mapping[str, Any]]:
        logits = model(batch["input_ids"]).logits[0, -1].tolist()
        return [{"logits": logits} for _ in context.examples]

    def metrics(self, rows: Iterable[Mapping[str, Any]]) -> Mapping[str, float]:
        return {}


def test_inference_takes_the_folder_as_its_model(trained, folder: Path) -> None:
    """With the layers that trained it: [model.lora] makes no new adapter for a model that only runs."""
    module, step, _ = trained("dora")
    (folder / "asked.jsonl").write_text(json.dumps({"tokens": IDS[0].tolist()}) + "\n")
    config = load_config(
        folder / "run.toml", *PLAIN, *KINDS["dora"], f'model.path="{step / "model"}"', f'run.root="{folder / "infer"}"',
        f'inference.files=["{folder / "asked.jsonl"}"]', f'inference.output="{folder / "answers.jsonl"}"',
        'batch.examples_per_device=1',
    )  # fmt: skip
    out = InferencePipeline(task=NextToken(), config=config).run()
    (row,) = (json.loads(line) for line in out.read_text().splitlines())
    torch.testing.assert_close(torch.tensor(row["logits"]), logits_of(module)[0, -1], rtol=1e-5, atol=1e-5)


REFERENCE = 'frozen.reference.uses="ike_core.runtime:PretrainedModel"'


def test_the_reference_is_the_policy_with_its_adapter_off(folder: Path) -> None:
    """Exactly the base at every step: no distance at the first, and then numbers to the bit as a copy's."""
    lora = ("model.lora.rank=4", "model.lora.dropout=0.2", REFERENCE)
    _, _, log = train(folder, "off", *lora, objective=FarFromReference())
    _, _, copied = train(folder, "copy", *lora, 'frozen.reference.dtype="float32"', objective=FarFromReference())
    steps, as_copy = ([line for line in lines if "moved" in line] for lines in (log, copied))
    assert [line["reference"] for line in steps] == pytest.approx([steps[0]["reference"]] * 4, rel=1e-6)
    assert [line["moved"] for line in steps] == [line["moved"] for line in as_copy]
    assert [line["reference"] for line in steps] == [line["reference"] for line in as_copy]
    assert steps[-1]["moved"] > 0.1


def test_no_second_model_is_made_for_it(folder: Path) -> None:
    def frozen(*overrides: str) -> Any:
        said = (*PLAIN, f'run.root="{folder / "frozen"}"', f'model.path="{folder / "untied"}"', REFERENCE, *overrides)
        pipeline = TrainingPipeline(
            train_forward_step_fn=SFT(),
            data_processor_classes=[TokenRows],
            config=load_config(folder / "run.toml", *said),
        )
        policy = {id(parameter) for parameter in pipeline.parts.engine.model.parameters()}
        return {id(parameter) for parameter in pipeline.parts.frozen["reference"].parameters()} <= policy

    assert frozen("model.lora.rank=4")
    assert not frozen("model.lora.rank=4", 'model.lora.modules_to_save=["embed_tokens"]')  # what is beneath moves too
    assert not frozen("model.lora.rank=4", f'frozen.reference.path="{folder / "untied"}"')
    assert not frozen()
