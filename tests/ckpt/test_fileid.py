"""A run has one id and one folder, whatever the ranks' clocks say."""

import json
import os
import re
import socket
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Self

import pytest

from ike_ckpt import create_fileid
from ike_core.errors import CheckpointError


def test_an_id_is_name_time_and_random_and_its_folder_is_there(tmp_path) -> None:
    file_id = create_fileid("dpo-1b", root=tmp_path / "runs")
    match = re.fullmatch(r"dpo-1b-(\d{8}T\d{6}Z)-[0-9a-f]{8}", file_id)
    assert match
    made = datetime.strptime(match[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - made).total_seconds()) < 60
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [file_id]


def test_the_owner_can_be_found(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    file_id = create_fileid(root=tmp_path)
    owner = json.loads((tmp_path / file_id / "owner.json").read_text())
    assert (owner["host"], owner["pid"], owner["job"]) == (socket.gethostname(), os.getpid(), "4711")
    assert owner["heartbeat"] == owner["started"]
    assert (datetime.now(UTC) - datetime.fromisoformat(owner["started"])).total_seconds() < 60


def test_a_second_start_in_the_same_second_gets_another_id(tmp_path) -> None:
    ids = {create_fileid(root=tmp_path) for _ in range(20)}
    assert len(ids) == len(list(tmp_path.iterdir())) == 20


def test_a_folder_that_is_there_is_never_joined(tmp_path, monkeypatch) -> None:
    draws = iter(["same", "same", "other"])
    monkeypatch.setattr("ike_ckpt.fileid.secrets.token_hex", lambda _: next(draws))
    monkeypatch.setattr("ike_ckpt.fileid.datetime", _Noon)
    assert create_fileid(root=tmp_path).endswith("-same")
    assert create_fileid(root=tmp_path).endswith("-other")


class _Noon(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls(2026, 11, 30, 12, tzinfo=tz)


@pytest.mark.parametrize("name", ["a/b", "..", "../a", "", ".hidden", "a b", "-flag", "a\n"])
def test_a_name_that_is_no_folder_name_is_refused(tmp_path, name) -> None:
    with pytest.raises(CheckpointError, match=re.escape(repr(name))):
        create_fileid(name, root=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_root_that_can_not_be_made_is_named(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=re.escape(str(tmp_path / "file"))):
        create_fileid(root=tmp_path / "file" / "runs")


SKEWED = """
import pickle, time
from datetime import datetime, timedelta
import ike_ckpt.fileid
from ike_ckpt import create_fileid
from ike_core.errors import CheckpointError

def forbidden(*arguments, **options):
    raise AssertionError("a pickle")
pickle.dumps = pickle.loads = pickle.Pickler = pickle.Unpickler = forbidden

class Skewed(datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + timedelta(seconds=rank)
ike_ckpt.fileid.datetime = Skewed

said["ids"] = []
for _ in range(2):
    time.sleep(0.6 * rank)
    said["ids"].append(create_fileid("b87", root=folder / "runs"))
    said["folder is there"] = (folder / "runs" / said["ids"][-1] / "owner.json").exists()
try:
    create_fileid("a/b", root=folder / "runs")
except CheckpointError as error:
    said["refusal"] = str(error)
"""


@pytest.fixture(scope="module")
def skewed(run_ranks, tmp_path_factory) -> tuple[list[dict], Path]:
    folder = tmp_path_factory.mktemp("skewed")
    return run_ranks(SKEWED, 4, folder), folder / "runs"


def test_ranks_with_skewed_clocks_share_one_id_and_one_folder_a_start(skewed) -> None:
    said, runs = skewed
    first, second = said[0]["ids"]
    assert first != second
    assert [one["ids"] for one in said] == [[first, second]] * 4
    assert sorted(path.name for path in runs.iterdir()) == sorted([first, second])


def test_the_folder_is_there_when_any_rank_has_the_id(skewed) -> None:
    assert all(one["folder is there"] for one in skewed[0])


def test_a_refusal_is_raised_on_every_rank(skewed) -> None:
    assert [one["refusal"] for one in skewed[0]] == [skewed[0][0]["refusal"]] * 4
