"""`python scripts/install_wheels.py`: builds the five wheels and proves that they install and import by themselves.

The environment is empty and pip gets no index: the ike packages can only come from the wheels. What they depend on is
lent by the environment that runs this.
"""

import subprocess
import sysconfig
import tempfile
import venv
from pathlib import Path

from build_wheels import PACKAGES, build

CHECK = """
import importlib, importlib.metadata, pathlib, sys
house, lent, *packages = sys.argv[1:]
sys.path.append(lent)  # its .pth files are not read: editable installs of ike stay out of sight
for package in packages:
    file = pathlib.Path(importlib.import_module(package.replace("-", "_")).__file__)
    assert pathlib.Path(house) in file.parents, f"{package} was imported from {file}"
    assert (file.parent / "py.typed").is_file(), f"{package} carries no py.typed"
versions = {importlib.metadata.version(package) for package in packages}
assert len(versions) == 1, f"several versions: {versions}"
print(*packages, "install and import at", *versions)
"""


def install(folder: Path) -> None:
    """Builds, installs and imports under `folder`; CalledProcessError where a step fails."""
    wheels = build(folder / "wheels")
    house = folder / "house"
    venv.create(house, with_pip=True, symlinks=True)
    python = str(house / "bin" / "python")
    offline = ["--no-index", "--no-deps", "--quiet"]
    subprocess.run([python, "-m", "pip", "install", *offline, *map(str, wheels)], check=True)
    lent = sysconfig.get_path("purelib")
    subprocess.run([python, "-I", "-c", CHECK, str(house), lent, *PACKAGES], check=True, cwd=folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder).resolve())
