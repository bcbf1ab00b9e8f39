"""What trains a model, out of an engine and back into it, in pieces of this rank's own."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from ike_core.errors import CheckpointError
from ike_core.fragments import WEIGHT, Counters, Fragment, SavedFragments
from ike_core.runtime.pieces import Piece, Still, dealt

_OF_THE_SCHEDULE = ("lr", "initial_lr")
"""Numbers of a group that are said anew before every update."""


@attrs.frozen(kw_only=True)
class TrainingState:
    """The pieces of a rank and the optimizer whose state goes with them. Nothing here is collective."""

    pieces: Sequence[Piece]
    stills: Sequence[Still]
    optimizer: torch.optim.Optimizer
    rank: int
    ranks: int

    def fragments(self) -> Iterator[Fragment]:
        """This rank's; those of all ranks together cover every tensor exactly once."""
        owner = dealt(self._copies(), self.ranks)
        for piece in self.pieces:
            if piece.is_whole_copy and owner(piece.name) != self.rank:
                continue
            yield _fragment(piece, WEIGHT, piece.flat)
            for key, value in self._shaped(piece).items():
                yield _fragment(piece, key, value)
        for still in self.stills:
            if not still.is_whole_copy or owner(still.name) == self.rank:
                yield Fragment(
                    name=still.name, kind=still.kind, shape=still.shape, start=still.start, values=still.values
                )

    def counters(self) -> Counters:
        """Of the parameters of which this rank has a piece."""
        return {
            "parameters": {piece.name: self._counted(piece) for piece in self.pieces},
            "groups": [
                {key: value for key, value in group.items() if key not in _OF_THE_SCHEDULE and _is_number(value)}
                for group in self.optimizer.param_groups
            ],
        }

    def _copies(self) -> dict[str, int]:
        sizes = {piece.name: math.prod(piece.shape) for piece in self.pieces if piece.is_whole_copy}
        return sizes | {still.name: math.prod(still.shape) for still in self.stills if still.is_whole_copy}

    def _state(self, piece: Piece) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.optimizer.state.get(piece.flat, {})
        return found

    def _shaped(self, piece: Piece) -> dict[str, Tensor]:
        """What the optimizer keeps an element; CheckpointError where it keeps what can't be cut into pieces."""
        shaped = {}
        for key, value in self._state(piece).items():
            if isinstance(value, Tensor) and value.shape == piece.flat.shape and value.numel() > 1:
                shaped[key] = value
            elif not (_is_number(value) or (isinstance(value, Tensor) and value.numel() == 1)):
                shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise CheckpointError(
                    f"{type(self.optimizer).__name__} keeps {key!r} ({shape}) for {piece.name} {piece.shape}, which is "
                    "neither shaped like the parameter nor one number: such a state can't be saved for other layouts; "
                    "use another optimizer, or leave [checkpoint] out (~checkpoint)"
                )
        return shaped

    def _counted(self, piece: Piece) -> dict[str, Any]:
        shaped = self._shaped(piece)
        return {key: _number(value) for key, value in self._state(piece).items() if key not in shaped}

    # -- back again -----------------------------------------------------------------------------------------------

    def restore(self, saved: SavedFragments) -> None:
        """Weights, moments and counters become those on disk. The engine then refreshes what it computes with."""
        self._check(saved)
        for piece in self.pieces:
            self._fill(piece, piece.flat, saved, WEIGHT)
        states = dict[Tensor, dict[str, Any]]()
        for piece in self.pieces:
            state = states.setdefault(piece.flat, {})
            for kind in saved.kinds(piece.name):
                if kind != WEIGHT:
                    self._fill(piece, state.setdefault(kind, torch.zeros_like(piece.flat)), saved, kind)
            self._count(piece, state, saved.counters["parameters"].get(piece.name, {}))
        for flat, state in states.items():
            if state:
                self.optimizer.state[flat] = state
        for group, numbers in zip(self.optimizer.param_groups, saved.counters["groups"], strict=False):
            group.update({key: value for key, value in numbers.items() if key in group})
        for still in self.stills:
            still.values.copy_(saved.read(still.name, still.kind, still.start, still.values.numel()))

    def _fill(self, piece: Piece, into: Tensor, saved: SavedFragments, kind: str) -> None:
        piece.of(into).copy_(saved.read(piece.name, kind, piece.start, piece.count))

    def _count(self, piece: Piece, state: dict[str, Any], counted: Mapping[str, Any]) -> None:
        group = self.optimizer.param_groups[piece.group]
        # As torch's own optimizers place a step: beside the parameter where their kernels read it, else on the host.
        device = piece.flat.device if group.get("fused") or group.get("capturable") else torch.device("cpu")
        for key, number in counted.items():
            value = _counter(number, device)
            before = state.setdefault(key, value)
            if _number(before) != _number(value):
                raise CheckpointError(
                    f"{piece.name} has {key} = {_number(value)}, and another parameter that this layout keeps in one "
                    f"piece with it has {_number(before)}; go on with the ranks and the ZeRO stage of before"
                )

    def _check(self, saved: SavedFragments) -> None:
        wanted = [(piece.name, WEIGHT, piece.shape) for piece in self.pieces]
        wanted += [(still.name, still.kind, still.shape) for still in self.stills]
        wrong = []
        for name, kind, shape in wanted:
            if kind not in saved.kinds(name):
                wrong.append(f"{name} is wanted as {kind}; saved is {', '.join(saved.kinds(name)) or 'nothing'}")
            elif saved.shape(name) != shape:
                wrong.append(f"{name} has shape {shape}; saved is {saved.shape(name)}")
        if wrong:
            raise CheckpointError("the checkpoint is of another model: " + "; ".join(wrong[:8]))


def _fragment(piece: Piece, kind: str, tensor: Tensor) -> Fragment:
    return Fragment(name=piece.name, kind=kind, shape=piece.shape, start=piece.start, values=piece.of(tensor))


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _number(value: Any) -> Any:
    """As JSON: a number, or a tensor of one with its dtype."""
    if isinstance(value, Tensor):
        return {"tensor": value.item(), "dtype": str(value.dtype).removeprefix("torch."), "dims": value.dim()}
    return value


def _counter(number: Any, device: torch.device) -> Any:
    if isinstance(number, Mapping):
        made = torch.tensor(number["tensor"], dtype=getattr(torch, number["dtype"]), device=device)
        return made.reshape((1,) * number["dims"])
    return number
