"""The module that the engine wraps: a model that is called as ever, and that scores batches.

R rows, T tokens of a row, N supervised tokens, V vocabulary, D hidden size.
"""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from ike_core.batch import Batch
from ike_core.errors import TrainingError
from ike_tasks.head import LogitRule, ScoringHead

_READS_LAYOUTS = {"full_attention", "sliding_attention"}
"""transformers' names (`config.layer_types`) of the layers whose attention function sees every token of a document."""


class ScoringModel(nn.Module):
    """A model as it is, and one more call: `model(scored=batch)`.

    Ordinary calls pass through, so `model(**samples).loss` is what it was. Parameters keep their names under `lm.`.
    """

    is_lean: bool
    """Whether log-probabilities come from the head's own chunks; else from full logits."""
    packing_refusal: str
    """Why this model can't read packed rows, as far as it can be known without running it; '' where nothing says so."""

    def __init__(self, lm: nn.Module, *, is_lean: bool, packing_refusal: str) -> None:
        super().__init__()
        self.lm = lm
        self.is_lean = is_lean
        self.packing_refusal = packing_refusal

    @classmethod
    def of(cls, lm: nn.Module, *, attention: str | None = None) -> "ScoringModel":
        """Gives the model the attention of that name where it has sdpa, and its output layer the lean calls."""
        if not isinstance(lm, PreTrainedModel):
            return cls(lm, is_lean=False, packing_refusal=f"{type(lm).__name__} is not a model of transformers")
        if attention is not None and lm.config._attn_implementation == "sdpa":
            lm.set_attn_implementation(attention)
        return cls(lm, is_lean=_adopt_head(lm), packing_refusal=_packing_refusal(lm, attention))

    def forward(self, *args: Any, scored: Batch | None = None, is_summed: bool = False, **inputs: Any) -> Any:
        """The model's own call; with `scored`, log-probabilities [N] of the batch's targets, or their weighted sum."""
        if scored is None:
            return self.lm(*args, **inputs)
        if self.is_lean:
            return self._by_chunks(scored, is_summed=is_summed)
        logp_N = self._by_full_logits(scored)
        return (logp_N * scored["target_weights"].to(logp_N.dtype)).sum() if is_summed else logp_N

    def _by_chunks(self, batch: Batch, *, is_summed: bool) -> Tensor:
        lm = self.lm
        assert isinstance(lm, PreTrainedModel)
        hidden_RTD = lm.get_decoder()(**self.inputs(batch)).last_hidden_state
        hidden_ND = hidden_RTD.flatten(0, 1).index_select(0, batch["predictors"])
        head = lm.get_output_embeddings()
        assert isinstance(head, ScoringHead)
        scores: Tensor = head(hidden_ND, batch["targets"], batch["target_weights"] if is_summed else None)
        return scores

    def _by_full_logits(self, batch: Batch) -> Tensor:
        output = self.lm(**self.inputs(batch))
        return pick_logprobs(output if isinstance(output, Tensor) else output.logits, batch)

    def inputs(self, batch: Batch) -> dict[str, Any]:
        """What the model itself is given.

        Padded rows go without positions: some models take none, and padding on the right moves none.
        """
        inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
        if batch.layout is not None:
            inputs |= {"position_ids": batch["position_ids"], "layout": batch.layout}
        if isinstance(self.lm, PreTrainedModel):
            inputs["use_cache"] = False
        return inputs


def prepared(model: nn.Module) -> ScoringModel:
    """The scoring model inside whatever an engine makes of it."""
    for module in model.modules():
        if isinstance(module, ScoringModel):
            return module
    raise TrainingError(
        f"{type(model).__name__} was not prepared to score tokens; give the engine ike_tasks.Packed().prepare(model)"
    )


def pick_logprobs(logits_RTV: Tensor, batch: Batch) -> Tensor:
    """log softmax of full logits at the batch's targets, in float32 at least.  -> [N]"""
    logits_NV = logits_RTV.flatten(0, 1).index_select(0, batch["predictors"])
    wide_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    return wide_NV.log_softmax(1).gather(1, batch["targets"][:, None]).squeeze(1)


def _adopt_head(lm: PreTrainedModel) -> bool:
    """Whether the output layer could be given its lean calls: a plain Linear over a decoder that can run alone."""
    head = lm.get_output_embeddings()
    if lm.get_decoder() is lm or type(head) not in (nn.Linear, ScoringHead):
        return False
    ScoringHead.adopt(head, logit_rule(lm.config))
    return True


def logit_rule(config: PreTrainedConfig) -> LogitRule:
    """From the names that the models of transformers use; what they don't tell, the self-check finds."""
    said = config.get_text_config().to_dict()
    scale = said.get("logit_scale") or 1.0  # Cohere
    scale /= said.get("logits_scaling") or 1.0  # Granite
    return LogitRule(float(scale), said.get("final_logit_softcapping"))  # Gemma


def _packing_refusal(lm: PreTrainedModel, attention: str | None) -> str:
    config = lm.config.get_text_config()
    name = type(lm).__name__
    if config._attn_implementation != attention:
        return f"{name} uses {config._attn_implementation} attention"
    others = set(config.to_dict().get("layer_types") or ()) - _READS_LAYOUTS
    if others:
        return f"{name} has layers of {', '.join(sorted(others))}"
    parameters = inspect.signature(lm.get_decoder().forward).parameters.values()
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return f"{name} hands no keywords on to its attention"
    return ""
