"""`ike-data prepare` makes the very stores that the run looks for."""

import json
from pathlib import Path

from ike_core import TrainingPipeline, load_config
from ike_data.cli import command

RUN = """
[run]
root = "{folder}/runs"
[model]
path = "{model}"
[data]
cache = "{folder}/cache"
workers = 1
[data.train.processor]
uses = "ike_data:InstructionProcessor"
[data.train.sources.near]
files = ["rows.jsonl"]
[data.train.sources.far]
files = ["rows.jsonl"]
max_tokens = 64
[data.valid.few]
files = ["rows.jsonl"]
limit = 2
[objective]
uses = "ike_tasks:SFT"
[engine]
uses = "ike_core.runtime:PlainTorch"
[batch]
examples_per_step = 4
[length]
steps = 1
"""


def test_a_run_finds_what_was_prepared(stories: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "run.toml").write_text(RUN.format(folder=tmp_path, model=stories))
    rows = [{"prompt": f"Once {n}", "response": " upon a time"} for n in range(5)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    layer = str(tmp_path / "run.toml")
    assert command(["prepare", layer]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in told[::2]] == ["train.near data", "train.far data", "valid.few data"]
    assert all(line.startswith("  made in ") for line in told[1::2])
    prepared = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("*[0-9a-f]")}
    # far differs from near by max_tokens, which is the model's 512 where nothing is said; few by its limit.
    assert len([name for name in prepared if len(name) == 32]) == 3
    assert command(["prepare", layer]) == 0
    assert all(line.startswith("  was there already") for line in capsys.readouterr().out.splitlines()[1::2])
    TrainingPipeline(config=load_config(layer)).run()
    assert prepared == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("*[0-9a-f]")}
