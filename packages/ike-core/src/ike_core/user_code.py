"""`code/` in the run folder: the user's modules that the run was made of, and where their repository stood."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ike_core.run_setup import RunSetup


def save_user_code(setup: RunSetup) -> None:
    """Rank 0 copies each module that came from a folder of `run.import_from`, after all parts are built."""
    if not setup.world.is_first:
        return
    for root in map(Path, setup.config.import_from):
        for source in _modules_under(root):
            target = setup.folder / "code" / source.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        _save_git(root, setup.folder / "code")


def _modules_under(root: Path) -> list[Path]:
    # By the start of the string: there are thousands of modules, and a Path of each takes 0.04 s.
    folder = os.path.join(root, "")
    named = (getattr(module, "__file__", None) or "" for module in list(sys.modules.values()))
    files = {Path(name) for name in named if name.startswith(folder) and name.endswith(".py")}
    return sorted(file for file in files if not {"site-packages", "dist-packages"} & set(file.parts))


def _save_git(folder: Path, code: Path) -> None:
    """The commit, and what differs from it; nothing where there is no repository or no git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit and code.is_dir():
        (code / "git.txt").write_text(f"{commit}\n{_git(folder, 'diff', 'HEAD')}\n", encoding="utf-8")


def _git(folder: Path, *words: str) -> str:
    if shutil.which("git") is None:
        return ""
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=False)
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""
