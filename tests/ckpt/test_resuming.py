"""Which run a start goes on with."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from ike_ckpt import SafetensorsStore
from ike_ckpt.owner import claim, read_owner
from ike_ckpt.ranks import ScriptRanks
from ike_ckpt.resuming import Asked, Choice, choose
from ike_core.errors import CheckpointError
from ike_core.fragments import WEIGHT, Fragment
from ike_core.interfaces import SavedState
from ike_core.progress import Progress


def start(root: Path, resume: str = "auto", *, name: str = "sft", identity: str = "abc") -> Choice:
    return choose(Asked(name, root, identity), resume)


def save(choice: Choice, step: int, *, final: bool = False) -> Path:
    pieces = [Fragment(name="w", kind=WEIGHT, shape=(2,), start=0, values=torch.ones(2))]
    counters = {"parameters": {}, "groups": []}
    state = SavedState(fragments=lambda: iter(pieces), counters=lambda: counters)
    return SafetensorsStore().save(
        choice.owner.folder, model=None, state=state, progress=Progress(step=step), final=final, facts={}
    )


def killed(root: Path, *steps: int) -> Choice:
    """A run that saved these steps and is no more."""
    choice = start(root, "never")
    for step in steps:
        save(choice, step)
    choice.owner.release()
    return choice


def test_a_first_start_makes_a_run_and_has_nothing_to_say(tmp_path) -> None:
    choice = start(tmp_path)
    assert (choice.step, choice.note) == (None, "")
    assert read_owner(choice.owner.folder)["pid"] == os.getpid()


def test_a_dead_run_is_gone_on_with_from_its_newest_step(tmp_path) -> None:
    dead = killed(tmp_path, 5, 10)
    again = start(tmp_path)
    assert again.file_id == dead.file_id
    assert again.step.name == "step-000010"
    assert again.note.startswith(f"going on with {dead.file_id} after step-000010")


def test_a_run_killed_before_its_first_save_starts_from_zero_in_its_own_folder(tmp_path) -> None:
    dead = killed(tmp_path)
    again = start(tmp_path)
    assert (again.file_id, again.step) == (dead.file_id, None)
    assert "it had saved nothing yet" in again.note


def test_a_step_that_a_kill_left_halfway_is_not_gone_on_from(tmp_path) -> None:
    dead = killed(tmp_path, 5, 10)
    newest = dead.owner.folder / "step-000010"
    newest.rename(newest.with_name("step-000010.partial"))
    assert start(tmp_path).step.name == "step-000005"


def test_other_settings_or_another_name_begin_a_run_of_their_own(tmp_path) -> None:
    dead = killed(tmp_path, 5)
    assert start(tmp_path, identity="xyz").file_id != dead.file_id
    assert start(tmp_path, name="dpo").file_id != dead.file_id


def test_a_finished_run_stays_as_it_is(tmp_path) -> None:
    done = start(tmp_path)
    save(done, 10, final=True)
    done.owner.release()
    again = start(tmp_path)
    assert again.file_id != done.file_id
    assert again.note == f"a new run: {done.file_id} is finished"


def test_a_live_run_is_never_joined(tmp_path) -> None:
    alive = start(tmp_path)
    save(alive, 5)
    other = start(tmp_path)
    assert other.file_id != alive.file_id
    assert f"{alive.file_id} is alive (process {os.getpid()} on " in other.note


def test_a_process_that_is_killed_owns_nothing_any_more(tmp_path) -> None:
    code = "import sys, time; from pathlib import Path; from ike_ckpt.owner import claim\n"
    code += "assert claim(Path(sys.argv[1]), {}); print('owned', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "owned\n"
        assert claim(tmp_path, {}) is None
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(30)
    assert claim(tmp_path, {}) is not None


@pytest.mark.parametrize(("beats", "is_alive"), [(True, True), (False, False)])
def test_of_another_host_the_heartbeat_is_watched(tmp_path, monkeypatch, beats, is_alive) -> None:
    """A lock may not reach over a shared disk, and no two clocks need agree."""
    claim(tmp_path, {"host": "elsewhere"}).release()
    monkeypatch.setattr("ike_ckpt.owner.SILENCE_SECONDS", 0.5)
    count = 0

    def pause(_: float) -> None:
        nonlocal count
        count += 1
        owner = tmp_path / "owner.json"
        if beats:
            owner.write_text(owner.read_text().replace('"heartbeat": "2', f'"heartbeat": "{count}2', 1))
        time.monotonic()

    monkeypatch.setattr("ike_ckpt.owner.time.sleep", pause)
    assert (claim(tmp_path, {}) is None) is is_alive


def test_must_is_an_error_where_there_is_none(tmp_path) -> None:
    done = start(tmp_path)
    save(done, 10, final=True)
    done.owner.release()
    with pytest.raises(CheckpointError, match=f"no run of the name 'sft' .*{done.file_id} is finished"):
        start(tmp_path, "must")


def test_never_begins_anew(tmp_path) -> None:
    dead = killed(tmp_path, 5)
    assert start(tmp_path, "never").file_id != dead.file_id


def test_a_folder_names_the_run_or_the_very_step(tmp_path) -> None:
    dead = killed(tmp_path, 5, 10)
    by_run = start(tmp_path, str(dead.owner.folder))
    assert by_run.step.name == "step-000010"
    by_run.owner.release()
    assert start(tmp_path, str(dead.owner.folder / "step-000005")).step.name == "step-000005"


def test_a_folder_is_refused_where_it_is_alive_another_experiment_or_none(tmp_path) -> None:
    alive = start(tmp_path)
    save(alive, 5)
    with pytest.raises(CheckpointError, match="is alive"):
        start(tmp_path, str(alive.owner.folder))
    with pytest.raises(CheckpointError, match="other settings that change what is learned"):
        start(tmp_path, str(alive.owner.folder), identity="xyz")
    with pytest.raises(CheckpointError, match="'nowhere' is no folder"):
        start(tmp_path, "nowhere")
    with pytest.raises(CheckpointError, match="is no run of ike's"):
        start(tmp_path, str(tmp_path))


def test_what_is_not_trained_goes_on_with_nothing(tmp_path) -> None:
    dead = killed(tmp_path, 5)
    opened = SafetensorsStore().open_run("sft", tmp_path, ScriptRanks(), identity="")
    assert opened.file_id != dead.file_id
