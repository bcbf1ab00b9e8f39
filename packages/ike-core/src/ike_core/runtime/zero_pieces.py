"""Where ZeRO keeps this rank's masters, moments and frozen parameters.

DeepSpeed has no public way to a rank's own pieces in every stage. All that is private to it and relied on for that
stands in this file (0.19.8); `tests/core/runtime/test_deepspeed_names.py` fails first where a release moves it.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ike_core.fragments import BUFFER, FROZEN
from ike_core.runtime.pieces import Piece, Still, saved_buffers, whole_pieces, whole_still, whole_stills
from ike_core.runtime.training_state import TrainingState


def training_state(engine: Any, module: nn.Module, zero_stage: int, *, rank: int, ranks: int) -> TrainingState:
    """Of a DeepSpeed engine; `module` has the parameters under the model's own names."""
    optimizer = engine.optimizer if zero_stage == 0 else engine.optimizer.optimizer
    if zero_stage == 0:
        pieces = whole_pieces(module, optimizer)
    elif zero_stage < 3:
        pieces = list(_flat_pieces(module, optimizer))
    else:
        pieces = list(_dealt_pieces(engine.optimizer, module, rank))
    if zero_stage < 3:
        learning = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
        stills = whole_stills(module, learning)
    else:
        stills = list(_dealt_stills(module, rank))
    return TrainingState(pieces=pieces, stills=stills, optimizer=optimizer, rank=rank, ranks=ranks)


def refresh(engine: Any, zero_stage: int) -> None:
    """Collective: what the model computes with becomes the masters, rounded."""
    zero = engine.optimizer
    if zero_stage == 3:
        for number in range(len(zero.fp32_partitioned_groups_flat)):
            zero._reassign_or_swap_out_partitioned_parameters(number)
        if zero.persistent_parameters:
            zero.persistent_parameters[0].all_gather(zero.persistent_parameters)
    elif zero_stage > 0:
        zero.update_lp_params()


def _flat_pieces(module: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[Piece]:
    """Stages 1 and 2: a group is one flat tensor, cut evenly over the ranks, whatever parameter a cut falls into."""
    for name, parameter in _named(module):
        if not parameter.requires_grad or parameter._hp_mapping is None:  # this rank's cut has nothing of it
            continue
        mapping = parameter._hp_mapping
        yield Piece(
            name=name,
            shape=tuple(parameter.shape),
            start=mapping.lp_fragment_address.start,
            count=mapping.lp_fragment_address.numel,
            flat=optimizer.param_groups[mapping.param_group_index]["params"][0],
            offset=mapping.hp_fragment_address.start,
            group=mapping.param_group_index,
            is_whole_copy=False,
        )


def _dealt_pieces(zero: Any, module: nn.Module, rank: int) -> Iterator[Piece]:
    """Stage 3: every parameter is cut over the ranks, and the last cuts are padded."""
    for name, parameter in _named(module):
        if not parameter.requires_grad:
            continue
        group, offset, _ = zero.grad_position[zero.get_param_id(parameter)]
        start, count = _cut(parameter, rank)
        if count:
            yield Piece(
                name=name,
                shape=tuple(parameter.ds_shape),
                start=start,
                count=count,
                flat=zero.fp32_partitioned_groups_flat[group],
                offset=offset,
                group=zero.sub_group_to_group_id[group],
                is_whole_copy=False,
            )


def _dealt_stills(module: nn.Module, rank: int) -> Iterator[Still]:
    for name, parameter in _named(module):
        start, count = _cut(parameter, rank)
        if not parameter.requires_grad and count:
            yield Still(
                name=name,
                kind=FROZEN,
                shape=tuple(parameter.ds_shape),
                start=start,
                values=parameter.ds_tensor.detach().view(-1).narrow(0, 0, count),
                is_whole_copy=False,
            )
    yield from (whole_still(name, BUFFER, tensor) for name, tensor in saved_buffers(module))


def _named(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Parameters, with what DeepSpeed hangs on them."""
    yield from module.named_parameters()


def _cut(parameter: Any, rank: int) -> tuple[int, int]:
    start = rank * parameter.partition_numel()
    return start, max(0, min(parameter.partition_numel(), parameter.ds_numel - start))
