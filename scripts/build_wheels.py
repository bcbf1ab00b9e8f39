"""`python scripts/build_wheels.py [dist]`: the sdists of all five packages, and from each sdist its wheel."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ike-core", "ike-data", "ike-tasks", "ike-ckpt", "ike-launch")


def build(folder: Path) -> list[Path]:
    """The five wheels, new in `folder`, which is emptied of older ones."""
    for old in [*folder.glob("ike_*.whl"), *folder.glob("ike_*.tar.gz")]:
        old.unlink()
    for package in PACKAGES:
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), f"packages/{package}"]
        subprocess.run(command, cwd=ROOT, check=True)
    return sorted(folder.glob("ike_*.whl"))


if __name__ == "__main__":
    print(*build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve()), sep="\n")
