"""`save_checkpoint` in anyone's script: any module, with or without a process group."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from ike_ckpt import create_fileid, read_weights, save_checkpoint
from ike_core.errors import CheckpointError


class Shared(nn.Module):
    """Case B83: a tied head, a buffer that is a view of a weight, a transposed weight."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.mix = nn.Parameter(torch.randn(4, 4).T)
        self.register_buffer("row", self.embed.weight.detach()[3])
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, ids_T: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids_T) @ self.mix + self.row)


def test_a_module_of_anyones_comes_back_with_equal_outputs(tmp_path) -> None:
    model, other = Shared(seed=1), Shared(seed=2)
    folder = save_checkpoint(model, file_id=create_fileid(root=tmp_path), root=tmp_path)
    other.load_state_dict(read_weights(folder / "model"))
    ids = torch.arange(10)
    assert torch.equal(model(ids), other(ids))
    assert other.head.weight.data_ptr() == other.embed.weight.data_ptr()


def test_a_tied_weight_lies_in_the_file_once(tmp_path) -> None:
    folder = save_checkpoint(Shared(seed=1), file_id="mine", root=tmp_path)
    assert load_file(folder / "model" / "model.safetensors").keys() == {"embed.weight", "mix", "row"}


def test_the_folder_is_where_the_arguments_say(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    file_id = create_fileid()
    assert save_checkpoint(nn.Linear(2, 2), file_id=file_id) == Path("runs", file_id, "step-000000")
    assert save_checkpoint(nn.Linear(2, 2), file_id=file_id, step=1_234_567) == Path("runs", file_id, "step-1234567")
    assert sorted(os.listdir(f"runs/{file_id}")) == ["owner.json", "step-000000", "step-1234567"]


def test_a_step_that_is_there_is_not_written_over(tmp_path) -> None:
    save_checkpoint(nn.Linear(2, 2), file_id="mine", root=tmp_path)
    before = read_weights(tmp_path / "mine" / "step-000000" / "model")
    with pytest.raises(CheckpointError, match=r"step-000000 is there already; give another step="):
        save_checkpoint(nn.Linear(2, 2), file_id="mine", root=tmp_path)
    after = read_weights(tmp_path / "mine" / "step-000000" / "model")
    assert torch.equal(before["weight"], after["weight"])


@pytest.mark.parametrize("file_id", ["../elsewhere", "a/b", "..", ""])
def test_an_id_that_leads_elsewhere_is_refused(tmp_path, file_id) -> None:
    with pytest.raises(CheckpointError, match="file_id"):
        save_checkpoint(nn.Linear(2, 2), file_id=file_id, root=tmp_path / "runs")
    assert not list(tmp_path.iterdir())


def test_a_negative_step_and_a_state_that_needs_a_pickle_are_refused(tmp_path) -> None:
    class Odd(nn.Linear):
        def get_extra_state(self) -> Any:
            return {"set": {1, 2}}

    with pytest.raises(CheckpointError, match="step = -1"):
        save_checkpoint(nn.Linear(2, 2), file_id="mine", step=-1, root=tmp_path)
    with pytest.raises(CheckpointError, match="_extra_state is dict, not a tensor"):
        save_checkpoint(Odd(2, 2), file_id="mine", root=tmp_path)


def test_wrappers_are_taken_off(tmp_path) -> None:
    compiled = torch.compile(nn.DataParallel(nn.Linear(2, 2)))
    folder = save_checkpoint(compiled, file_id="mine", root=tmp_path)
    assert read_weights(folder / "model").keys() == {"weight", "bias"}


def tiny_llama(*, tied: bool, dtype: torch.dtype) -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=tied,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transformers_reads_the_folder_as_it_is(tmp_path, tied, dtype) -> None:
    """Cases B83 and B97: equal logits bit for bit, the dtype kept, ties kept, nothing missing and nothing left over."""
    model = tiny_llama(tied=tied, dtype=dtype)
    folder = save_checkpoint(model, file_id="mine", root=tmp_path)
    from transformers import AutoModelForCausalLM

    read, report = AutoModelForCausalLM.from_pretrained(folder / "model", output_loading_info=True)
    ids = torch.randint(0, 40, (2, 9))
    assert not any(report.values())
    assert {parameter.dtype for parameter in read.parameters()} == {dtype}
    assert torch.equal(read(ids).logits, model(ids).logits)
    assert (read.lm_head.weight.data_ptr() == read.model.embed_tokens.weight.data_ptr()) is tied
    assert read.config.architectures == ["LlamaForCausalLM"]


def test_the_config_says_the_files_dtype_not_the_one_it_was_read_with(tmp_path) -> None:
    model = tiny_llama(tied=True, dtype=torch.float32)
    for parameter in model.parameters():  # as an engine does that trains in bf16
        parameter.data = parameter.data.bfloat16()
    folder = save_checkpoint(model, file_id="mine", root=tmp_path)
    from transformers import AutoModelForCausalLM

    assert AutoModelForCausalLM.from_pretrained(folder / "model").dtype == torch.bfloat16


def test_generation_settings_that_transformers_would_not_save_are_kept(tmp_path) -> None:
    """Many published models have a temperature beside do_sample = false; save_pretrained raises, after hours."""
    model = tiny_llama(tied=True, dtype=torch.float32)
    model.generation_config.update(do_sample=False, temperature=0.6, max_new_tokens=7)
    with pytest.raises(ValueError):
        model.generation_config.save_pretrained(tmp_path)
    folder = save_checkpoint(model, file_id="mine", root=tmp_path)
    from transformers import GenerationConfig

    assert GenerationConfig.from_pretrained(folder / "model").max_new_tokens == 7


RANKS = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from ike_ckpt import create_fileid, read_weights, save_checkpoint
from ike_core.errors import CheckpointError
import ike_ckpt.weights

model = DistributedDataParallel(nn.Linear(3, 3))
file_id = create_fileid(root=folder / "runs")
path = save_checkpoint(model, file_id=file_id, root=folder / "runs")
said["complete"] = [str(file.relative_to(folder / "runs" / file_id)) for file in sorted(path.rglob("*.safetensors"))]
said["equal"] = torch.equal(read_weights(path / "model")["weight"], model.module.weight)

def full_disk(*arguments, **options):
    raise OSError(28, "No space left on device")
ike_ckpt.weights.save_file = full_disk
try:
    save_checkpoint(model, file_id=file_id, step=1, root=folder / "runs")
except CheckpointError as error:
    said["full disk"] = str(error)
said["left"] = sorted(file.name for file in (folder / "runs" / file_id).iterdir())
try:
    save_checkpoint(model, file_id=file_id, root=folder / "runs")
except CheckpointError as error:
    said["there already"] = str(error)
"""


@pytest.fixture(scope="module")
def ranks_said(run_ranks, tmp_path_factory) -> list[dict]:
    return run_ranks(RANKS, 2, tmp_path_factory.mktemp("ranks"))


def test_every_rank_returns_when_the_step_is_on_disk(ranks_said) -> None:
    assert [one["complete"] for one in ranks_said] == [["step-000000/model/model.safetensors"]] * 2
    assert all(one["equal"] for one in ranks_said)


def test_a_full_disk_on_rank_0_is_an_error_on_every_rank_and_leaves_what_was_complete(ranks_said) -> None:
    for one in ranks_said:
        assert "step-000001 was not saved" in one["full disk"]
        assert "No space left on device" in one["full disk"]
        assert one["left"] == ["owner.json", "step-000000"]
        assert "is there already" in one["there already"]


@pytest.mark.parametrize("step", [1.5, 2.0, "3", -1])
def test_a_step_is_a_whole_number(tmp_path: Path, step: Any) -> None:
    """step-0001.5 would be found by nobody."""
    with pytest.raises(CheckpointError, match="a step is a whole number, 0 or more"):
        save_checkpoint(nn.Linear(1, 1), file_id=create_fileid("x", root=tmp_path), root=tmp_path, step=step)
    assert not list(tmp_path.rglob("step-*"))
