"""transformers' tokenizers, imported when the first text is encoded, and not before."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ike_core.errors import ConfigError

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def load_tokenizer(path: str) -> Any:
    """A fast tokenizer of a folder, a .gguf file or a name on the hub. ConfigError says what was tried."""
    loaded = _load(path)
    if not loaded.is_fast:
        raise ConfigError(
            f"tokenizer.path = {path!r}: {type(loaded).__name__} can't say which token holds which character; "
            "ike needs a tokenizer with a tokenizer.json"
        )
    return loaded


def set_eos(loaded: Any, eos: str) -> None:
    """Makes a token that the tokenizer has its eos. ConfigError where it has none such."""
    if eos not in loaded.get_vocab():
        raise ConfigError(f"tokenizer.eos_token = {eos!r}: the tokenizer has no such token{_near_or_new(eos, loaded)}")
    loaded.add_special_tokens({"eos_token": eos})


def add_tokens(loaded: Any, tokens: Sequence[str]) -> None:
    """Adds what the tokenizer hasn't, each found wherever a text spells it.

    As transformers' `add_tokens` does they are no special tokens. A normalizer doesn't change them first: with it
    SentencePiece's would find them behind a space only.
    """
    from tokenizers import AddedToken  # comes with the tokenizer that is loaded

    loaded.add_tokens([AddedToken(token, normalized=False) for token in tokens if token not in loaded.get_vocab()])


def set_pad(loaded: Any, pad: str) -> None:
    """Makes a token that the tokenizer has its padding. ConfigError where it has none such."""
    if pad not in loaded.get_vocab():
        raise ConfigError(f"tokenizer.pad_token = {pad!r}: the tokenizer has no such token{_near_or_new(pad, loaded)}")
    loaded.add_special_tokens({"pad_token": pad})


def read_template(path: Path) -> str:
    """A chat template's file. ConfigError where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"tokenizer.chat_template = {str(path)!r} can't be read: {error}") from error


def _near_or_new(token: str, loaded: Any) -> str:
    near = get_close_matches(token, [str(one) for one in loaded.all_special_tokens], n=1)
    return (
        f"; did you mean {near[0]!r}?" if near else ""
    ) + f'; a new one is added by tokenizer.add_tokens = ["{token}"]'


def _load(path: str) -> Any:
    try:
        from transformers import AutoTokenizer  # 2 s and an optional extra: paid only by who encodes
    except ImportError as error:
        raise ConfigError(f"a tokenizer needs transformers: pip install 'ike-data[hf]' ({error})") from error
    local = Path(path)
    if not local.exists() and not _HUB_NAME.fullmatch(path):
        raise ConfigError(f"tokenizer.path = {path!r}: {local.absolute()} does not exist, and it is no name on the hub")
    try:
        if local.suffix == ".gguf" and local.is_file():
            return AutoTokenizer.from_pretrained(str(local.parent), gguf_file=local.name)
        return AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, ImportError) as error:
        tried = (
            f"the folder {local.absolute()} holds none that transformers reads"
            if local.exists()
            else (f"there is no folder {local.absolute()}, and {path!r} could not be had from the hub or its cache")
        )
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"tokenizer.path = {path!r}: no tokenizer: {tried} ({reason})") from error
