"""`uses = "module:Name"` to the thing itself.

The folders of the files that say `uses` stand behind all that is installed: no file of theirs hides a package.
"""

import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ike_core.config.keys import hint
from ike_core.config.provenance import shown
from ike_core.errors import ConfigError

USES = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
"""module:Name"""

_PROVIDES = {
    "ike_data": "ike-data",
    "ike_tasks": "ike-tasks",
    "ike_ckpt": "ike-ckpt",
    "ike_launch": "ike-launch",
    "torch": "ike-core[torch]",
    "transformers": "ike-core[torch]",
    "safetensors": "ike-core[torch]",
    "deepspeed": "ike-core[deepspeed]",
    "gguf": "ike-core[gguf]",
}
"""What to install for a module that ike's own parts need."""


def load_object(uses: str, folders: Sequence[Path]) -> Any:
    """Imports the module, which runs its code; ConfigError says where was looked and what is near."""
    module_name, name = uses.split(":")
    for folder in map(str, folders):
        if folder not in sys.path:
            sys.path.append(folder)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(_not_found(module_name, error, folders)) from error
    except Exception as error:
        raise ConfigError(f"importing {module_name} failed: {type(error).__name__}: {error}") from error
    try:
        return getattr(module, name)
    except ModuleNotFoundError as error:  # a name that loads on first use
        raise ConfigError(_not_found(module_name, error, folders)) from error
    except AttributeError:
        raise ConfigError(_no_name(module, name)) from None


def _not_found(module: str, error: ModuleNotFoundError, folders: Sequence[Path]) -> str:
    if error.name is None:
        return f"importing {module} failed: {error}"
    missing, package = error.name, error.name.partition(".")[0]
    if not f"{module}.".startswith(f"{missing}."):
        return f"{module} imports {missing}, which is not installed{_install(package)}"
    if package in _PROVIDES and package == missing:
        return f"{package} is not installed{_install(package)}"
    places = ", ".join(str(folder) for folder in folders)
    looked = f"looked among the installed packages and in {places}" if places else "looked among the installed packages"
    return f"there is no module {missing}: {looked}{hint(missing, _modules_in(folders))}"


def _install(package: str) -> str:
    return f': pip install "{_PROVIDES[package]}"' if package in _PROVIDES else ""


def _modules_in(folders: Sequence[Path]) -> list[str]:
    """Modules that the folders hold, packages' too, two levels deep."""
    files = [(folder, file) for folder in folders for pattern in ("*.py", "*/*.py") for file in folder.glob(pattern)]
    names = [".".join(file.relative_to(folder).with_suffix("").parts) for folder, file in files]
    return [name.removesuffix(".__init__") for name in names]


def _no_name(module: Any, name: str) -> str:
    names = [known for known in dir(module) if not known.startswith("_")]
    file = f" ({shown(Path(module.__file__))})" if module.__file__ else ""
    return f"{module.__name__}{file} has no {name}{hint(name, names)}"
