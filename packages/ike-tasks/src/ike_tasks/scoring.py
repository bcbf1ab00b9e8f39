"""The module that the engine wraps: a model that is called as ever, and that scores batches.

R rows, T tokens of a row, N supervised tokens, V vocabulary, D hidden size.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from ike_core.batch import Batch
from ike_core.errors import TrainingError
from ike_tasks.head import ScoringHead
from ike_tasks.logits import FullLogits, HeadLogits, LogitRule, LogitSource, pick, wide
from ike_tasks.token_loss import ScoredTokens, TokenLoss, sum_of

EmbeddingNoise = Callable[[Tensor], Tensor]
"""[R, T, D] -> [R, T, D]: what the embedding layer gave, with noise."""

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

    def forward(
        self,
        *args: Any,
        scored: Batch | None = None,
        token_loss: TokenLoss | None = None,
        embedding_noise: EmbeddingNoise | None = None,
        with_collisions: bool = False,
        **inputs: Any,
    ) -> Any:
        """The model's own call; with `scored`, log-probabilities [N] of the batch's targets.

        With a token loss too, its sum [] and those of its parts [K]; `with_collisions`, what the head says of those.
        """
        if scored is None:
            return self.lm(*args, **inputs)
        with self._noisy(embedding_noise):
            if not self.is_lean:
                return self._by_full_logits(scored, token_loss, with_collisions=with_collisions)
            hidden_ND = self._hidden(scored)
        head = self._head()
        if token_loss is None:
            return head(hidden_ND, scored["targets"], with_collisions=with_collisions)
        return head(hidden_ND, scored["targets"], scored["target_weights"], token_loss)

    def logit_source(self, batch: Batch) -> LogitSource:
        """Its logits where the batch's targets are predicted, for who learns from it; it learns nothing itself.

        One forward, whose hidden states are what is kept: the logits are made when they are asked for.
        """
        with torch.no_grad():
            if not self.is_lean:
                return FullLogits(self._full_logits(batch))
            head = self._head()
            return HeadLogits(self._hidden(batch), head.weight, head.bias, head.rule)

    def _hidden(self, batch: Batch) -> Tensor:
        """Hidden states at the predicting positions, [N, D]."""
        assert isinstance(self.lm, PreTrainedModel)
        hidden_RTD: Tensor = self.lm.get_decoder()(**self.inputs(batch)).last_hidden_state
        return hidden_RTD.flatten(0, 1).index_select(0, batch["predictors"])

    def _head(self) -> ScoringHead:
        assert isinstance(self.lm, PreTrainedModel)
        head = self.lm.get_output_embeddings()
        assert isinstance(head, ScoringHead)
        return head

    def _full_logits(self, batch: Batch) -> Tensor:
        """Logits at the predicting positions, [N, V]."""
        output = self.lm(**self.inputs(batch))
        return predicting(output if isinstance(output, Tensor) else output.logits, batch)

    def _by_full_logits(
        self, batch: Batch, loss: TokenLoss | None, *, with_collisions: bool
    ) -> Tensor | tuple[Tensor, Tensor]:
        logits_NV = self._full_logits(batch)
        if loss is None:
            logp_N = logprobs_of(logits_NV, batch["targets"])
            return (logp_N, collisions_of(logits_NV.detach())) if with_collisions else logp_N
        return sum_of(logits_NV, ScoredTokens(batch["targets"], batch["target_weights"]), loss)

    @contextmanager
    def _noisy(self, noise: EmbeddingNoise | None) -> Iterator[None]:
        """By a hook, not by `inputs_embeds`: modules are called in the order that ZeRO-3 knows, and models that look at
        the ids still see them.
        """
        if noise is None:
            yield
            return
        if not isinstance(self.lm, PreTrainedModel):
            raise TrainingError(
                f"{type(self.lm).__name__} is not a model of transformers: noise finds no embedding in it"
            )
        hook = self.lm.get_input_embeddings().register_forward_hook(lambda _, __, output: noise(output))
        try:
            yield
        finally:
            hook.remove()

    def inputs(self, batch: Batch) -> dict[str, Any]:
        """What the model itself is given.

        Padded rows go without positions: some models take none, and padding on the right moves none.
        """
        inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
        if batch.layout is not None and self.packing_refusal:  # it would read on across documents, in silence
            raise TrainingError(f"packed rows can't be read: {self.packing_refusal}; set batch.packing = 'off'")
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
    return logprobs_of(predicting(logits_RTV, batch), batch["targets"])


def predicting(logits_RTV: Tensor, batch: Batch) -> Tensor:
    """Logits at the predicting positions, [N, V]."""
    return logits_RTV.flatten(0, 1).index_select(0, batch["predictors"])


def logprobs_of(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """log softmax at the targets, in float32 at least.  -> [N]"""
    return pick(logits_NV.to(wide(logits_NV)).log_softmax(1), targets_N)


def collisions_of(logits_NV: Tensor) -> Tensor:
    """log of the sum of all ids' squared probabilities, in float32 at least.  -> [N]"""
    return (2 * logits_NV.to(wide(logits_NV)).log_softmax(1)).logsumexp(1)


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
