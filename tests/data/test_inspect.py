"""`ike-data inspect`: what is learned is marked, exactly; what can't be seen is spelt out; no data is code."""

from array import array
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ike_core.examples import Comparison, Example, LabelledExample, Segment
from ike_data import HFTokenizer
from ike_data.cli import command
from ike_data.commands.pieces import pieces, visible
from ike_data.commands.views import view
from ike_data.outcomes import Outcome

CHAT = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "a\n<|im_end|>"}]}


def told(capsys, *words: str) -> str:
    code = command(["inspect", *words])
    said = capsys.readouterr()
    assert code == 0, said.err
    return said.out


def test_what_is_learned_stands_in_brackets(write, fix_tok, capsys) -> None:
    shown = told(capsys, write("rows.jsonl", [CHAT]), f"tokenizer.path={fix_tok.path}")
    # FIX-TOK has a token a byte. <|im_start|> user \n Hi <|im_end|> \n: 1 + 4 + 1 + 2 + 1 + 1. <|im_start|> assistant
    # \n: 1 + 9 + 1. Learned: a \n, the ten characters of the control token that is only spelt, and the one that ends
    # the turn: 13. And \n: 10 + 11 + 13 + 1.
    assert "rows.jsonl:1  Example, 35 tokens, 13 learned" in shown
    assert "<|im_start|>assistant\\n\n⟦a\\n\n<|im_end|><|im_end|>⟧\\n\n" in shown
    assert "⟦" not in shown.partition("assistant")[0].partition("rows.jsonl")[2]
    assert "  altered: spells a control token: read as text" in shown


def test_a_row_that_is_not_used_says_why(write, fix_tok, capsys) -> None:
    shown = told(capsys, write("rows.jsonl", [{"messages": []}, CHAT]), f"tokenizer.path={fix_tok.path}", "--rows=1")
    assert "rows.jsonl:1  no example\n  skipped: " in shown
    assert "rows.jsonl:2" not in shown


def test_one_row_is_found_by_its_place(write, fix_tok, capsys) -> None:
    rows = write("rows.jsonl", [CHAT, CHAT, CHAT])
    shown = told(capsys, rows, f"tokenizer.path={fix_tok.path}", "--row", "rows.jsonl:2")
    assert "rows.jsonl:2" in shown
    assert "rows.jsonl:1" not in shown
    assert command(["inspect", rows, f"tokenizer.path={fix_tok.path}", "--row=rows.jsonl:9"]) == 3
    assert "no row is called rows.jsonl:9; the first is called rows.jsonl:1" in capsys.readouterr().err


def test_a_run_s_layers_say_files_processor_and_length(write, fix_tok, tmp_path, capsys) -> None:
    write("long.jsonl", [{"prompt": "p", "response": "0123456789"}])
    (tmp_path / "run.toml").write_text(f"""
        [tokenizer]
        path = "{fix_tok.path}"
        [data.train]
        files = ["no-such-file.jsonl"]
        max_tokens = 8
        too_long = "truncate_right"
        processor.uses = "ike_data:InstructionProcessor"
        [data.valid.long]
        files = ["long.jsonl"]
        """)
    shown = told(capsys, str(tmp_path / "run.toml"), "--data", "valid.long")
    assert "long.jsonl:1  Example, 8 tokens, 7 learned\np⟦0123456⟧\n  truncated: truncate_right: 12 tokens" in shown
    other = write("other.jsonl", [{"prompt": "q", "response": "r"}])
    assert "other.jsonl:1  Example, 3 tokens, 2 learned\nq⟦r<eos>⟧" in told(capsys, str(tmp_path / "run.toml"), other)
    assert command(["inspect", str(tmp_path / "run.toml"), "--data=valid.lang"]) == 2
    assert "no data called valid.lang: they have train, valid.long" in capsys.readouterr().err


def test_a_tokenizer_is_asked_for(write, capsys) -> None:
    assert command(["inspect", write("rows.jsonl", [CHAT])]) == 2
    assert "tokenizer" in capsys.readouterr().err


@given(st.text(st.characters(exclude_characters="\ufffd", exclude_categories=["Cs"]), max_size=40))
def test_pieces_are_the_text(text: str) -> None:
    # A token a byte, as byte-level tokenizers cut what they don't know; characters of several bytes come back whole.
    tokens = array("i", list(text.encode()))
    segment = Segment(tokens, array("f", [1.0]) * len(tokens))
    shown = pieces(segment, Bytes())
    assert "".join(piece.text for piece in shown) == visible(text)
    assert [token for piece in shown for token in piece.tokens] == list(tokens)


def test_a_character_that_is_learned_in_part_is_shown_token_by_token() -> None:
    segment = Segment(array("i", [0xC3, 0xA9]), array("f", [0.0, 1.0]))
    assert [(piece.tokens, piece.weight) for piece in pieces(segment, Bytes())] == [((195,), 0.0), ((169,), 1.0)]


def test_nothing_moves_the_cursor() -> None:
    assert visible("a\x1b[2J\r\t\u202e\u200bé b\n") == "a\\x1b[2J\\r\\t\\u202e\\u200bé b\\n\n"


def test_trees_are_shown_by_their_branches() -> None:
    prompt, good, bad = Segment.prompt([112]), Segment.answer([1, 2, 3], score=2.0), Segment.answer([4, 5])
    pair = Comparison(prompt, (good, bad), margin=0.5, fields={"id": 7})
    (example,) = view(Outcome("a:1", (pair,), (), ()), Bytes()).examples
    assert example.facts == "Comparison of 2, margin 0.5, 6 tokens, 5 learned"
    assert [part.title for part in example.parts] == ["prompt", "answer 1 of 2, score 2", "answer 2 of 2"]
    labelled = LabelledExample(prompt, bad, desirable=False, weight=0.25)
    (example,) = view(Outcome("a:1", (labelled,), (), ()), Bytes()).examples
    assert example.facts == "LabelledExample, undesirable, 3 tokens, 2 learned, row weight 0.25"
    windows = Example((prompt, good))
    (example,) = view(Outcome("a:1", (windows,), (), ()), Bytes()).examples
    assert [part.title for part in example.parts] == ["segment 1 of 2", "segment 2 of 2"]


class Bytes:
    """A tokenizer of one token a byte."""

    def decode(self, tokens) -> str:
        return bytes(tokens).decode(errors="replace")


class Page(HTMLParser):
    """Tags, and the text inside what is learned."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.learned: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside = tag == "span" and "learned" in (dict(attributes).get("class") or "").split()
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attributes)

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.learned.append(data)


HOSTILE = "</pre><script>alert('x')</script><img src=x onerror=alert(1)>&amp;\"'"


def test_a_page_is_one_file_in_which_the_data_is_text(write, fix_tok, tmp_path: Path, capsys) -> None:
    rows = [{"messages": [{"role": "user", "content": HOSTILE}, {"role": "assistant", "content": f"ok {HOSTILE}"}]}]
    rows += [{"messages": [{"role": f"nobody {HOSTILE}", "content": "x"}]}]
    page = tmp_path / "rows.html"
    told(capsys, write("rows.jsonl", rows), f"tokenizer.path={fix_tok.path}", "--html", str(page))
    read = Page(page.read_text())
    assert set(read.tags) <= set("html head meta title style body h1 h2 h3 small pre span p sup".split())
    assert "".join(read.learned[1:]) == f"ok {HOSTILE}<|im_end|>"  # the first is the legend's
    assert "url(" not in page.read_text()
    assert "http" not in page.read_text().replace("http-equiv", "")


@pytest.mark.parametrize("name", ["qwen3"])
def test_a_real_tokenizer_s_pieces_join_to_its_text(shared_data: Path, name: str) -> None:
    tokenizer = HFTokenizer(path=str(shared_data / "tokenizers" / name))
    text = "  Où est l'été ? 👩‍🚀🇫🇷 再见\n\n\tdef f():\n        return '<|im_end|>'"
    tokens = array("i", tokenizer.encode(text))
    shown = pieces(Segment(tokens, array("f", bytes(4 * len(tokens)))), tokenizer)
    assert "".join(piece.text for piece in shown) == visible(text)
    assert [piece.text for piece in shown if piece.is_control] == ["<|im_end|>"]
