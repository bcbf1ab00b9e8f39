"""`ike-ckpt export`: a model's folder, and adapters merged into theirs, against what peft itself computes."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from ike_ckpt import create_fileid, save_checkpoint
from ike_ckpt.cli import command

IDS = torch.tensor([[5, 9, 2, 40, 33, 17, 8]])


def llama(*, is_tied: bool = False) -> LlamaForCausalLM:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.2, pad_token_id=0, tie_word_embeddings=is_tied,
    )  # fmt: skip
    return LlamaForCausalLM(config)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    llama().save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def logits_of(model: nn.Module) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model.eval()(IDS).logits
    return logits


def far(one: nn.Module, other: nn.Module) -> float:
    """Distance of the logits, in norms of the other's."""
    return float((logits_of(one) - logits_of(other)).norm() / logits_of(other).norm())


def by_peft(model: nn.Module, folder: Path, **settings: object) -> nn.Module:
    """An adapter as training leaves it, saved by peft; returns peft's model."""
    peft = pytest.importorskip("peft")
    wrapped = peft.get_peft_model(model, peft.LoraConfig(**settings))
    torch.manual_seed(4)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    wrapped.save_pretrained(folder)
    return wrapped


def export(*arguments: object) -> int:
    return command(["export", *map(str, arguments)])


@pytest.mark.parametrize(
    "settings",
    [
        {"r": 4, "lora_alpha": 6, "target_modules": "all-linear"},
        {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "down_proj"], "use_rslora": True},
        {"r": 4, "lora_alpha": 6, "target_modules": "all-linear", "use_dora": True},
        {"r": 4, "target_modules": ["q_proj"], "rank_pattern": {"layers.1.self_attn.q_proj": 2}},
        {"r": 4, "target_modules": ["v_proj"], "modules_to_save": ["lm_head", "embed_tokens"]},
    ],
    ids=["lora", "rslora", "dora", "ranks", "saved"],
)
def test_a_merged_adapter_says_what_peft_says(settings, base: Path, tmp_path: Path) -> None:
    right = by_peft(AutoModelForCausalLM.from_pretrained(base), tmp_path / "adapter", task_type="CAUSAL_LM", **settings)
    assert export(tmp_path / "adapter", tmp_path / "out", "--merge") == 0
    merged, info = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert far(merged, right) < 1e-6
    assert far(AutoModelForCausalLM.from_pretrained(base), right) > 0.01


def test_gpt_2_keeps_its_weights_the_other_way_round(tmp_path: Path) -> None:
    """Its attention's output layer is square: nothing but the model's kind tells. peft's config does not say it."""
    torch.manual_seed(3)
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=1, n_head=2, initializer_range=0.2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "base")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    right = by_peft(model, tmp_path / "adapter", target_modules=["c_attn", "c_proj"], use_dora=True)
    assert export(tmp_path / "adapter", tmp_path / "out", "--merge") == 0
    assert far(AutoModelForCausalLM.from_pretrained(tmp_path / "out"), right) < 1e-6


def test_a_classifier_s_adapter_brings_its_head(base: Path, tmp_path: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    right = by_peft(model, tmp_path / "adapter", task_type="SEQ_CLS", target_modules=["q_proj"])
    assert export(tmp_path / "adapter", tmp_path / "out", "--merge") == 0
    merged, info = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert merged.num_labels == 1
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert far(merged, right) < 1e-5  # one number, of which little is left after cancelling


@pytest.mark.parametrize("is_tied", [False, True])
def test_added_tokens_are_merged_with_their_rows(is_tied: bool, tmp_path: Path) -> None:
    llama(is_tied=is_tied).save_pretrained(tmp_path / "base")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    model.resize_token_embeddings(70)
    saved = ["embed_tokens", "lm_head"]
    right = by_peft(
        model, tmp_path / "adapter", target_modules=["q_proj"], modules_to_save=saved, ensure_weight_tying=is_tied
    )
    assert export(tmp_path / "adapter", tmp_path / "out", "--merge") == 0
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert merged.config.vocab_size == merged.get_input_embeddings().num_embeddings == 70
    assert far(merged, right) < 1e-6


def test_the_dtype_is_that_of_the_base_or_the_one_named(base: Path, tmp_path: Path) -> None:
    half = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    half.save_pretrained(tmp_path / "half")
    right = by_peft(
        AutoModelForCausalLM.from_pretrained(tmp_path / "half", dtype=torch.float32),
        tmp_path / "adapter",
        target_modules=["q_proj"],
    )
    assert export(tmp_path / "adapter", tmp_path / "as-base", "--merge") == 0
    assert export(tmp_path / "adapter", tmp_path / "wide", "--merge", "--dtype", "float32") == 0
    assert {tensor.dtype for tensor in load_file(tmp_path / "as-base/model.safetensors").values()} == {torch.bfloat16}
    wide = AutoModelForCausalLM.from_pretrained(tmp_path / "wide")
    assert wide.dtype == torch.float32  # the config says it too
    assert far(wide, right) < 1e-6


def test_an_adapter_stays_one_unless_it_is_merged(base: Path, tmp_path: Path) -> None:
    by_peft(AutoModelForCausalLM.from_pretrained(base), tmp_path / "adapter", target_modules=["q_proj"])
    assert export(tmp_path / "adapter", tmp_path / "out") == 0
    assert (tmp_path / "out/adapter_config.json").is_file()
    assert (tmp_path / "out/adapter_model.safetensors").is_file()


def test_a_run_s_newest_step_is_exported_in_another_dtype(tmp_path: Path) -> None:
    run = create_fileid("run", root=tmp_path)
    save_checkpoint(llama(), file_id=run, step=1, root=tmp_path)
    newest = llama()
    with torch.no_grad():
        newest.lm_head.weight.mul_(2)
    save_checkpoint(newest, file_id=run, step=2, root=tmp_path)
    assert export(tmp_path / run, tmp_path / "out", "--dtype", "bfloat16") == 0
    out = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(out.lm_head.weight, newest.lm_head.weight.bfloat16(), rtol=0, atol=0)


def test_what_can_not_be_exported_is_said(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_peft(AutoModelForCausalLM.from_pretrained(base), tmp_path / "adapter", target_modules=["q_proj"])
    by_peft(llama(), tmp_path / "pissa", target_modules=["q_proj"], init_lora_weights="pissa")
    config = tmp_path / "adapter/adapter_config.json"

    def refused(*arguments: object) -> str:
        assert export(*arguments) == 4
        return capsys.readouterr().err

    assert "is there already" in refused(base, base)
    assert "nothing to merge" in refused(base, tmp_path / "out", "--merge")
    assert "a dtype and a base are for --merge" in refused(tmp_path / "adapter", tmp_path / "out", "--dtype", "float32")
    assert "holds no model" in refused(tmp_path, tmp_path / "out")
    assert "init_lora_weights = 'pissa'" in refused(tmp_path / "pissa", tmp_path / "out", "--merge")
    said = json.loads(config.read_text())
    config.write_text(json.dumps(said | {"base_model_name_or_path": str(tmp_path / "gone")}))
    assert "no folder of safetensors here; give one by --base" in refused(
        tmp_path / "adapter", tmp_path / "out", "--merge"
    )
    save_file({"model.norm.weight": torch.ones(32)}, tmp_path / "gone.safetensors")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone.safetensors").rename(tmp_path / "gone/model.safetensors")
    assert "which is not in" in refused(tmp_path / "adapter", tmp_path / "out", "--merge")
    assert not (tmp_path / "out").exists()  # whole or absent
    assert export(tmp_path / "adapter", tmp_path / "out", "--merge", "--base", base) == 0
