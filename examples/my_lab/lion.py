"""Lion as an optimizer part: the sign of an interpolated momentum.  Chen et al. 2023, algorithm 2, arXiv:2302.06675"""

import attrs
import torch


@attrs.frozen
class Lion:
    """Half of AdamW's state; wants a third to a tenth of its learning rate."""

    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0

    def build(self, named_parameters, groups, context):
        return SignMomentum(groups, attrs.asdict(self))  # a group's own weight_decay wins: biases and norms have 0


class SignMomentum(torch.optim.Optimizer):
    """Elementwise, as ZeRO asks of an optimizer: it sees flat slices, not matrices."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)

    def _move(self, parameter, group):
        state, (fast, slow), rate = self.state[parameter], group["betas"], group["lr"]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        direction = torch.lerp(parameter.grad, state["momentum"], fast).sign()
        parameter.mul_(1 - rate * group["weight_decay"]).sub_(direction, alpha=rate)
        state["momentum"].lerp_(parameter.grad, 1 - slow)
