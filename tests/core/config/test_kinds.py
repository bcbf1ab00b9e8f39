"""Every key of ike's says whether it changes an update."""

from typing import Any

import attrs
import pytest

from ike_core.config.kinds import kind
from ike_core.config.schema import named, section
from ike_core.config.sections import Sections


def classes(cls: type) -> set[type]:
    """The section classes that can be reached from one."""
    found = {cls}
    for field in attrs.fields(cls):
        annotation: Any = named(field.type) or field.type
        inner = section(annotation)
        if inner is not None:
            found |= classes(inner)
    return found


@pytest.mark.parametrize("cls", sorted(classes(Sections), key=str))
def test_no_field_lacks_its_kind(cls: type) -> None:
    lacking = [field.name for field in attrs.fields(cls) if field.metadata.get("kind") not in ("identity", "mechanics")]
    assert lacking == []


def test_all_sections_were_looked_at() -> None:
    assert {"GroupSection", "Every", "FrozenSection", "LedgerSection", "EvaluateSection"} < {
        cls.__name__ for cls in classes(Sections)
    }


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("run.seed", "identity"),
        ("run.name", "mechanics"),
        ("model.path", "identity"),
        ("model.attention", "mechanics"),
        ("frozen.reference.path", "identity"),
        ("data.train.processor.system", "identity"),
        ("data.valid.helpful.max_tokens", "mechanics"),
        ("data.ledger.budget", "mechanics"),
        ("data.cache", "mechanics"),
        ("data.workers", "mechanics"),
        ("data.holdout.count", "identity"),
        ("engine.zero_stage", "mechanics"),
        ("engine.raw.bf16", "identity"),
        ("engine.clip_norm", "identity"),
        ("optimizer.groups.head.lr_scale", "identity"),
        ("optimizer.weight_decay", "identity"),
        ("schedule.shape", "identity"),
        ("hooks.ema.decay", "identity"),
        ("batch.packing", "mechanics"),
        ("cadence.log.steps", "mechanics"),
        ("evaluate.gsm8k.files", "mechanics"),
        ("user.anything", "mechanics"),
    ],
)
def test_kinds_are_those_of_the_design(key: str, expected: str) -> None:
    assert kind(tuple(key.split("."))) == expected
