"""What every reader yields."""

from ike_core.examples import Skip
from ike_core.interfaces import Record

Row = tuple[str, Record | Skip]
"""(`train.jsonl:17`, the record), or in its stead why there is none."""
