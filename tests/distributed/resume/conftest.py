"""The scenarios' own modules are imported by the ranks that they start."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
