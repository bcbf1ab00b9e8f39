"""`[model]` and `[frozen.*]`: a causal language model of transformers, from a folder, the hub or a GGUF file."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from safetensors import SafetensorError
from torch import nn

from ike_core.adapters import Adapter, holds_adapter
from ike_core.errors import ConfigError
from ike_core.interfaces import BuildContext
from ike_core.runtime.gguf_file import load_gguf
from ike_core.runtime.merging import merge_adapter

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


@attrs.frozen
class PretrainedModel:
    """Weights of safetensors, or of a GGUF file made whole again; pickled ones are refused."""

    path: str
    """A folder, a .gguf file, or a name on the hub ('owner/name'). A folder may hold an adapter, as ike saves it and
    peft does: the model is then its base with the adapter merged in."""
    trust_remote_code: bool = False
    """Run the Python that comes with the model."""

    def build(self, context: BuildContext) -> nn.Module:
        """The model in `context.dtype`, on the host, in evaluation mode; every weight comes from the files.

        Under ZeRO-3 the call stands inside the engine's init context, and transformers reports no names that are in
        the files alone. ConfigError where nothing is at `path`, its weights are pickles, or they don't fit the model
        to the last name and shape.
        """
        place = self._found()
        if isinstance(place, Path) and holds_adapter(place):
            return self._adapted(Adapter.read(place), context)
        attention = None if context.attention == "auto" else context.attention
        try:
            with _without_bars():
                if isinstance(place, Path) and place.is_file():
                    model, report = load_gguf(place, context.dtype, attention)
                else:
                    model, report = self._load(place, context.dtype, attention)
        except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
            raise ConfigError(self._refusal(error, context.attention)) from error
        self._check(report)
        return model

    def _adapted(self, adapter: Adapter, context: BuildContext) -> nn.Module:
        try:
            model = attrs.evolve(self, path=adapter.base).build(context)
        except ConfigError as error:
            raise ConfigError(f"path = {self.path!r} is an adapter, and its base is not to be had: {error}") from error
        merge_adapter(model, adapter)
        return model

    def _load(self, place: Path | str, dtype: Any, attention: str | None) -> tuple[nn.Module, Mapping[str, Any]]:
        """The model, and what transformers reports of its loading."""
        from transformers import AutoModelForCausalLM  # seconds, and pulls in the one model class only

        loaded: Any = AutoModelForCausalLM.from_pretrained(
            place,
            dtype=dtype,
            attn_implementation=attention,
            trust_remote_code=self.trust_remote_code,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # they are refused by `_check`, all of them named
            output_loading_info=True,
        )
        return loaded  # type: ignore[no-any-return]

    def _found(self) -> Path | str:
        """A folder or a GGUF file that is there, or a hub name."""
        path = Path(self.path)
        if path.is_dir() and holds_adapter(path):
            return path
        if path.is_dir():
            self._check_folder(path)
            return path
        if path.is_file() and path.suffix != ".gguf":
            raise ConfigError(f"path = {self.path!r} is a file; a model is a folder with config.json, or a .gguf file")
        if path.is_file():
            return path
        if path.suffix == ".gguf" or not _HUB_NAME.fullmatch(self.path):
            raise ConfigError(
                f"path = {self.path!r}: nothing is at {path.absolute()}, and it can't be a hub name ('owner/name')"
            )
        return self.path

    def _check_folder(self, folder: Path) -> None:
        if not (folder / "config.json").is_file():
            inside = sorted(folder.glob("step-*/model")) or sorted(folder.glob("model"))
            hint = f"; did you mean {inside[-1]}?" if inside else ""
            raise ConfigError(f"path = {self.path!r}: there is no config.json in {folder.absolute()}{hint}")
        if not any(folder.glob("*.safetensors")):
            pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
            found = f"only {', '.join(pickles)}, and unpickling runs code" if pickles else "no weights at all"
            raise ConfigError(
                f"path = {self.path!r}: {folder.absolute()} has no .safetensors file, {found}. Where you trust the "
                "files, transformers converts them: AutoModelForCausalLM.from_pretrained(old).save_pretrained(new)"
            )

    def _refusal(self, error: Exception, attention: str) -> str:
        """One line or two out of what transformers says."""
        said = " ".join(str(error).split())
        if not Path(self.path).exists():
            return (
                f"path = {self.path!r}: there is no folder {Path(self.path).absolute()}, and the hub gave no model "
                f"{self.path!r} with safetensors weights: {said}"
            )
        return f"path = {self.path!r} with attention = {attention!r}: transformers can't build the model: {said}"

    def _check(self, report: Mapping[str, Any]) -> None:
        """A weight that is not in the file would be noise, and one that is not in the model is lost."""
        mismatched = [f"{name} ({list(had)} in the file, {list(want)} in the model)" for name, had, want in
                      sorted(report["mismatched_keys"], key=str)]  # fmt: skip
        problems = [
            _named("missing from the files", sorted(report["missing_keys"])),
            _named("in the files but not in the model", sorted(report["unexpected_keys"])),
            _named("of another shape", mismatched),
            _named("not read", [str(message) for message in report["error_msgs"]]),
        ]
        found = [problem for problem in problems if problem]
        if found:
            raise ConfigError(f"path = {self.path!r}: the weights don't fit the model: " + "; ".join(found))


def _named(what: str, names: list[str], *, shown: int = 8) -> str:
    if not names:
        return ""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"{len(names)} {what}: {', '.join(names[:shown])}{more}"


@contextmanager
def _without_bars() -> Iterator[None]:
    """Loading takes a second or two; a progress bar a rank is noise."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
