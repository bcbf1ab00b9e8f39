"""`code/` in the run folder: what the user wrote of what was imported, and nothing else."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from ike_core.user_code import save_user_code


def test_imported_modules_of_the_users_folder_are_copied_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = ["lab/parts.py", "lab/deep/more.py", "lab/native.so", "lab/site-packages/other.py", "laboratory/near.py"]
    for number, name in enumerate(written):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        module = ModuleType(f"test_user_code_{number}")
        module.__file__ = str(tmp_path / name)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    (tmp_path / "lab/never_imported.py").write_text("")
    setup = SimpleNamespace(
        world=SimpleNamespace(is_first=True),
        config=SimpleNamespace(import_from=[str(tmp_path / "lab")]),
        folder=tmp_path / "run",
    )
    save_user_code(setup)
    copied = {path.relative_to(tmp_path / "run/code"): path for path in (tmp_path / "run/code").rglob("*.py")}
    assert {str(name): path.read_text() for name, path in copied.items()} == {
        "parts.py": "lab/parts.py",
        "deep/more.py": "lab/deep/more.py",
    }
