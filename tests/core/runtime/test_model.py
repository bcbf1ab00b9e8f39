"""A model is what its files say, to the last weight, or it is not built."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ike_core.errors import ConfigError
from ike_core.interfaces import BuildContext, ModelPart
from ike_core.runtime.model import PretrainedModel


def context(dtype: torch.dtype = torch.float32, attention: str = "auto") -> BuildContext:
    device = torch.device("cpu")
    return BuildContext(device=device, dtype=dtype, attention=attention, vocabulary=None, world=None, seed=0)


def test_it_is_a_model_part() -> None:
    assert isinstance(PretrainedModel("x"), ModelPart)


def test_the_weights_are_the_files(stories) -> None:
    model = PretrainedModel(str(stories)).build(context())
    files = load_file(stories / "model.safetensors")
    assert {name for name, _ in model.named_parameters()} == set(files)
    assert all(torch.equal(parameter, files[name]) for name, parameter in model.named_parameters())
    assert model.lm_head.weight is model.model.embed_tokens.weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_parameters_have_the_contexts_dtype_whatever_the_files(llama_folder, dtype) -> None:
    files = load_file(llama_folder / "model.safetensors")
    model = PretrainedModel(str(llama_folder)).build(context(dtype))
    assert all(torch.equal(parameter, files[name].to(dtype)) for name, parameter in model.named_parameters())
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32  # what `.bfloat16()` would spoil


def test_float32_out_of_a_bf16_file_is_exact(tiny_llama, tmp_path) -> None:
    tiny_llama.to(torch.bfloat16).save_pretrained(tmp_path)
    model = PretrainedModel(str(tmp_path)).build(context(torch.float32))
    assert torch.equal(model.model.norm.weight, tiny_llama.model.norm.weight.float())
    assert model.dtype == torch.float32


def test_attention_is_transformers_own_choice_or_the_one_that_is_named(llama_folder) -> None:
    part = PretrainedModel(str(llama_folder))
    assert part.build(context()).config._attn_implementation == "sdpa"
    assert part.build(context(attention="eager")).config._attn_implementation == "eager"
    with pytest.raises(ConfigError, match=r"attention = 'sdap'.*sdpa"):
        part.build(context(attention="sdap"))


def test_sharded_files_are_read(tiny_llama, tmp_path) -> None:
    tiny_llama.save_pretrained(tmp_path, max_shard_size="30KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    model = PretrainedModel(str(tmp_path)).build(context())
    ids = torch.arange(9)[None]
    assert torch.equal(model(ids).logits, tiny_llama.eval()(ids).logits)


# -- what is not there ---------------------------------------------------------------------------------------------


def test_a_name_that_is_neither_folder_nor_model_shows_both_that_were_tried(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        PretrainedModel("nobody/nothing").build(context())
    said = str(caught.value)
    assert f"there is no folder {tmp_path / 'nobody' / 'nothing'}" in said
    assert "the hub gave no model 'nobody/nothing'" in said
    assert "\n" not in said


def cached(folder: Path, hub: Path) -> None:
    """Lays files where the hub's client keeps a model that it has downloaded: mine/tiny."""
    snapshot = hub / "models--mine--tiny" / "snapshots" / ("0" * 40)
    shutil.copytree(folder, snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)


def test_a_hub_name_is_read_from_the_cache(llama_folder, tmp_path, monkeypatch) -> None:
    cached(llama_folder, tmp_path / "hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    model = PretrainedModel("mine/tiny").build(context())
    assert torch.equal(model.model.norm.weight, load_file(llama_folder / "model.safetensors")["model.norm.weight"])


def test_pickles_of_the_hub_are_refused_too(llama_folder, tmp_path, monkeypatch) -> None:
    torch.save(load_file(llama_folder / "model.safetensors"), llama_folder / "pytorch_model.bin")
    (llama_folder / "model.safetensors").unlink()
    cached(llama_folder, tmp_path / "hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(ConfigError, match=r"'mine/tiny' with safetensors weights"):
        PretrainedModel("mine/tiny").build(context())


@pytest.mark.parametrize("path", ["/no/such/folder", "models/of/mine", "a name", "missing.gguf"])
def test_what_can_not_be_a_hub_name_is_not_asked_for(path) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"nothing is at {Path(path).absolute()}")):
        PretrainedModel(path).build(context())


def test_a_run_folder_points_at_its_newest_model(tmp_path) -> None:
    for step in (100, 200):
        (tmp_path / f"step-000{step}" / "model").mkdir(parents=True)
    with pytest.raises(ConfigError, match=re.escape(f"did you mean {tmp_path / 'step-000200' / 'model'}?")):
        PretrainedModel(str(tmp_path)).build(context())


def test_pickled_weights_are_refused_with_the_way_out(llama_folder) -> None:
    weights = load_file(llama_folder / "model.safetensors")
    (llama_folder / "model.safetensors").unlink()
    torch.save(weights, llama_folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"only pytorch_model\.bin, and unpickling runs code.*save_pretrained"):
        PretrainedModel(str(llama_folder)).build(context())


def test_a_file_that_is_no_model_is_refused(llama_folder) -> None:
    with pytest.raises(ConfigError, match=r"is a file; a model is a folder"):
        PretrainedModel(str(llama_folder / "model.safetensors")).build(context())


def test_a_config_that_transformers_does_not_know_is_refused(llama_folder) -> None:
    (llama_folder / "config.json").write_text('{"model_type": "lama"}')
    with pytest.raises(ConfigError, match="lama"):
        PretrainedModel(str(llama_folder)).build(context())


def test_the_models_own_code_is_not_run_unasked(llama_folder) -> None:
    (llama_folder / "config.json").write_text(
        '{"model_type": "mine", "auto_map": {"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"}}'
    )
    (llama_folder / "mine.py").write_text(f"open({str(llama_folder / 'ran')!r}, 'w')")
    with pytest.raises(ConfigError, match="trust_remote_code"):
        PretrainedModel(str(llama_folder)).build(context())
    assert not (llama_folder / "ran").exists()


# -- weights that don't fit: case B91 ------------------------------------------------------------------------------

LAYER = "model.layers.0.mlp.gate_proj.weight"


def _prefixed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"module.{name}": tensor for name, tensor in weights.items()}


def _without(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in weights.items() if name != LAYER}


def _with_more(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {**weights, "model.layers.7.mlp.gate_proj.weight": weights[LAYER].clone()}


def _reshaped(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {**weights, LAYER: weights[LAYER][:-1].clone()}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_without, [f"1 missing from the files: {LAYER}"]),
        (_with_more, ["1 in the files but not in the model: model.layers.7.mlp.gate_proj.weight"]),
        (_reshaped, [f"1 of another shape: {LAYER} ([63, 32] in the file, [64, 32] in the model)"]),
        # 2 layers of 9, the embedding, the last norm, and the head, which has nothing to be tied to
        (_prefixed, ["21 missing from the files: ", "20 in the files but not in the model: module.", " and 12 more"]),
    ],
)
def test_weights_that_do_not_fit_are_named_and_counted(
    llama_folder, change: Callable[[dict[str, Tensor]], dict[str, Tensor]], said
) -> None:
    path = llama_folder / "model.safetensors"
    weights = load_file(path)
    path.unlink()  # the tensors read above are mapped from it
    save_file(change(weights), path, metadata={"format": "pt"})
    with pytest.raises(ConfigError) as caught:
        PretrainedModel(str(llama_folder)).build(context())
    assert all(part in str(caught.value) for part in said), str(caught.value)


def test_a_truncated_file_is_an_error_with_the_path(llama_folder) -> None:
    path = llama_folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ConfigError, match=re.escape(str(llama_folder))):
        PretrainedModel(str(llama_folder)).build(context())


def test_loading_shows_no_progress_bar_and_leaves_the_users_setting(llama_folder, capfd) -> None:
    from transformers.utils import logging

    assert logging.is_progress_bar_enabled()
    PretrainedModel(str(llama_folder)).build(context())
    assert "it/s" not in capfd.readouterr().err
    assert logging.is_progress_bar_enabled()
