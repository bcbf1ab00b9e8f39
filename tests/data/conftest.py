"""A tokenizer small enough to count on one's fingers, and rows as files."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from ike_core.interfaces import DatasetParts
from ike_data import HFTokenizer, read_dataset

SPECIAL = ("<pad>", "<bos>", "<eos>", "<|im_start|>", "<|im_end|>")  # ids 0-4

USER = "{{ '<|im_start|>user\n' + message.content + '<|im_end|>\n' }}"
OPENED = "{{ '<|im_start|>assistant\n' }}"
MARKED = OPENED + "{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
UNMARKED = OPENED + "{{ message.content + '<|im_end|>' + '\n' }}"
PROMPT = "{% if add_generation_prompt %}" + OPENED + "{% endif %}"


@pytest.fixture(scope="session")
def template() -> Callable[..., str]:
    """FIX-TOK's chat template, marked or not, or with another turn of the assistant."""

    def template(*, marked: bool = False, assistant: str = "", before: str = "", prompt: str = PROMPT) -> str:
        turn = assistant or (MARKED if marked else UNMARKED)
        turns = "{% if message.role == 'assistant' %}" + turn + "{% else %}" + USER + "{% endif %}"
        return before + "{% for message in messages %}" + turns + "{% endfor %}" + prompt

    return template


def byte_tokenizer(*, adds_bos: bool, strips: str) -> Tokenizer:
    """Byte-level BPE without a regular expression: the specials, 256 byte symbols, two newlines, space and "h".

    `strips` is a special that takes the white space behind it.
    """
    merges = [("Ċ", "Ċ"), ("Ġ", "h")]
    vocabulary = {token: place for place, token in enumerate([*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, rstrip=token == strips) for token in SPECIAL])
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return tokenizer


@pytest.fixture(scope="session")
def byte_level() -> Callable[..., Tokenizer]:
    """`byte_tokenizer`, for whoever saves one otherwise."""
    return byte_tokenizer


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., HFTokenizer]:
    """Writes FIX-TOK the way models ship their tokenizers, and reads it by ike."""

    def save(*, chat: str | None = None, adds_bos: bool = False, strips: str = "", **config: Any) -> HFTokenizer:
        folder = tmp_path / f"tokenizer{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        byte_tokenizer(adds_bos=adds_bos, strips=strips).save(str(folder / "tokenizer.json"))
        said = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<bos>",
            "eos_token": "<eos>",
            "pad_token": "<pad>",
            **({} if chat is None else {"chat_template": chat}),
            **config,
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(said))
        return HFTokenizer(path=str(folder))

    return save


@pytest.fixture
def fix_tok(saved: Callable[..., HFTokenizer], template: Callable[..., str]) -> HFTokenizer:
    """FIX-TOK of the shared cases, its template without generation markers."""
    return saved(chat=template())


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Writes a file of rows (JSONL), or of bytes as they are, and returns its path."""

    def write(name: str, content: bytes | Iterable[Any]) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, bytes):
            content = b"".join(json.dumps(row).encode() + b"\n" for row in content)
        path.write_bytes(content)
        return str(path)

    return write


@attrs.frozen
class OneRank:
    """The trivial world: nobody else."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    replicas: int = 1
    device: Any = "cpu"
    is_first: bool = True


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., DatasetParts]:
    """`read_dataset` in one process, with everything allowed that a test does not ask about."""

    def read(files: Any, processor: Any, *, name: str = "train", **options: Any) -> DatasetParts:
        asked: Mapping[str, Any] = {
            "limit": 0,
            "max_tokens": 0,
            "too_long": "skip",
            "budget": 1.0,
            "holdout": None,
            "folder": tmp_path / "run",
            "world": OneRank(),
            "cache": tmp_path / "cache",
            "workers": 1,
            "say": lambda line: None,
            **options,
        }
        return read_dataset(name, [files] if isinstance(files, str) else files, processor, **asked)

    return read


@pytest.fixture
def ledger(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    """What `read` has put into the ledger."""
    return lambda: [json.loads(line) for line in (tmp_path / "run/ledger.jsonl").read_text().splitlines()]


@pytest.fixture(scope="session")
def supervised() -> Callable[[Any], list[int]]:
    """Places of the tokens that are learned."""
    return lambda example: [place for place, weight in enumerate(example.trunk.weights) if weight]


@pytest.fixture(scope="session")
def learned(supervised: Callable[[Any], list[int]]) -> Callable[[HFTokenizer, Any], str]:
    """The text of the tokens that are learned."""
    return lambda tokenizer, example: tokenizer.decode(example.trunk.tokens[place] for place in supervised(example))
