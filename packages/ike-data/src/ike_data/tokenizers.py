"""The tokenizer of a model, and what ike's own processors ask of one."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
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
from ike_data.loading import add_tokens, load_tokenizer, read_template, set_eos, set_pad
from ike_data.prompts import Prompter
from ike_data.templates import ChatTemplate


@runtime_checkable
class OffsetTokenizer(Tokenizer, Protocol):
    """What ike's own processors ask of a tokenizer: `Tokenizer`, and which token holds which character."""

    @property
    def encoder(self) -> Encoder: ...

    @property
    def opening(self) -> tuple[int, ...]:
        """What the tokenizer puts before a text of its own accord: the bos, or nothing."""
        ...

    def template(self, *, has_tools: bool) -> ChatTemplate:
        """The chat template for conversations with or without tools. DataError where there is none."""
        ...


def _check_date(_: object, field: "attrs.Attribute[str]", value: str) -> None:
    if value:
        try:
            date.fromisoformat(value)
        except ValueError as error:
            raise ValueError(f"'{field.name}' must be a day such as 2026-01-31: {value}") from error


def _check_tokens(_: object, field: "attrs.Attribute[Any]", value: tuple[str, ...]) -> None:
    if not all(value) or len(set(value)) < len(value):
        raise ValueError(f"'{field.name}' must be texts, each once: {value}")


@attrs.frozen
class HFTokenizer:
    """A tokenizer that transformers reads. Cheap to make: nothing is read before it is used."""

    path: str
    """A folder, a .gguf file, or a name on the hub."""
    chat_template: Path | None = None
    """A file with the template to use in place of the tokenizer's own."""
    eos_token: str = ""
    """A token of the tokenizer that ends an answer, in place of its own; '': its own."""
    pad_token: str = ""
    """A token of the tokenizer to pad with, in place of its own; '': its own, or the eos where it has none. What is
    padding is known by length, so that one which is learned (the eos) may be it."""
    add_tokens: tuple[str, ...] = attrs.field(default=(), validator=_check_tokens)
    """Tokens that the tokenizer is to have besides its own; what of them it has is left alone. Rows' text that spells
    one is that token, as it is with transformers' `add_tokens`, unless it is the eos or the pad. The model's embeddings
    grow to fit."""
    template_date: str = attrs.field(default="", validator=_check_date)
    """The day, as 2026-01-31, that a template is told which asks for today's; '': it is told none."""

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
        size = max(loaded.get_vocab().values()) + 1  # where ids have gaps its length is less
        return Vocabulary(size, pad, bos=loaded.bos_token_id, eos=loaded.eos_token_id, added=self._read[1])

    def save(self, folder: Path) -> None:
        """Writes the files that transformers reads, the chat template among them."""
        self._loaded.save_pretrained(str(folder))

    def description(self) -> Mapping[str, Any]:
        """What it is in the key of a store: its content and what reads it, wherever its files lie."""
        loaded = self._loaded
        return {
            "content": xxh3_128(loaded.backend_tokenizer.to_str().encode()).hexdigest(),
            "special_tokens": self._special_tokens,
            "chat_template": loaded.chat_template,
            "settings": {"template_date": self.template_date, "eos_token": self.eos_token},
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

    def template(self, *, has_tools: bool) -> ChatTemplate:
        """The chat template for conversations with or without tools. DataError where there is none.

        DataError too where it never ends an answer with the `eos_token` that was asked for.
        """
        return self._templates["tool_use" if has_tools else "default"]

    def chat_prompt(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Token ids of a conversation up to where the assistant begins its answer; the bos once.

        DataError where there is no template, or it refuses the messages.
        """
        return self._prompter.tokens(messages)

    @cached_property
    def _prompter(self) -> Prompter:
        return Prompter(self.template(has_tools=False), self.encoder, self.opening)

    @cached_property
    def _templates(self) -> Mapping[str, ChatTemplate]:
        """By the name that transformers gives them; a tokenizer may have one for both."""
        sources = self._loaded.chat_template
        if not isinstance(sources, dict):
            sources = {"default": sources}
        default = self._template(sources.get("default"))
        return {
            "default": default,
            "tool_use": self._template(sources["tool_use"]) if "tool_use" in sources else default,
        }

    def _template(self, source: str | None) -> ChatTemplate:
        if not source:
            raise DataError(
                f"tokenizer.path = {self.path!r}: this tokenizer has no chat template; take an instruct model's, "
                "name a file by tokenizer.chat_template, or read rows as text, with template = false or "
                "ike_data:InstructionProcessor"
            )
        today = date.fromisoformat(self.template_date) if self.template_date else None
        template = ChatTemplate(source, self._special_tokens, today)
        if self.eos_token and not template.ends_with(self.eos_token):
            raise DataError(
                f"tokenizer.eos_token = {self.eos_token!r}: the chat template never ends an answer with it, so a model "
                "would never be taught to stop; name the token that it does end with, or another chat_template"
            )
        return template

    @property
    def _special_tokens(self) -> Mapping[str, str]:
        """bos_token, eos_token and their like."""
        return {name: str(token) for name, token in self._loaded.special_tokens_map.items() if isinstance(token, str)}

    @property
    def _loaded(self) -> Any:
        return self._read[0]

    @cached_property
    def _read(self) -> tuple[Any, int]:
        """transformers' tokenizer as the settings make it, and how many tokens were added."""
        loaded = load_tokenizer(self.path)
        own = len(loaded)
        add_tokens(loaded, self.add_tokens)
        added = len(loaded) - own
        if self.chat_template is not None:
            loaded.chat_template = read_template(self.chat_template)
        if self.eos_token:
            set_eos(loaded, self.eos_token)
        if self.pad_token:
            set_pad(loaded, self.pad_token)
        return loaded, added


def offset_tokenizer(tokenizer: object, *, part: object) -> OffsetTokenizer:
    """The tokenizer, if a processor of ike's own can work with it; ConfigError says what it lacks."""
    if isinstance(tokenizer, OffsetTokenizer):
        return tokenizer
    wanted = ("encode", "decode", "vocabulary", "save", "encoder", "opening", "template")
    lacking = [name for name in wanted if name not in dir(tokenizer)]
    raise ConfigError(
        f"{type(part).__name__} needs to know which token holds which character: {type(tokenizer).__name__} "
        f"lacks {', '.join(lacking)}; use ike_data:HFTokenizer, or give it those"
    )
