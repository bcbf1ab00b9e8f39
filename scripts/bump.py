"""`python scripts/bump.py 0.2.0`: the one version line, and what the four other packages ask of ike-core."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ABOUT = Path("packages/ike-core/src/ike_core/__about__.py")
VERSION_LINE = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
REQUIREMENT = re.compile(r"(\"ike-core(?:\[[a-z,]+\])? ~= )\d+\.\d+\.0\"")
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def bump(root: Path, version: str) -> list[Path]:
    """Writes the version under `root`; returns the files that changed, relative to it."""
    parts = VERSION.fullmatch(version)
    if parts is None:
        raise ValueError(f"{version!r} is no version of the form 1.2.3")
    edits = {ABOUT: (VERSION_LINE, f'__version__ = "{version}"')}
    for project in sorted(root.glob("packages/*/pyproject.toml")):
        # Packages of one minor version fit each other: ~= 1.2.0 takes 1.2.3 and not 1.3.0.
        edits[project.relative_to(root)] = (REQUIREMENT, rf'\g<1>{parts[1]}.{parts[2]}.0"')
    changed = []
    for file, (pattern, replacement) in edits.items():
        before = (root / file).read_text()
        after = pattern.sub(replacement, before)
        if after != before:
            (root / file).write_text(after)
            changed.append(file)
    return changed


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        print(*bump(ROOT, sys.argv[1]), sep="\n")
    except ValueError as error:
        sys.exit(str(error))
