"""A run that nobody holds any more leaves nothing in the process: the next one finds its memory free.

The file is its own child, which trains and drops one pipeline an engine: `python test_two_runs.py FOLDER`.
"""

import gc
import json
import sys
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from ranks import Ranks
from transformers import LlamaConfig, LlamaForCausalLM

from ike_core import Example, TrainingPipeline, load_config
from ike_tasks import SFT

ENGINES = {
    "plain": ('engine.uses="ike_core.runtime:PlainTorch"',),
    **{f"ZeRO-{stage}": (f"engine.zero_stage={stage}",) for stage in (0, 1, 2, 3)},
    **{f"ZeRO-{stage} bf16": (f"engine.zero_stage={stage}", 'engine.precision="bf16"') for stage in (1, 3)},
}


@attrs.frozen
class TokenRows:
    def process(self, record: Mapping[str, Any]) -> Iterable[Example]:
        yield Example.of(record["tokens"], [0.0] + [1.0] * (len(record["tokens"]) - 1))


def write(folder: Path) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, eos_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder / "model")
    (folder / "rows.jsonl").write_text("".join(json.dumps({"tokens": [3, 4, 5 + row]}) + "\n" for row in range(4)))
    (folder / "run.toml").write_text(
        f"""
[run]
root = "runs"
[model]
path = "{folder / "model"}"
[data.train]
files = ["rows.jsonl"]
[engine.raw.zero_optimization]
reduce_bucket_size = 1000
[batch]
examples_per_step = 4
[length]
steps = 2
"""
    )


def kept(folder: Path, *overrides: str) -> list[str]:
    """What is still there of a run when it is over: of its engine, its optimizer and its parameters."""

    def train() -> dict[str, weakref.ref[Any]]:
        pipeline = TrainingPipeline(
            train_forward_step_fn=SFT(),
            data_processor_classes=[TokenRows],
            config=load_config(folder / "run.toml", "~checkpoint", *overrides),
        )
        pipeline.run()
        engine = pipeline.parts.engine
        optimizer = engine.optimizer if "PlainTorch" in overrides[0] else engine.model.optimizer
        named = {"engine": engine.model, "optimizer": optimizer, **dict(engine.names.module.named_parameters())}
        return {name: weakref.ref(thing) for name, thing in named.items()}

    seen = train()
    gc.collect()
    gc.collect()
    return [name for name, thing in seen.items() if thing() is not None]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, ranks: Ranks) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("two-runs")
    write(folder)
    ranks(1, __file__, folder, deadline_seconds=240).check()
    return json.loads((folder / "kept.json").read_text())


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_is_kept_of_a_run_that_is_over(engine: str, found: dict[str, list[str]]) -> None:
    assert found[engine] == []


if __name__ == "__main__":
    place = Path(sys.argv[1])
    found_by_engine = {name: kept(place, *overrides) for name, overrides in ENGINES.items()}
    (place / "kept.json").write_text(json.dumps(found_by_engine))
