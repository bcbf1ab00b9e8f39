"""`[checkpoint]`: a step is whole or absent, and the newest are kept."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch

from ike_ckpt import SafetensorsStore, read_weights
from ike_ckpt.disk import PARTIAL, REPLACED
from ike_core.errors import CheckpointError
from ike_core.interfaces import CheckpointStore, SavedModel
from ike_core.progress import Drawn, Progress


@attrs.frozen
class Alone:
    """The World of one process."""

    rank: int = 0
    size: int = 1
    is_first: bool = True

    def gather(self, value: Any) -> list[Any]:
        return [self.broadcast(value)]

    def broadcast(self, value: Any) -> Any:
        return json.loads(json.dumps(value))


@attrs.frozen
class Words:
    """A tokenizer that is one file."""

    def save(self, folder: Path) -> None:
        (folder / "tokenizer.json").write_text("{}")


def model_of(weights: Mapping[str, torch.Tensor] | Callable[[], Iterator[tuple[str, torch.Tensor]]]) -> SavedModel:
    give = weights if callable(weights) else lambda: iter(weights.items())
    return SavedModel(weights=give, config=None, generation_config=None, tokenizer=Words())


MODEL = model_of({"w": torch.ones(3)})


def save(
    store: SafetensorsStore, run: Path, step: int, model: SavedModel | None = MODEL, *, final: bool = False
) -> Path:
    progress = Progress(step=step, epoch=0.5, examples=9)
    return store.save(run, model=model, state=None, progress=progress, final=final, facts={})


def steps(run: Path) -> list[str]:
    return sorted(path.name for path in run.iterdir())


def test_the_store_is_a_checkpoint_store() -> None:
    assert isinstance(SafetensorsStore(), CheckpointStore)


def test_it_names_the_run(tmp_path) -> None:
    opened = SafetensorsStore().open_run("dpo", tmp_path, Alone(), identity="abc")
    assert opened.file_id.startswith("dpo-")
    assert opened.step is None
    assert json.loads((tmp_path / opened.file_id / "owner.json").read_text())["identity"] == "abc"
    opened.release()


def test_a_step_holds_model_tokenizer_and_progress(tmp_path) -> None:
    counts = {"epoch": 1.5, "examples": 4000, "tokens": 10**6, "supervised_tokens": 2.5, "skipped": 1}
    progress = Progress(step=500, **counts, sources={"math": Drawn(3, 70, 2.5)})
    facts = {"fingerprint": "abc", "versions": {"torch": "2"}}
    folder = SafetensorsStore().save(tmp_path, model=MODEL, state=None, progress=progress, final=True, facts=facts)
    assert folder == tmp_path / "step-000500"
    assert steps(folder) == ["manifest.json", "model", "progress.json"]
    assert steps(folder / "model") == ["model.safetensors", "tokenizer.json"]
    assert json.loads((folder / "progress.json").read_text()) == {
        "step": 500, **counts, "sources": {"math": {"examples": 3, "tokens": 70, "supervised_tokens": 2.5}},
        "final": True, "fingerprint": "abc", "versions": {"torch": "2"},
    }  # fmt: skip


def test_a_step_without_a_model_has_its_progress(tmp_path) -> None:
    assert steps(save(SafetensorsStore(), tmp_path, 3, None)) == ["manifest.json", "progress.json"]


def test_facts_can_not_hide_the_runs_counts(tmp_path) -> None:
    with pytest.raises(CheckpointError, match="can't be called step"):
        SafetensorsStore().save(tmp_path, model=None, state=None, progress=Progress(), final=False, facts={"step": 7})


def test_a_number_that_json_has_not_fails_the_save(tmp_path) -> None:
    with pytest.raises(CheckpointError, match="step-000000 was not saved"):
        SafetensorsStore().save(
            tmp_path, model=None, state=None, progress=Progress(), final=False, facts={"best": float("nan")}
        )
    assert steps(tmp_path) == []


@pytest.mark.parametrize(("export", "midway"), [("last_and_best", True), ("every", True), ("never", False)])
def test_which_saves_get_a_model(export, midway) -> None:
    assert SafetensorsStore(export=export).exports(final=False) is midway
    assert SafetensorsStore(export=export).exports(final=True) is True


@pytest.mark.parametrize("options", [{"keep_last": 0}, {"keep_last": -1}, {"export": "sometimes"}])
def test_keeping_nothing_is_no_choice(options) -> None:
    with pytest.raises(ValueError):
        SafetensorsStore(**options)


def test_the_newest_are_kept_and_never_fewer_than_one_is_complete(tmp_path) -> None:
    """Case B95. While a step is written, all that were complete before still are."""
    store, seen, counts = SafetensorsStore(keep_last=3), [], []

    def watching() -> Iterator[tuple[str, torch.Tensor]]:
        seen.append(sum("." not in name for name in steps(tmp_path)))
        yield "w", torch.ones(3)

    for step in range(1, 7):
        save(store, tmp_path, step, model_of(watching))
        counts.append(len(steps(tmp_path)))
    assert counts == [1, 2, 3, 3, 3, 3]
    assert seen == [0, 1, 2, 3, 3, 3]
    assert steps(tmp_path) == ["step-000004", "step-000005", "step-000006"]


def test_numbers_are_compared_as_numbers(tmp_path) -> None:
    for step in (999_999, 1_000_000, 1_000_001):
        save(SafetensorsStore(keep_last=2), tmp_path, step)
    assert steps(tmp_path) == ["step-1000000", "step-1000001"]


def test_a_stale_higher_step_is_not_kept_over_the_fresh_one(tmp_path) -> None:
    """Case B95: the run went on from an earlier step than the last it had saved."""
    save(SafetensorsStore(), tmp_path, 1000)
    save(SafetensorsStore(keep_last=1), tmp_path, 10)
    assert steps(tmp_path) == ["step-000010"]


def test_a_stale_step_goes_before_older_ones_of_the_same_life(tmp_path) -> None:
    for step in (500, 1000):
        save(SafetensorsStore(), tmp_path, step)
    save(SafetensorsStore(keep_last=2), tmp_path, 600)
    assert steps(tmp_path) == ["step-000500", "step-000600"]


def test_a_step_that_comes_again_replaces_the_one_that_is_there(tmp_path) -> None:
    save(SafetensorsStore(), tmp_path, 5)
    save(SafetensorsStore(), tmp_path, 5, model_of({"w": torch.zeros(3)}))
    assert steps(tmp_path) == ["step-000005"]
    assert read_weights(tmp_path / "step-000005" / "model")["w"].tolist() == [0.0] * 3


def test_what_a_killed_save_left_is_cleared(tmp_path) -> None:
    save(SafetensorsStore(), tmp_path, 5)
    (tmp_path / f"step-000010{PARTIAL}" / "model").mkdir(parents=True)
    (tmp_path / f"step-000005{REPLACED}").mkdir()
    save(SafetensorsStore(), tmp_path, 10)
    assert steps(tmp_path) == ["step-000005", "step-000010"]


def test_a_step_moved_aside_whose_successor_never_came_is_put_back(tmp_path) -> None:
    save(SafetensorsStore(), tmp_path, 5).rename(tmp_path / f"step-000005{REPLACED}")
    save(SafetensorsStore(), tmp_path, 10)
    assert steps(tmp_path) == ["step-000005", "step-000010"]
    assert read_weights(tmp_path / "step-000005" / "model")["w"].tolist() == [1.0] * 3


def test_a_step_that_is_removed_does_not_look_complete_while_it_goes(tmp_path, monkeypatch) -> None:
    save(SafetensorsStore(keep_last=1), tmp_path, 1)
    removed = []
    monkeypatch.setattr("ike_ckpt.disk.shutil.rmtree", lambda path: removed.append(path.name))
    save(SafetensorsStore(keep_last=1), tmp_path, 2)
    assert removed == [f"step-000001{PARTIAL}"]


def test_a_step_that_can_not_be_removed_is_told_apart_from_one_that_was_not_saved(tmp_path, monkeypatch) -> None:
    def busy(path: Path, *, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(16, "Device or resource busy")

    save(SafetensorsStore(keep_last=1), tmp_path, 1)
    monkeypatch.setattr("ike_ckpt.disk.shutil.rmtree", busy)
    with pytest.raises(CheckpointError, match=r"step-000002 is saved, but .*busy"):
        save(SafetensorsStore(keep_last=1), tmp_path, 2)


def test_other_things_in_the_run_folder_are_left_alone(tmp_path) -> None:
    for name in ("step-notes", "step-12", "code"):
        (tmp_path / name).mkdir()
    (tmp_path / "log.jsonl").write_text("")
    for step in (1, 2, 3):
        save(SafetensorsStore(keep_last=1), tmp_path, step)
    assert steps(tmp_path) == ["code", "log.jsonl", "step-000003", "step-12", "step-notes"]


def test_a_placeholder_fails_the_save_and_the_step_before_stays(tmp_path) -> None:
    """Case B89."""
    save(SafetensorsStore(keep_last=1), tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"step-000002 was not saved.*block\.weight has no values"):
        save(SafetensorsStore(keep_last=1), tmp_path, 2, model_of({"block.weight": torch.empty(0)}))
    assert steps(tmp_path) == ["step-000001"]


def test_when_rank_0_can_not_write_all_weights_are_gone_through(tmp_path) -> None:
    """Under ZeRO-3 each turn is a gather that the other ranks wait in."""
    turns = []

    def collective() -> Iterator[tuple[str, torch.Tensor]]:
        for number in range(5):
            turns.append(number)
            yield f"w{number}", torch.empty(0) if number == 1 else torch.ones(2)

    with pytest.raises(CheckpointError):
        save(SafetensorsStore(), tmp_path, 1, model_of(collective))
    assert turns == [0, 1, 2, 3, 4]


def test_everything_is_flushed_before_the_name_is_given(tmp_path, monkeypatch) -> None:
    """A power cut after the rename finds the content on disk; the name itself is flushed after."""
    events: list[str] = []
    real_fsync, real_rename = os.fsync, Path.rename

    def fsync(descriptor: int) -> None:
        events.append("flush " + os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))
        real_fsync(descriptor)

    def rename(self: Path, target: Path) -> Path:
        events.append(f"rename {target.name}")
        return real_rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    save(SafetensorsStore(), tmp_path, 1)
    named = events.index("rename step-000001")
    partial = "flush step-000001.partial"
    assert {partial, f"{partial}/model", f"{partial}/model/model.safetensors", f"{partial}/model/tokenizer.json",
            f"{partial}/progress.json", f"{partial}/manifest.json.partial"} <= set(events[:named])  # fmt: skip
    assert "flush ." in events[named:]


def test_the_model_form_is_half_the_masters_size(tmp_path) -> None:
    """Case B97: 1,000 bf16 parameters are 2,000 bytes of data, and load as bf16."""
    master = torch.randn(1000)
    folder = save(SafetensorsStore(), tmp_path, 1, model_of({"w": master.bfloat16()}))
    path = folder / "model" / "model.safetensors"
    header = int.from_bytes(path.read_bytes()[:8], "little")
    assert path.stat().st_size - 8 - header == 2000
    assert torch.equal(read_weights(folder / "model")["w"], master.bfloat16())
