"""Torch's generators, seeded from what they are for."""

import torch

HALF = (1 << 63) - 1


def seed_dropout(seed: int) -> None:
    """The generators that dropout draws from, on the host and on the current device."""
    torch.default_generator.manual_seed(seed & HALF)  # torch.manual_seed asks every backend: 50 times slower
    if torch.cuda.is_available():
        torch.cuda.manual_seed(seed & HALF)


def new_generator(device: torch.device, seed: int) -> torch.Generator:
    """A generator of its own, on the device."""
    return torch.Generator(device).manual_seed(seed & HALF)
