"""`[data.train.sources.<name>]`: what they inherit, what they are alternatives of, what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ike_core.config import load_config
from ike_core.config.sections import TrainSection
from ike_core.errors import ConfigError

MIXED = """
[data.train]
mix_by = "tokens"
max_tokens = 77
processor = { uses = "lab:Questions", prompt = "question" }
[data.train.sources.math]
files = ["math.jsonl"]
weight = 2
[data.train.sources.chat]
files = ["/chat.jsonl"]
weight = 1.0
max_repeats = 3
max_tokens = 5
processor = { uses = "lab:Chats" }
[data.train.stages.end]
from_step = 5
weights = { math = 3.0 }
"""
Write = Callable[[str, str], Path]


@pytest.fixture
def mixed(write: Write) -> Path:
    return write("run.toml", MIXED)


def train(*layers: Path | str) -> TrainSection:
    section = load_config(*layers).data.train
    assert section is not None
    return section


def refusal(*layers: Path | str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(*layers)
    return str(refused.value)


def test_a_source_takes_from_data_train_what_it_leaves_out(mixed: Path) -> None:
    math, chat = train(mixed).sources["math"], train(mixed).sources["chat"]
    assert (math.max_tokens, chat.max_tokens) == (77, 5)
    assert math.processor is not None
    assert chat.processor is not None
    assert dict(math.processor.table) == {"prompt": "question"}
    assert (chat.processor.uses, dict(chat.processor.table)) == ("lab:Chats", {})
    assert (math.files, chat.files) == ((str(mixed.parent / "math.jsonl"),), ("/chat.jsonl",))
    assert "data.train.sources.math.max_tokens = 77" in load_config(mixed).explain("data.train.sources.math.max_tokens")


def test_one_weight_can_be_changed_on_the_command_line(mixed: Path) -> None:
    section = train(mixed, "data.train.sources.math.weight=7", "data.train.stages.end.weights.chat=0.5")
    assert section.sources["math"].weight == 7.0
    assert section.stages["end"].weights == {"math": 3.0, "chat": 0.5}


def test_files_and_sources_are_alternatives(mixed: Path, write: Write) -> None:
    files = write("files.toml", '[data.train]\nfiles = ["a.jsonl"]')
    assert not train(mixed, "~data.train.mix_by", "~data.train.stages", files).sources
    assert not train(files, mixed).files
    both = write("both.toml", '[data.train]\nfiles = ["a"]\n[data.train.sources.b]\nfiles = ["b"]')
    assert "data.train is given files" in refusal(both)
    own = write("own.toml", '[data.train.source]\nuses = "my_lab:Rows"')
    assert train(files, own).files == ()
    assert train(own, files).source is None
    assert "data.train is given files" in refusal(files, "data.train.source.uses=a:B", "data.train.files=['b']")


def test_a_source_is_files_or_a_part(mixed: Path, write: Write) -> None:
    own = write("own.toml", '[data.train.sources.math.source]\nuses = "my_lab:Rows"\ncount = 3')
    source = train(mixed, own).sources["math"]
    assert (source.files, source.weight) == ((), 2.0)
    assert source.source is not None
    assert (source.source.uses, source.source.table) == ("my_lab:Rows", {"count": 3})
    assert "data.train.sources.b needs one of files and source" in refusal("data.train.sources.b.limit=1")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("~data.train.mix_by", 'have weights, of what? Say mix_by = "documents", "tokens" or "supervised_tokens"'),
        ("data.train.mix_by=rows", 'must be "documents" or "tokens" or "supervised_tokens"'),
        ("~data.train.sources.math.weight", "data.train.sources must all have a weight, or none; math has none"),
        ("data.train.sources.math.weight=-1", "data.train.sources.math.weight = -1.0 must be >= 0.0"),
        ("data.train.sources.math.weigth=1", "weigth is no known key; nearest: data.train.sources.math.weight"),
        ("~data.train.sources.math.files", "data.train.sources.math needs one of files and source"),
        ("data.train.stages.end.weights.web=1", "stages can't weigh web in end; the sources are math, chat"),
        ("data.train.stages.end.weights={math=0, chat=0}", "must leave a source with a weight above 0, and none below"),
        ("data.train.stages.end.weights.chat=-1", "must leave a source with a weight above 0, and none below"),
        ("data.train.stages.two={from_step=5, weights={math=1}}", "can't begin at the same step, 5: end and two"),
        ("data.train.stages.end.from_step=0", "data.train.stages.end.from_step = 0 must be >= 1"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(mixed: Path, override: str, said: str) -> None:
    assert said in refusal(mixed, override)


def test_what_needs_weights_is_refused_without_them(mixed: Path) -> None:
    without = ["~data.train.sources.math.weight", "~data.train.sources.chat.weight"]
    said = refusal(mixed, *without)
    assert "data.train.mix_by = 'tokens' is for sources with weights" in said
    assert "leave out chat.max_repeats" in said
    assert "data.train.stages are for sources with weights" in said
    zero = ["data.train.sources.math.weight=0", "data.train.sources.chat.weight=0"]
    assert "data.train.sources must have a weight above 0, one at least" in refusal(mixed, *zero)


def test_all_of_it_is_identity(mixed: Path) -> None:
    before = load_config(mixed).identity_fingerprint()
    for change in (
        "data.train.sources.math.weight=3",
        "data.train.stages.end.from_step=6",
        "data.train.mix_by=documents",
    ):
        assert load_config(mixed, change).identity_fingerprint() != before
