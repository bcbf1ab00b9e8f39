"""Rows to tokens on disk, and back: ike's store against `datasets.map` as TRL 1.16 uses it, and the bare tokenizer.

hatch run benchmarks:data --tokenizer FOLDER --rows 50000 FILE...

FILEs hold chats (`messages` or `conversations`) or `question` and `answer`; they are repeated with variations until
there are enough rows. Every arm gets the same tokenizer and chat template, and takes turns with the others; what is
shown are medians, and ratios of them. `datasets.map` calls apply_chat_template(tokenize=True) row by row (TRL's
`_tokenize`, batched=False) and is given its column of masks for nothing; ike finds which tokens are the assistant's.
The bare arm tokenizes texts that are rendered beforehand, in blocks of 256, and keeps nothing: no pipeline can be
faster. Tokenizers use one thread a process. Then rows are read back in random order, and a store of 10^8 tokens is
opened.
"""

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import orjson
from transformers import AutoTokenizer

from ike_data import ChatProcessor, HFTokenizer
from ike_data.building import Preparation, Request
from ike_data.kept import Builder
from ike_data.ledger import Budget
from ike_data.rows import read_records
from ike_data.store.block import Packer
from ike_data.store.reader import Store
from ike_data.store.writer import StoreWriter

BLOCK = 256
READS = 10_000
OPENED_TOKENS, EXAMPLE_TOKENS = 10**8, 500
ROLES = {"human": "user", "gpt": "assistant"}

OPEN = """
import random, sys, time
from pathlib import Path
from ike_data.store.reader import Store
def anonymous():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("RssAnon")) / 1024
before, began = anonymous(), time.perf_counter()
store = Store.open(Path(sys.argv[1]))
opened = time.perf_counter() - began
draw = random.Random(0)
for _ in range(10_000):
    place = draw.randrange(len(store))
    sum(store.example(place, index=place).trunk.tokens[:16])
print(f"opened in {opened * 1000:.1f} ms; {anonymous() - before:.1f} MiB more anonymous memory after 10,000 reads")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ike-benchmark-") as folder:
        home = Path(folder)
        rows = home / "rows.jsonl"
        write_rows(rows, asked.files, asked.rows)
        build(home, rows, asked.tokenizer, asked.rounds)
        read(home)
        open_large(home / "large")


def write_rows(path: Path, files: Sequence[str], count: int) -> None:
    chats = [chat for _, record in read_records(files) if (chat := messages(record))]
    with path.open("wb") as file:
        for number in range(count):
            chat = chats[number % len(chats)]
            varied = [{**said, "content": f"{said['content']} ({number})"} for said in chat]
            file.write(orjson.dumps({"messages": varied}) + b"\n")


def messages(record: Mapping[str, Any]) -> list[dict[str, str]]:
    if "question" in record:
        texts = (("user", record["question"]), ("assistant", record.get("answer") or record.get("ground_truth", "")))
        return [{"role": role, "content": text} for role, text in texts]
    said = record.get("messages") or [
        {"role": ROLES[turn["from"]], "content": turn["value"]} for turn in record.get("conversations", [])
    ]
    return said if any(turn["role"] == "assistant" for turn in said) else []


def build(home: Path, rows: Path, tokenizer: str, rounds: int) -> None:
    arms: dict[str, Callable[[], int]] = {
        "the bare tokenizer": bare(rows, tokenizer),
        "datasets.map": mapped(home, rows, tokenizer),
        "ike, 1 worker": stored(home, rows, tokenizer, workers=1),
        "ike, 2 workers": stored(home, rows, tokenizer, workers=2),
    }
    count = sum(1 for _ in rows.open("rb"))
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    tokens = {}
    for _ in range(rounds):
        for name, arm in arms.items():
            began = time.perf_counter()
            tokens[name] = arm()
            seconds[name].append(time.perf_counter() - began)
    peer = statistics.median(seconds["datasets.map"])
    assert len(set(tokens.values())) == 1, tokens
    print(f"{count:,} rows, {tokens['datasets.map']:,} tokens")
    for name, taken in seconds.items():
        median = statistics.median(taken)
        rate = f"{count / median:9,.0f} rows/s {tokens[name] / median / 1e6:6.3f} M tokens/s"
        print(f"{name:20} {rate} {peer / median:6.2f} x datasets.map   ({', '.join(f'{s:.1f}' for s in taken)} s)")


def bare(rows: Path, path: str) -> Callable[[], int]:
    tokenizer = AutoTokenizer.from_pretrained(path)
    texts = [tokenizer.apply_chat_template(row["messages"], tokenize=False) for row in records(rows)]
    backend = tokenizer.backend_tokenizer

    def run() -> int:
        blocks = (texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK))
        return sum(
            len(encoding.ids)
            for block in blocks
            for encoding in backend.encode_batch_fast(block, add_special_tokens=False)
        )

    return run


def mapped(home: Path, rows: Path, path: str) -> Callable[[], int]:
    import datasets  # of this environment alone

    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(path)
    loaded = datasets.load_dataset("json", data_files=str(rows), split="train", cache_dir=str(home / "datasets"))

    def tokenize(example: Mapping[str, Any], processing_class: Any) -> dict[str, Any]:
        output = processing_class.apply_chat_template(
            example["messages"], tokenize=True, return_dict=True, add_generation_prompt=False
        )
        return {"input_ids": output["input_ids"], "assistant_masks": [1] * len(output["input_ids"])}

    def run() -> int:
        made = loaded.map(
            tokenize,
            fn_kwargs={"processing_class": tokenizer},
            remove_columns=loaded.column_names,
            load_from_cache_file=False,
            cache_file_name=str(home / "mapped.arrow"),
        )
        return int(sum(len(ids) for ids in made.data.column("input_ids")))

    return run


def stored(home: Path, rows: Path, path: str, *, workers: int) -> Callable[[], int]:
    preparation = Preparation(processor=ChatProcessor(HFTokenizer(path)), max_tokens=0, too_long="skip")
    preparation.examples("", next(records(rows)))  # loads the tokenizer, as the other arms have

    def run() -> int:
        shutil.rmtree(home / "store", ignore_errors=True)
        store = Builder(
            request=Request(files=[str(rows)], limit=0, preparation=preparation, workers=workers),
            name="benchmark",
            cache=home / "store",
            own=None,
            budget=Budget("benchmark", 1.0, home / "ledger.jsonl"),
            keeps_ledger=False,
            progress=lambda tally: None,
            say=print,
        ).store()
        return store.manifest.tally.tokens

    return run


def read(home: Path) -> None:
    import datasets

    (folder,) = (path.parent for path in (home / "store").glob("*/store.json"))
    store = Store.open(folder)
    made = datasets.Dataset.from_file(str(home / "mapped.arrow"))
    as_numpy, as_arrow = made.with_format("numpy"), made.with_format("arrow")
    draw = random.Random(0)
    order = [draw.randrange(len(store)) for _ in range(READS)]
    arms: dict[str, Callable[[], int]] = {
        "datasets": lambda: total(made[i] for i in order),
        "datasets, numpy": lambda: total(as_numpy[i] for i in order),
        "datasets, arrow": lambda: total(as_arrow[i] for i in order),
        "ike": lambda: sum(
            len(segment.tokens) + len(segment.weights) for i in order for segment in store.example(i, index=i).segments
        ),
    }
    rates: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(3):
        for name, arm in arms.items():
            began = time.perf_counter()
            arm()
            rates[name].append(READS / (time.perf_counter() - began))
    medians = {name: statistics.median(taken) for name, taken in rates.items()}
    best = max(rate for name, rate in medians.items() if name != "ike")
    print("\n".join(f"reading rows: {name:16} {rate:9,.0f} rows/s" for name, rate in medians.items()))
    ours = sum(path.stat().st_size for path in folder.iterdir()) / store.manifest.tally.tokens
    theirs = (home / "mapped.arrow").stat().st_size / store.manifest.tally.tokens
    print(
        f"ike reads {medians['ike'] / best:.1f} x the best of datasets, {ours:.2f} bytes a token against {theirs:.2f}"
    )


def total(rows: Iterator[Any]) -> int:
    return sum(len(row["input_ids"]) + len(row["assistant_masks"]) for row in rows)


def open_large(folder: Path) -> None:
    """A store of 10^8 tokens, opened by a process that has nothing else."""
    from array import array

    from ike_core.examples import Example, Segment

    draw = random.Random(0)
    example = Example((Segment.prompt(draw.choices(range(49_152), k=200)), Segment.answer([7] * 300)), source="a:1")
    packer = Packer()
    for row in range(1000):
        packer.add(example, row)
    block = packer.block(rows=1000, unusable=0, entries=(), shapes={})
    with StoreWriter.open(folder) as writer:
        for start in range(0, OPENED_TOKENS // EXAMPLE_TOKENS, 1000):
            block.numbers["rows"][:] = array("q", range(start, start + 1000))
            writer.append(block)
        writer.finish({})
    done = subprocess.run([sys.executable, "-c", OPEN, str(folder)], capture_output=True, text=True, check=True)
    print(f"a store of {OPENED_TOKENS:,} tokens: {done.stdout.strip()}")


def records(rows: Path) -> Iterator[dict[str, Any]]:
    with rows.open("rb") as file:
        yield from map(orjson.loads, file)


if __name__ == "__main__":
    main()
