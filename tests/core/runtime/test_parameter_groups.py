"""Each parameter that learns is in one group; matrices decay, the rest does not."""

import pytest
import torch
from torch import nn

from ike_core.config.sections import GroupSection
from ike_core.errors import ConfigError
from ike_core.interfaces import BuildContext
from ike_core.runtime.optimizer import AdamW
from ike_core.runtime.parameter_groups import parameter_groups


class Small(nn.Module):
    """Two matrices, two biases, a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 3)
        self.head = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.tensor(1.0))


def by_name(model: nn.Module, groups: dict[str, GroupSection], peak_lr: float = 0.5) -> list[tuple]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [
        (group["name"], group["lr"], group.get("weight_decay"), [names[id(parameter)] for parameter in group["params"]])
        for group in parameter_groups(model.named_parameters(), groups, peak_lr)
    ]


def test_without_tables_matrices_take_the_optimizers_decay_and_the_rest_none() -> None:
    assert by_name(Small(), {}) == [
        ("", 0.5, None, ["body.weight", "head.weight"]),
        ("", 0.5, 0.0, ["scale", "body.bias", "head.bias"]),
    ]


def test_a_table_takes_what_it_matches_with_its_own_rate_and_decay() -> None:
    assert by_name(Small(), {"top": GroupSection(match="head", lr_scale=10.0, weight_decay=0.25)}) == [
        ("", 0.5, None, ["body.weight"]),
        ("", 0.5, 0.0, ["scale", "body.bias"]),
        ("top", 5.0, 0.25, ["head.weight"]),
        ("top", 5.0, 0.0, ["head.bias"]),
    ]


def test_the_first_table_that_matches_takes_a_parameter() -> None:
    groups = {"bias": GroupSection(match="bias$"), "head": GroupSection(match="head")}
    assert by_name(Small(), groups) == [
        ("", 0.5, None, ["body.weight"]),
        ("", 0.5, 0.0, ["scale"]),
        ("bias", 0.5, 0.0, ["body.bias", "head.bias"]),
        ("head", 0.5, None, ["head.weight"]),
    ]


def test_what_does_not_learn_is_in_no_group() -> None:
    model = Small()
    model.body.requires_grad_(False)
    assert [names for *_, names in by_name(model, {})] == [["head.weight"], ["scale", "head.bias"]]


def test_a_table_that_takes_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.groups\.top\.match = 'haed'.*near: head\."):
        by_name(Small(), {"top": GroupSection(match="haed")})
    with pytest.raises(ConfigError, match=r"optimizer\.groups\.late\.match = 'head'.*already in all"):
        by_name(Small(), {"all": GroupSection(match="."), "late": GroupSection(match="head")})


def test_a_table_that_matches_only_what_is_frozen_is_refused() -> None:
    model = Small()
    model.head.requires_grad_(False)
    with pytest.raises(ConfigError, match="in none of 3 parameter names that learn"):
        by_name(model, {"top": GroupSection(match="head")})


def test_under_zero3_a_matrix_is_told_by_the_shape_of_the_whole() -> None:
    piece = nn.Parameter(torch.empty(0))  # what DeepSpeed leaves of a parameter, with the whole's shape beside it
    piece.ds_shape = torch.Size([3, 2])
    (group,) = parameter_groups([("w", piece)], {}, 0.5)
    assert "weight_decay" not in group


def test_torch_fills_in_the_decay_of_the_part() -> None:
    groups = parameter_groups(Small().named_parameters(), {"top": GroupSection(match="head", weight_decay=0.25)}, 0.5)
    context = BuildContext(
        device=torch.device("cpu"), dtype=torch.float32, attention="auto", vocabulary=None, world=None, seed=0
    )
    optimizer = AdamW(weight_decay=0.125).build([], groups, context)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.125, 0.0, 0.25, 0.0]
