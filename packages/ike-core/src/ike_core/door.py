"""The one door to torch: the light half reaches `ike_core.runtime` and the sibling packages through here, by name."""

from importlib import import_module
from typing import Any

from ike_core.errors import ConfigError

_INSTALL = {
    "torch": 'pip install "ike-core[torch]"',
    "transformers": 'pip install "ike-core[torch]"',
    "safetensors": 'pip install "ike-core[torch]"',
    "deepspeed": 'pip install "ike-core[deepspeed]"',
    "peft": 'pip install "ike-core[lora]"',
    "ike_data": "pip install ike-data",
    "ike_tasks": "pip install ike-tasks",
    "ike_ckpt": "pip install ike-ckpt",
}


def locate(uses: str) -> Any:
    """What 'module:Name' names. ConfigError, with what to install, where a package of ike's is absent."""
    module, _, name = uses.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name not in _INSTALL:
            raise
        raise ConfigError(f"{uses} needs {error.name}, which is not installed: {_INSTALL[error.name]}") from error


def runtime(name: str) -> Any:
    """A name of the heavy half: runtime('torch_world:TorchWorld')."""
    return locate(f"ike_core.runtime.{name}")


def synchronize_workers() -> None:
    """Returns when every rank has come; at once where there is one process. Works in anyone's script."""
    runtime("torch_world:synchronize_workers")()
