"""The keys that a run file may have: all that have code are accepted and read, and no other is."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import tomli

from ike_core.config import check_parts_by_source, load_config
from ike_core.config.schema import keys, named, section
from ike_core.config.sections import RunSection, Sections
from ike_core.errors import ConfigError

RUN = """
[run]
name = "whole"
root = "kept"
seed = 5
group = "mine"
[model]
uses = "ike_core.runtime:PretrainedModel"
path = "model"
attention = "sdpa"
activation_checkpointing = true
freeze = ["embed"]
[frozen.reference]
uses = "ike_core.runtime:PretrainedModel"
path = "model"
attention = "eager"
dtype = "bfloat16"
precomputed = true
[tokenizer]
uses = "ike_data:HFTokenizer"
path = "model"
[data.train]
files = ["rows.jsonl"]
limit = 100
max_tokens = 256
too_long = "truncate_left"
processor = { uses = "ike_data:ChatProcessor" }
[data.valid.helpful]
files = ["rows.jsonl"]
limit = 10
max_tokens = 128
too_long = "truncate_right"
processor = { uses = "ike_data:InstructionProcessor", columns = { prompt = "question", response = "answer" } }
[data.holdout]
count = 5
[data]
cache = "processed"
workers = 2
[data.ledger]
budget = 0.5
[objective]
uses = "ike_tasks:SFT"
[engine]
uses = "ike_core.runtime:DeepSpeed"
zero_stage = 3
precision = "bf16"
clip_norm = 0.5
on_nonfinite = "skip"
skip_budget = 3
raw = { zero_optimization = { reduce_bucket_size = 1000 } }
[optimizer]
uses = "ike_core.runtime:AdamW"
peak_lr = 2e-4
weight_decay = 0.1
[optimizer.groups.head]
match = "lm_head"
lr_scale = 10.0
weight_decay = 0.0
schedule = { uses = "ike_core:Schedule", shape = "linear" }
[schedule]
uses = "ike_core:Schedule"
shape = "wsd"
warmup_steps = 3
final_share = 0.1
[batch]
examples_per_step = 17
tokens_per_device = 512
examples_per_device = 4
packing = "required"
collate = { uses = "ike_tasks:Packed" }
[length]
steps = 20
[cadence]
log = { steps = 1 }
evaluate = { epochs = 0.25 }
save = { steps = 7 }
[evaluate.answers]
uses = "ike_tasks:Generate"
files = ["rows.jsonl"]
limit = 3
cadence = { steps = 5 }
processor = { uses = "ike_data:ChatProcessor" }
max_tokens = 64
too_long = "truncate_left"
[inference]
uses = "ike_tasks:Generate"
files = ["rows.jsonl"]
output = "answers.jsonl"
limit = 9
[checkpoint]
uses = "ike_ckpt:SafetensorsStore"
keep_last = 3
export = "every"
[hooks.watcher]
uses = "lab:Watcher"
[trackers.lines]
uses = "ike_core:JsonLinesTracker"
[launch]
ranks = 2
port = 29600
[user]
anything = "goes"
"""
OTHERWISE = """
[model]
path = "model"
train = ["layers"]
[data.train]
mix_by = "tokens"
[data.train.sources.math]
files = ["rows.jsonl"]
limit = 9
weight = 2.0
max_repeats = 4
max_tokens = 99
too_long = "truncate_right"
processor = { uses = "ike_data:ChatProcessor" }
[data.train.sources.own]
source = { uses = "lab:Rows" }
weight = 1.0
[data.train.stages.late]
from_step = 5
weights = { math = 1.0 }
[data.holdout]
share = 0.1
[engine]
uses = "ike_core.runtime:PlainTorch"
precision = "fp64"
[length]
epochs = 2.5
[cadence]
log = { epochs = 0.5 }
evaluate = { steps = 2 }
save = { epochs = 1.0 }
[evaluate.answers]
uses = "ike_tasks:Generate"
files = ["rows.jsonl"]
cadence = { epochs = 2.0 }
[launch]
ranks = "auto"
"""
OWN_ROWS = """
[data.train.source]
uses = "lab:Rows"
count = 3
[data.valid.own]
source = { uses = "lab:Rows", count = 2 }
"""
ADAPTED = """
[model]
path = "model"
[model.lora]
rank = 8
alpha = 16.0
dropout = 0.1
target_modules = ["q_proj"]
modules_to_save = ["embed_tokens"]
variant = "dora"
"""
LAB = """
import attrs
@attrs.frozen
class Watcher:
    def after_update(self, report, context): ...
@attrs.frozen
class Rows:
    count: int = 1
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        return {"number": index}
"""

PROMISED = """
run.tags run.notes data.valid.helpful.cadence
engine.offload length.patience evaluate.answers.output inference.cadence inference.processor inference.max_tokens
inference.too_long checkpoint.keep_best checkpoint.monitor checkpoint.better launch.hosts
launch.hostfile launch.slurm.partition launch.env.NCCL_DEBUG
""".split()
"""Keys that the design has and no code yet."""


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "lab.py").write_text(LAB)
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    return path


def said(text: str) -> dict[str, Any]:
    """The tree of a run file, each path as the folder of the file makes it."""
    return absolute(tomli.loads(text), "")


def absolute(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: absolute(inner, name) for name, inner in value.items()}
    if key == "files":
        return [str(Path.cwd() / name) for name in value]
    return str(Path.cwd() / value) if key in ("root", "path", "output", "cache") else value


def is_part_of(part: Any, whole: Any) -> bool:
    """Whether every value of a tree is in another at the same place."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(name in whole and is_part_of(part[name], whole[name]) for name in part)
    return bool(part == whole and type(part) is type(whole))


def test_every_key_with_code_is_accepted_and_shown_as_it_was_said(run_file: Path) -> None:
    shown = subprocess.run(["ike-launch", "config", "run.toml"], capture_output=True, text=True, timeout=60)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert is_part_of(said(RUN), tomli.loads(shown.stdout))


@pytest.mark.parametrize("text", [OTHERWISE, OWN_ROWS, ADAPTED])
def test_the_other_of_alternatives_is_accepted_as_well(run_file: Path, text: str) -> None:
    run_file.write_text(text)
    config = load_config(run_file)
    assert not check_parts_by_source(config)
    assert is_part_of(said(text), config.tree)


def test_every_key_is_read_into_its_type(run_file: Path) -> None:
    config = load_config(run_file)
    assert (config.run.root, config.run.seed, config.batch.examples_per_step) == (Path.cwd() / "kept", 5, 17)
    assert config.cadence.save is not None
    assert (config.cadence.save.steps, config.cadence.evaluate.epochs) == (7, 0.25)
    assert config.frozen["reference"].dtype == "bfloat16"
    assert config.optimizer.groups["head"].lr_scale == 10.0
    assert config.engine.part.build().zero_stage == 3
    assert config.schedule.build().final_share == 0.1
    assert config.checkpoint is not None
    assert config.checkpoint.build().export == "every"
    assert config.user == {"anything": "goes"}


def known(cls: type, key: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every key of ike's own, '*' where a name of the user's stands; a section's part is no key."""
    for name, field in keys(cls).items():
        inner: Any = named(field.type)
        place = (*key, name) if inner is None else (*key, name, "*")
        cls_inside = section(field.type if inner is None else inner)
        if cls_inside is None:
            yield place
        else:
            yield from known(cls_inside, place)


def used(text: str) -> set[tuple[str, ...]]:
    """Every key of a run file and every table around it, '*' for the user's names."""
    found: set[tuple[str, ...]] = set()

    def walk(value: Any, key: tuple[str, ...]) -> None:
        found.add(key)
        for name, inner in value.items() if isinstance(value, dict) else ():
            walk(inner, (*key, "*" if is_named(key) else name))

    walk(tomli.loads(text), ())
    return found


def is_named(key: tuple[str, ...]) -> bool:
    return (*key, "*") in NAMED


NAMED = {place[: i + 1] for place in known(Sections, ()) for i, part in enumerate(place) if part == "*"}


def test_the_files_leave_no_key_out() -> None:
    """`run.import_from` aside, which ike writes itself."""
    assert "import_from" in attrs.fields_dict(RunSection)
    assert set(known(Sections, ())) - used(RUN) - used(OTHERWISE) - used(OWN_ROWS) - used(ADAPTED) == {
        ("run", "import_from")
    }


@pytest.mark.parametrize("key", PROMISED)
def test_a_key_without_code_is_refused_before_anything_starts(run_file: Path, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_parts_by_source(load_config(run_file, f"{key}={json.dumps('x')}"))
    place, _, rest = str(refused.value).partition(" is no ")
    assert f"{key}.".startswith(f"{place}.")
    assert place.count(".") >= 1
    assert rest.startswith(("known key", "field of"))
    assert f"(override {key}=" in rest
