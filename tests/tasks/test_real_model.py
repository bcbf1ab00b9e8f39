"""A trained model as it is shipped, float32: packed rows are kept, and its own words are likely to it."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ike_core.batch import Vocabulary
from ike_core.context import Context
from ike_core.examples import Example, Segment, preference_pair
from ike_tasks import SFT, Packed, PaddedRows

OPENINGS = ("Once upon a time, there was a little girl named Lily.", "Tom and Sue went to the park.")


@torch.no_grad()
def test_its_own_words_are_likely_packed_or_padded(stories: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(stories)
    lm = AutoModelForCausalLM.from_pretrained(stories, dtype=torch.float32)
    vocabulary = Vocabulary(size=len(tokenizer), pad=0)
    prompts = [tokenizer(text, return_tensors="pt").input_ids for text in OPENINGS]
    told = [lm.generate(prompt, max_new_tokens=40, do_sample=False)[0, prompt.shape[1] :] for prompt in prompts]
    pairs = [(prompt[0].tolist(), story.tolist()) for prompt, story in zip(prompts, told, strict=True)]
    examples = [Example((Segment.prompt(prompt), Segment.answer(story))) for prompt, story in pairs]
    trees = [preference_pair(prompt, story, story[:7] + story[9:]) for prompt, story in pairs]

    model = Packed().prepare(lm).eval()
    assert Packed().check(model, [*examples, *trees], vocabulary, packing="required") == (Packed(), "")
    losses = []
    for collate in (Packed(), PaddedRows()):
        output = SFT()(model, collate.collate(examples, vocabulary), Context(step=0, steps=1))
        losses.append(output.terms[0][1].value.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] < 1.0  # the most likely token each time: well below the 6.2 of chance, ln 512
