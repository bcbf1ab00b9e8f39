"""What a run that is gone on with does to its own files."""

import json

from ike_core import load_config
from ike_core.resumption import supersede
from ike_core.settings_file import write_settings

LINES = [json.dumps({"step": step, "loss": 1.0 / (1 + step)}) + "\n" for step in range(5)]


def test_lines_after_the_step_move_and_none_is_lost(tmp_path) -> None:
    (tmp_path / "log.jsonl").write_text("".join(LINES))
    supersede(tmp_path, 2)
    assert (tmp_path / "log.jsonl").read_text() == "".join(LINES[:3])
    assert (tmp_path / "log.superseded.jsonl").read_text() == "".join(LINES[3:])


def test_lines_that_move_later_come_behind_those_that_moved_before(tmp_path) -> None:
    (tmp_path / "log.jsonl").write_text("".join(LINES))
    supersede(tmp_path, 3)
    supersede(tmp_path, 2)
    assert (tmp_path / "log.superseded.jsonl").read_text() == LINES[4] + LINES[3]


def test_a_line_that_a_kill_cut_off_goes_with_them(tmp_path) -> None:
    (tmp_path / "log.jsonl").write_text("".join(LINES[:3]) + '{"step": 3, "lo')
    supersede(tmp_path, 3)
    assert (tmp_path / "log.jsonl").read_text() == "".join(LINES[:3])
    assert (tmp_path / "log.superseded.jsonl").read_text() == '{"step": 3, "lo\n'


def test_a_start_from_zero_leaves_no_line(tmp_path) -> None:
    (tmp_path / "log.jsonl").write_text("".join(LINES))
    supersede(tmp_path, -1)
    assert (tmp_path / "log.jsonl").read_text() == ""


def test_a_new_run_has_nothing_to_move(tmp_path) -> None:
    supersede(tmp_path, -1)
    assert list(tmp_path.iterdir()) == []


def test_what_settings_said_before_stays_in_the_file_that_still_runs(tmp_path) -> None:
    braces = 'run.group="{{run.name}"'  # an escaped brace is no difference
    write_settings(tmp_path, load_config("length.steps=3", braces), after="")
    write_settings(tmp_path, load_config("length.steps=6", braces), after="step-000003")
    last = load_config("length.steps=9", braces, "launch.ranks=4")
    write_settings(tmp_path, last, after="step-000006")
    said = (tmp_path / "config.toml").read_text()
    first, second = said.split("# Changed when the run was gone on with")[1:]
    assert first.splitlines() == [" after step-000003; it said before:", "#   length.steps = 3"]
    assert second.splitlines() == [
        " after step-000006; it said before:", "#   length.steps = 6", '#   launch.ranks = "auto"',
    ]  # fmt: skip
    again = load_config(tmp_path / "config.toml")
    assert again.fingerprint() == last.fingerprint()
