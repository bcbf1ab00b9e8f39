"""Runs on one GPU: a seeded Llama whose heads the GPU's kernels take, and rows of token ids.

The whole folder takes two to four minutes on one card, most of it compiling. Without DeepSpeed its tests are skipped.
"""

import gc
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "distributed" / "slicing"))  # the grid's float64 yardstick, rows and objectives

PLAIN = ('engine.uses="ike_core.runtime:PlainTorch"', "engine.clip_norm=0.0")
STAGES = (0, 1, 2, 3)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder needs a GPU."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))


def zero(stage: int) -> tuple[str, ...]:
    return (f"engine.zero_stage={stage}", "engine.clip_norm=0.0")


ENGINES = {"plain": PLAIN} | {f"ZeRO-{stage}": zero(stage) for stage in STAGES}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Settings of one engine: the plain one, and DeepSpeed's four stages."""
    if request.param != "plain":
        request.getfixturevalue("deepspeed")
    return ENGINES[request.param]


@pytest.fixture
def deepspeed() -> None:
    """Skips where it is not installed; where it is and does not work, the test fails."""
    if find_spec("deepspeed") is None:
        pytest.skip("needs DeepSpeed, which is not installed")


@pytest.fixture(autouse=True, scope="module")
def _few_recompilations() -> Iterator[None]:
    """torch gives up compiling a function after 8 variants; a run makes fewer, a session of tests more."""
    yield
    torch.compiler.reset()
    gc.collect()


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four heads of 32, two of them keys'; wide weights, so that attention matters and float32 loses little."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True, pad_token_id=2, eos_token_id=2,
        initializer_range=0.1,
    )  # fmt: skip
    torch.manual_seed(11)
    folder = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def rows() -> list[dict[str, Any]]:
    """8 rows of 4 to 50 tokens, the latter part of each learned."""
    draw = random.Random(5)
    made = []
    for length in (4, 50, 13, 25, 7, 41, 18, 33):
        prompt = draw.randrange(1, length - 1)
        tokens = [draw.randrange(3, 500) for _ in range(length)]
        made.append({"tokens": tokens, "learned": [int(place >= prompt) for place in range(length)]})
    return made


def three_micro_batches(sizes: Sequence[int], ranks: int, ceiling: Any, rows: Any) -> list[list[list[int]]]:
    """The one between them is filler."""
    return [[[0, 1, 2], [], list(range(3, len(sizes)))]]


NewPipeline = Callable[..., Any]


@pytest.fixture
def new_pipeline(tmp_path: Path, llama: Path, rows: list[dict[str, Any]]) -> NewPipeline:
    """A training pipeline over packed rows, not built yet: (objective, *overrides, model=, processor=, rows=)."""
    from parts import TokenRows

    from ike_core import TrainingPipeline, load_config

    def build(
        objective: Any, *overrides: str, model: Any = None, processor: Any = TokenRows, data: Any = rows
    ) -> TrainingPipeline:
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
        (tmp_path / "run.toml").write_text(
            f"""
[run]
name = "gpu"
root = "runs"
[model]
path = "{llama}"
[data.train]
files = ["rows.jsonl"]
[optimizer]
uses = "ike_core.runtime:SGD"
peak_lr = 0.1
[schedule]
shape = "constant"
[batch]
examples_per_step = {len(data)}
packing = "required"
[length]
steps = 3
[cadence]
log = {{ steps = 1 }}
evaluate = {{ steps = 100 }}
"""
        )
        return TrainingPipeline(
            model=model,
            train_forward_step_fn=objective,
            data_processor_classes=[processor],
            config=load_config(tmp_path / "run.toml", *overrides),
            cut=three_micro_batches,
        )

    return build


def logged(pipeline: Any) -> list[dict[str, Any]]:
    """The steps' lines of the log."""
    lines = (pipeline.parts.setup.folder / "log.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if "grad_norm" in line]


@pytest.fixture
def log() -> Callable[[Any], list[dict[str, Any]]]:
    return logged
