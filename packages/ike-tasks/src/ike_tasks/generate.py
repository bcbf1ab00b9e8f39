"""Generate: one answer to every prompt, by transformers' own `generate`.

B prompts, T tokens of the longest, padded on the left.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import torch
from torch import Tensor, nn
from transformers import GenerationConfig, GenerationMixin, LogitsProcessorList, StoppingCriteriaList

from ike_core.batch import Batch, Vocabulary, weigh
from ike_core.context import Context
from ike_core.errors import ConfigError, DataError, TrainingError
from ike_core.examples import Example, Segment, Skip
from ike_core.interfaces import ChatTokenizer, Record, Tokenizer
from ike_tasks.sampling import AtOnce, AtText, cut, sampler


@attrs.frozen(kw_only=True)
class Generate:
    """Rows get the answer, `finish_reason` ("stop" or "length") and `answer_tokens`.

    What the model's own generation_config says about sampling is not used: what stands here is what runs. Its end
    tokens are.
    """

    tokenizer: Tokenizer
    prompt: str = "prompt"
    """Column with a text to go on with."""
    messages: str = "messages"
    """Column with a conversation, which comes before `prompt` where a record has both. What the assistant says after
    the last user's turn is left out: that is what is asked for."""
    answer: str = "answer"
    """Column that the answer is written to; one that the records don't have."""
    max_new_tokens: int = attrs.field(default=256, validator=attrs.validators.ge(1))
    temperature: float = attrs.field(default=0.0, validator=attrs.validators.ge(0.0))
    """Divides the logits before sampling; 0: the most likely token each time."""
    top_k: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    """Sample among the k most likely tokens; 0: among all."""
    top_p: float = attrs.field(default=1.0, validator=[attrs.validators.gt(0.0), attrs.validators.le(1.0)])
    """Sample among the most likely tokens that reach this probability together."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer, beside the end tokens of tokenizer and model; not part of it."""

    def prepare(self, record: Record) -> Example | Skip:
        """The prompt's tokens."""
        if record.get(self.messages):
            return self._from_messages(record[self.messages])
        text = record.get(self.prompt)
        if not isinstance(text, str) or not text:
            return Skip(f"no messages under {self.messages!r} and no text under {self.prompt!r}")
        tokens = self.tokenizer.encode(text, special_tokens=True)
        while tokens and tokens[-1] == self.tokenizer.vocabulary.eos:  # some tokenizers close every text
            tokens.pop()
        return Example((Segment.prompt(tokens),)) if tokens else Skip("a prompt without tokens")

    def _from_messages(self, messages: Any) -> Example | Skip:
        if not isinstance(self.tokenizer, ChatTokenizer):
            raise ConfigError(
                f"{type(self.tokenizer).__name__} renders no conversations (it has no chat_prompt); "
                f"use a tokenizer with a chat template, or name a column of plain text by `prompt`"
            )
        if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
            return Skip(f"{self.messages!r} is not a list of messages")
        asked = list(messages)
        while asked and asked[-1].get("role") == "assistant":
            asked.pop()
        if not asked:
            return Skip(f"{self.messages!r} has nothing to answer")
        try:
            return Example((Segment.prompt(self.tokenizer.chat_prompt(asked)),))
        except DataError as error:
            return Skip(str(error))

    def collate(self, examples: Sequence[Example], vocabulary: Vocabulary) -> Batch:
        """input_ids and attention_mask, [B, T]; no examples: one row of one token."""
        prompts = [list(example.trunk.tokens) for example in examples] or [[vocabulary.pad]]
        longest = max(map(len, prompts))
        rows = [[vocabulary.pad] * (longest - len(prompt)) + prompt for prompt in prompts]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return Batch({"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}, weigh(examples))

    def __call__(self, model: nn.Module, batch: Batch, context: Context) -> list[dict[str, Any]]:
        """Collective under ZeRO-3: ranks go on until the longest answer of all is done, filler included."""
        lm, is_filler = _language_model(model), not batch.weights["examples"]
        gathers = _gathers(model)
        if is_filler and not gathers:
            return []
        vocabulary = self.tokenizer.vocabulary
        stops = _end_tokens(lm.generation_config, vocabulary)
        processors = LogitsProcessorList()
        if self.temperature and not is_filler:
            noise = [context.noise(example, "sample") for example in context.examples]
            processors = sampler(noise, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
        with _settings_of_its_own_aside(lm):
            tokens_BL: Tensor = lm.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                generation_config=GenerationConfig(
                    max_new_tokens=self.max_new_tokens,
                    do_sample=False,
                    eos_token_id=sorted(stops) or None,
                    pad_token_id=vocabulary.pad,
                    use_cache=True,
                ),
                logits_processor=processors,
                stopping_criteria=self._criteria(batch, is_filler=is_filler),
                synced_gpus=gathers,
            )
        answers = [] if is_filler else tokens_BL[:, batch["input_ids"].shape[1] :].tolist()
        return [self._row(tokens, stops) for tokens in answers]

    def metrics(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
        """Mean length of the answers, and the share that came to an end."""
        lengths = [(row["answer_tokens"], row["finish_reason"] == "stop") for row in rows]
        if not lengths:
            return {}
        return {
            "answer_tokens": sum(length for length, _ in lengths) / len(lengths),
            "finished": sum(finished for _, finished in lengths) / len(lengths),
        }

    def _criteria(self, batch: Batch, *, is_filler: bool) -> StoppingCriteriaList:
        if is_filler:
            return StoppingCriteriaList([AtOnce()])
        if not self.stop:
            return StoppingCriteriaList()
        return StoppingCriteriaList([AtText(self.stop, self.tokenizer.decode, batch["input_ids"].shape[1])])

    def _row(self, tokens: list[int], stops: set[int]) -> dict[str, Any]:
        """A row that is done goes on, with padding or worse, while others are not: what follows its end is no part."""

        def shown(length: int) -> tuple[str, bool]:
            return cut(self.tokenizer.decode(tokens[:length]), self.stop)

        length = next((place for place, token in enumerate(tokens) if token in stops), len(tokens))
        answer, is_cut = shown(length)
        reason = "stop" if is_cut or length < len(tokens) else "length"
        if is_cut:
            length = bisect_left(range(length), True, key=lambda n: shown(n)[1])
        return {self.answer: answer, "finish_reason": reason, "answer_tokens": length}


def _language_model(model: nn.Module) -> Any:
    """The model of transformers inside whatever it is wrapped in; under ZeRO-3 its own modules gather their weights."""
    for module in model.modules():
        if isinstance(module, GenerationMixin):
            return module
    raise TrainingError(f"{type(model).__name__} holds no model of transformers that can generate")


def _gathers(model: nn.Module) -> bool:
    """Whether a forward is collective: DeepSpeed marks every parameter that ZeRO-3 has dealt out."""
    return any(hasattr(parameter, "ds_id") for parameter in model.parameters())


def _end_tokens(settings: GenerationConfig, vocabulary: Vocabulary) -> set[int]:
    """The tokenizer's end token and the model's, of which chat models have several."""
    own = settings.eos_token_id
    tokens = {vocabulary.eos, *(own if isinstance(own, list) else [own])}
    return {token for token in tokens if token is not None}


@contextmanager
def _settings_of_its_own_aside(lm: Any) -> Iterator[None]:
    """transformers fills what a call leaves open from `lm.generation_config`: repetition penalties, minimal lengths."""
    own, lm.generation_config = lm.generation_config, GenerationConfig()
    try:
        yield
    finally:
        lm.generation_config = own
