"""The tokenizer of a model, by transformers: imported when the first text is encoded, and not before."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import attrs
from xxhash import xxh3_128

from ike_core.batch import Vocabulary
from ike_core.errors import ConfigError, DataError
from ike_core.interfaces import Tokenizer
from ike_data.encoding import Encoder
from ike_data.prompts import Prompter
from ike_data.templates import ChatTemplate

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@runtime_checkable
class OffsetTokenizer(Tokenizer, Protocol):
    """What ike's own processors ask of a tokenizer: `Tokenizer`, and which token holds which character."""

    @property
    def encoder(self) -> Encoder: ...

    @property
    def opening(self) -> tuple[int, ...]:
        """What the tokenizer puts before a text of its own accord: the bos, or nothing."""
        ...

    @property
    def template_variables(self) -> Mapping[str, str]:
        """What a chat template may name: bos_token, eos_token and their like."""
        ...

    def chat_template(self, *, has_tools: bool) -> str:
        """The source of the template for chats with or without tools. DataError where there is none."""
        ...


@attrs.frozen
class HFTokenizer:
    """A tokenizer that transformers reads. Cheap to make: nothing is read before it is used."""

    path: str
    """A folder, a .gguf file, or a name on the hub."""

    def encode(self, text: str, *, special_tokens: bool = False) -> list[int]:
        """Token ids, control tokens where the text spells them; `special_tokens` adds what surrounds one."""
        return list(self._loaded.encode(text, add_special_tokens=special_tokens))

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of some tokens, control tokens spelt out."""
        return str(self._loaded.decode(list(tokens), skip_special_tokens=False))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """`pad` falls back to eos, bos, or 0: what is padding is known by length, never by id."""
        loaded = self._loaded
        candidates = (loaded.pad_token_id, loaded.eos_token_id, loaded.bos_token_id, 0)
        pad = next(token for token in candidates if token is not None)
        return Vocabulary(size=len(loaded), pad=pad, bos=loaded.bos_token_id, eos=loaded.eos_token_id)

    def save(self, folder: Path) -> None:
        """Writes the files that transformers reads, the chat template among them."""
        self._loaded.save_pretrained(str(folder))

    def description(self) -> Mapping[str, Any]:
        """What it is in the key of a store: its content and what reads it, wherever its files lie."""
        loaded = self._loaded
        return {
            "content": xxh3_128(loaded.backend_tokenizer.to_str().encode()).hexdigest(),
            "special_tokens": self.template_variables,
            "chat_template": loaded.chat_template,
            "settings": attrs.asdict(self, filter=lambda field, _: field.init and field.name != "path"),
            "versions": {name: version(name) for name in ("tokenizers", "transformers")},
        }

    @cached_property
    def encoder(self) -> Encoder:
        """See `Encoder`."""
        loaded = self._loaded
        control = {added.content: token for token, added in loaded.added_tokens_decoder.items() if added.special}
        control |= zip(loaded.all_special_tokens, loaded.all_special_ids, strict=True)
        if loaded.unk_token_id not in (loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id):
            control.pop(loaded.unk_token, None)
        return Encoder.of(loaded.backend_tokenizer, control)

    @cached_property
    def opening(self) -> tuple[int, ...]:
        """What the tokenizer puts before a text of its own accord: the bos, or nothing."""
        alone, around = self.encode("a"), self.encode("a", special_tokens=True)
        starts = range(len(around) - len(alone) + 1)
        start = next((start for start in starts if around[start : start + len(alone)] == alone), 0)
        return tuple(around[:start])

    @property
    def template_variables(self) -> Mapping[str, str]:
        """What a chat template may name: bos_token, eos_token and their like."""
        return {name: str(token) for name, token in self._loaded.special_tokens_map.items() if isinstance(token, str)}

    def chat_template(self, *, has_tools: bool) -> str:
        """The source of the template for chats with or without tools. DataError where there is none."""
        templates = self._loaded.chat_template
        if isinstance(templates, dict):  # several, by name
            templates = templates.get("tool_use" if has_tools else "default") or templates.get("default")
        if not templates:
            raise DataError(
                f"tokenizer.path = {self.path!r}: this tokenizer has no chat template; take an instruct model's, "
                "or read prompts and responses with ike_data:InstructionProcessor"
            )
        return str(templates)

    def chat_prompt(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Token ids of a conversation up to where the assistant begins its answer; the bos once.

        DataError where there is no template, or it refuses the messages.
        """
        return self._prompter.tokens(messages)

    @cached_property
    def _prompter(self) -> Prompter:
        template = ChatTemplate(self.chat_template(has_tools=False), self.template_variables)
        return Prompter(template, self.encoder, self.opening)

    @cached_property
    def _loaded(self) -> Any:
        loaded = _load(self.path)
        if not loaded.is_fast:
            raise ConfigError(
                f"tokenizer.path = {self.path!r}: {type(loaded).__name__} can't say which token holds which character; "
                "ike needs a tokenizer with a tokenizer.json"
            )
        return loaded


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


def offset_tokenizer(tokenizer: object, *, part: object) -> OffsetTokenizer:
    """The tokenizer, if a processor of ike's own can work with it; ConfigError says what it lacks."""
    if isinstance(tokenizer, OffsetTokenizer):
        return tokenizer
    wanted = ("encode", "decode", "vocabulary", "save", "encoder", "opening", "template_variables", "chat_template")
    lacking = [name for name in wanted if name not in dir(tokenizer)]
    raise ConfigError(
        f"{type(part).__name__} needs to know which token holds which character: {type(tokenizer).__name__} "
        f"lacks {', '.join(lacking)}; use ike_data:HFTokenizer, or give it those"
    )
