"""`ike-ckpt export`: the model of a step as a folder of its own."""

import shutil
from pathlib import Path

import torch

from ike_ckpt.disk import whole_folder
from ike_ckpt.exported_config import fit_config
from ike_ckpt.model_folder import say_dtype
from ike_ckpt.model_tensors import ModelTensors
from ike_ckpt.steps import complete_steps
from ike_ckpt.weights import write_weights
from ike_core.adapters import CONFIG, Adapter, holds_adapter
from ike_core.errors import CheckpointError, ConfigError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_TOKENIZER = (".json", ".txt", ".model", ".jinja")
"""Kinds of files that tokenizers are kept in."""


def export(place: Path, out: Path, *, merge: bool = False, dtype: str = "", base: Path | None = None) -> Path:
    """Writes the model of a run's newest step, of a step, or of a model folder, to `out`, whole or absent.

    With `merge` an adapter becomes the full model, tensor by tensor: computed in float32 at least, written in the
    base's dtype or in `dtype` ("float32", "bfloat16", "float16"). `base` is the folder of its base, where that is no
    longer where the adapter says. Memory: a shard of 1 GiB and a tensor. Raises CheckpointError, naming the file.
    """
    folder = model_folder(place)
    if out.exists():
        raise CheckpointError(f"{out} is there already; name another folder")
    is_adapter = holds_adapter(folder)
    if is_adapter and not merge and (dtype or base):
        raise CheckpointError(f"{folder} is an adapter, and is copied as it is; a dtype and a base are for --merge")
    if merge and not is_adapter:
        raise CheckpointError(f"{folder} is a full model already: there is nothing to merge; leave out --merge")
    try:
        with whole_folder(out) as partial:
            if is_adapter and not merge:
                shutil.copytree(folder, partial, dirs_exist_ok=True)
            else:
                _write(folder, partial, dtype, base)
    except (OSError, ConfigError) as error:
        raise CheckpointError(f"{out} was not written: {error}") from error
    return out


def model_folder(place: Path) -> Path:
    """The folder with the weights, from it, its step, or its run."""
    if not place.is_dir():
        raise CheckpointError(f"{place}: there is no such folder")
    steps = [step for step in complete_steps(place).values() if (step / "model").is_dir()]
    for folder in (place, place / "model", *(step / "model" for step in reversed(steps))):
        if holds_adapter(folder) or any(folder.glob("*.safetensors")):
            return folder
    raise CheckpointError(f"{place} holds no model: neither safetensors, nor a step with a model/ folder")


def _write(folder: Path, out: Path, dtype: str, base: Path | None) -> None:
    def base_of(adapter: Adapter) -> Path:
        return base if base is not None and adapter.folder == folder else _base_folder(adapter)

    tensors = ModelTensors(base_of, DTYPES.get(dtype))
    written = write_weights(out, tensors.of(folder))
    beneath = folder
    _copy_beside(beneath, out)
    while holds_adapter(beneath):
        beneath = base_of(Adapter.read(beneath))
        _copy_beside(beneath, out)
    if (out / "config.json").is_file():
        fit_config(
            out / "config.json", tensors, is_classifier=holds_adapter(folder) and Adapter.read(folder).is_classifier
        )
        if written.dtype is not None:
            say_dtype(out / "config.json", written.dtype)


def _copy_beside(folder: Path, out: Path) -> None:
    """Configs, and the tokenizer where `out` has none yet: its files belong together."""
    has_tokenizer = any(out.glob("tokenizer*"))
    for file in sorted(folder.iterdir()):
        is_config = file.name in ("config.json", "generation_config.json") or file.suffix == ".py"
        is_tokenizers = file.suffix in _TOKENIZER and file.name not in ("config.json", "generation_config.json", CONFIG)
        wanted = is_config or (is_tokenizers and not has_tokenizer and not file.name.endswith(".index.json"))
        if wanted and file.is_file() and not (out / file.name).exists():
            shutil.copyfile(file, out / file.name)


def _base_folder(adapter: Adapter) -> Path:
    path = Path(adapter.base)
    if path.is_dir():
        return path
    if path.suffix == ".gguf" or path.is_absolute() or not adapter.base:
        raise CheckpointError(
            f"the base of {adapter.folder} is {adapter.base!r}, no folder of safetensors here; give one by --base"
        )
    try:
        from huggingface_hub import snapshot_download  # an optional extra
    except ImportError as error:
        raise CheckpointError(
            f"the base of {adapter.folder} is {adapter.base!r}: fetching it from the hub needs huggingface_hub "
            "(pip install 'ike-ckpt[hub]'); or give its folder by --base"
        ) from error
    try:
        return Path(
            snapshot_download(
                adapter.base, allow_patterns=["*.safetensors", *(f"*{kind}" for kind in (*_TOKENIZER, ".py"))]
            )
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"the base of {adapter.folder} is {adapter.base!r}, and the hub does not give it: {error}; give its folder "
            "by --base"
        ) from error
