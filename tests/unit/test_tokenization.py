"""Tokenization beyond what its chapter checks: thousands of corpora against the specification, long pieces, streaming,
numberings, files, warnings, and what training costs in memory."""

import json
import random
import subprocess
import sys
import threading
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from commands import run_code
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tlm_book.spec import tokenization as spec
from tlm_book.tokenization import (
    GPT2_PATTERN,
    PATTERN,
    Tokenizer,
    Vocabulary,
    documents,
    encode_piece,
    learn_merges,
    pre_tokens,
)
from tlm_book.tokenization.bpe import encode_bytes, merge
from tlm_book.tokenization.engine import cut

ALPHABETS = ["a", "ab", "aab é", "abc \n'1", "λόγος🍵 "]
small_texts = st.sampled_from(ALPHABETS).flatmap(lambda letters: st.lists(st.text(letters, max_size=12), max_size=8))
PATTERNS = [PATTERN, GPT2_PATTERN, r"(?s).+", r"(a+|[^a]+)"]  # with cuts, without, and with a group


def any_text() -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@settings(max_examples=1500, deadline=None, derandomize=True, database=None)
@given(small_texts, st.integers(0, 30))
def test_the_same_merges_as_the_specification(pieces, m):
    assert learn_merges(Counter(pieces), m) == spec.learn(pieces, m)


@settings(max_examples=600, deadline=None, derandomize=True, database=None)
@given(small_texts, st.integers(0, 20), st.sampled_from(PATTERNS))
def test_the_same_tokenizer_as_the_specification(texts, m, pattern):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = Tokenizer.train(iter(texts), 257 + m, pattern=pattern)
    cuts = [piece for text in texts for piece in pre_tokens(text, pattern)]
    assert tokenizer.merges == spec.learn(cuts, m)
    for text in texts:
        tokens = [t for piece in pre_tokens(text, pattern) for t in spec.encode(piece, tokenizer.merges)]
        assert tokenizer.encode(text) == tokens and tokenizer.decode(tokens) == text


@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 2**32), st.sampled_from(["ab", "abc", "aaab"]), st.integers(0, 400))
def test_any_list_of_merges_and_long_pieces(seed, letters, length):
    """Merges that nobody learned, in any order; pieces on both sides of the length from which on a heap is used."""
    rng = random.Random(seed)
    merges = []
    for k in range(12):
        pair = (rng.choice([*b"abc", *range(256, 256 + k)]), rng.choice([*b"abc", *range(256, 256 + k)]))
        if pair in merges:
            break
        merges.append(pair)
    ranks = {pair: k for k, pair in enumerate(merges)}
    piece = "".join(rng.choices(letters, k=length))
    assert encode_piece(piece, ranks) == encode_bytes(piece.encode(), ranks) == spec.encode(piece, merges)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(any_text(), st.binary(max_size=40), st.sampled_from(PATTERNS), st.integers(0, 9))
@example("", b"", PATTERN, 0)
@example("\0", b"\xff\xfe\xc3", GPT2_PATTERN, 0)
def test_every_text_and_every_byte_string_comes_back(text, data, pattern, seed):
    merges = [(97, 98), (32, 116), (195, 169), (0xF0, 0x9F)]
    ids = random.Random(seed).sample(range(261), 261)
    for tokenizer in (Tokenizer(merges, pattern=pattern), Tokenizer(merges, pattern=pattern, ids=ids)):
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.decode_bytes(tokenizer.encode(text)) == text.encode()
        assert tokenizer.decode_bytes(tokenizer.encode_bytes(data)) == data
        assert tokenizer.encode_bytes(text.encode()) == tokenizer.encode(text)
        assert tokenizer.start not in tokenizer.encode(text + "<|endoftext|>")
        assert tokenizer.decode(list(range(261))) == tokenizer.decode_bytes(range(261)).decode(errors="replace")


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(any_text() | st.text(st.characters(max_codepoint=127), max_size=40), st.sampled_from([*PATTERNS, r"a*|[^a]"]))
def test_texts_are_cut_quickly_as_they_are_cut_plainly(text, pattern):
    assert [piece for piece in cut(text, pattern) if piece] == pre_tokens(text, pattern)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(0, 3), max_size=30))
def test_a_pair_is_replaced_as_in_the_specification(tokens):
    assert merge(tokens, (1, 1), 9) == spec.replace(tokens, (1, 1), 9)
    assert merge(tokens, (1, 2), 9) == spec.replace(tokens, (1, 2), 9)


def test_long_pieces_take_no_quadratic_time():
    """Thirty times the length in less than a hundred times the work, counted in look-ups and not in seconds."""

    class Counted(dict):
        looked = 0

        def get(self, key, default=None):
            Counted.looked += 1
            return super().get(key, default)

    merges = spec.learn(["ab" * 64], 6)
    work = []
    for length in (1_000, 30_000):
        Counted.looked = 0
        encode_piece("ab" * length, Counted((pair, k) for k, pair in enumerate(merges)))
        work.append(Counted.looked)
    assert work[1] < 100 * work[0] and work[1] < 20 * 30_000


def test_a_hundred_thousand_letters_without_a_space():
    tokenizer = Tokenizer.train(["abcab" * 20_000], 266, pattern=PATTERN)
    text = "abcab" * 30_000
    assert tokenizer.decode(tokenizer.encode(text)) == text and len(tokenizer.encode(text)) < len(text) / 20


def test_training_reads_a_stream_once_and_keeps_no_text():
    """An endless source would do, if it ended: each document is asked for once, and none is alive when the next one comes."""
    alive = []

    class Document(str):
        def __init__(self, text):
            alive.append(1)

        def __del__(self):
            alive.pop()

    def stream():
        for k in range(50):
            assert len(alive) <= 1
            yield Document(f"the cat number {k} and the dog")

    assert len(Tokenizer.train(stream(), 270)) == 270


def test_more_tokens_than_the_texts_yield():
    with pytest.warns(UserWarning, match=r"vocab_size: got 1000, reached 259: no further pair occurs twice"):
        assert len(Tokenizer.train(["tea tea"], 1000)) == 259
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(Tokenizer.train(["tea tea"], 259)) == 259


def test_the_order_of_the_documents_does_not_matter():
    texts = documents()[:12]
    assert Tokenizer.train(texts, 600).merges == Tokenizer.train(reversed(texts), 600).merges


def test_progress_is_shown_when_asked_for_only(capfd):
    Tokenizer.train(["tea tea"], 258)
    assert capfd.readouterr().err == ""
    Tokenizer.train(["tea tea"], 258, progress=True)
    assert "documents" in (shown := capfd.readouterr().err) and "merges" in shown
    Tokenizer.train(["tea tea"], 258, progress=False)
    assert capfd.readouterr().err == ""


def test_other_numbers_are_kept_in_the_file(tmp_path):
    tokenizer = Tokenizer([(104, 105)], ["<a>", "<b>"], GPT2_PATTERN, ids=[*range(2, 259), 0, 1])
    assert tokenizer.specials == {"<a>": 0, "<b>": 1} and tokenizer.start == 0 and tokenizer.encode("hi") == [258]
    assert tokenizer.encode("h<b>i", allowed_special=["<b>"]) == [106, 1, 107]
    tokenizer.save(tmp_path / "t.json")
    again = Tokenizer.load(tmp_path / "t.json")
    again.check_same(tokenizer)
    assert (again.ids, again.pattern, again.specials) == (tokenizer.ids, tokenizer.pattern, tokenizer.specials)


def test_a_file_without_numbers_is_as_before(tmp_path):
    Tokenizer([(104, 105)]).save(tmp_path / "t.json")
    state = json.loads((tmp_path / "t.json").read_text())
    assert set(state) == {"format", "merges", "specials", "pattern"}
    assert Tokenizer.load(tmp_path / "t.json").ids == list(range(258))


@pytest.mark.parametrize("made", [np.array, torch.tensor, lambda pairs: [tuple(np.int64(token) for token in pair) for pair in pairs]])
def test_integers_of_numpy_and_torch_are_merges_and_numbers(made, tmp_path):
    merges, order = [(97, 98), (256, 99)], [*range(258, -1, -1)]
    tokenizer, plain = Tokenizer(made(merges), ids=np.array(order)), Tokenizer(merges, ids=order)
    assert tokenizer.merges == merges and tokenizer.ids == order
    assert {type(token) for pair in tokenizer.merges for token in pair} | set(map(type, tokenizer.ids)) == {int}
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode("abcab") == plain.encode("abcab") == tokenizer.encode("abcab")


def test_a_small_file_of_huge_tokens_is_refused_at_once(tmp_path):
    """Forty-five merges, each of which doubles the token before: 35 million megabytes, if they were made."""
    path = tmp_path / "tokenizer.json"
    Tokenizer([]).save(path)
    state = json.loads(path.read_text(encoding="utf-8"))
    state["merges"] = [(97, 97), *((256 + k, 256 + k) for k in range(44))]
    path.write_text(json.dumps(state), encoding="utf-8")
    assert path.stat().st_size < 1000
    with pytest.raises(ValueError, match="path: got .*merges: got tokens of .* bytes together, up to number 28.*want at most 1,000,000,000 bytes"):
        Tokenizer.load(path)
    assert len(Tokenizer([(97, 97), *((256 + k, 256 + k) for k in range(19))])) == 277  # a megabyte is fine


@pytest.mark.parametrize("pattern", ["(?rs).", r"(?r)\p{L}|\s|\p{N}"])
def test_pieces_in_another_order_are_refused(pattern):
    """Such a pattern leaves out nothing, but the pieces, joined, are another text."""
    tokenizer = Tokenizer([], pattern=pattern)
    for action in (tokenizer.encode, lambda text: pre_tokens(text, pattern), lambda text: cut(text, pattern)):
        with pytest.raises(ValueError, match="pattern: got .*want one that cuts the text, in order"):
            action("tea")


@pytest.mark.parametrize("pattern", ["(", "(?iLu)x", "(" * 2000 + ")" * 2000])
def test_a_pattern_that_is_no_regular_expression_is_refused(pattern):
    for action in (lambda: Tokenizer([], pattern=pattern), lambda: Tokenizer.train(["a"], 300, pattern=pattern), lambda: pre_tokens("a", pattern)):
        with pytest.raises(ValueError, match="^pattern: got .*want a regular expression$"):
            action()


def test_a_single_number_is_no_numbering():
    told = run_code("from tlm_book.tokenization import Tokenizer; Tokenizer([], ids=5)").stderr
    assert told.endswith("TypeError: ids: got int, want integers\n")


def test_a_cut_file_is_refused(tmp_path):
    file = tmp_path / "t.json"
    Tokenizer([(104, 105), (256, 105)], ids=list(range(258, -1, -1))).save(file)
    whole = file.read_bytes()
    for length in range(0, len(whole.rstrip()), 9):
        file.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="want a file that Tokenizer.save wrote"):
            Tokenizer.load(file)


@pytest.mark.parametrize(
    "other",
    [
        Vocabulary([(97, 98)]),
        Vocabulary([(97, 99), (97, 98)]),
        Vocabulary([(97, 98), (97, 99)], ["<|end|>"]),
        Vocabulary([(97, 98), (97, 99)], ids=[*range(258), 258][::-1]),
    ],
)
def test_tokenizers_that_differ_are_told_apart(other):
    mine = Vocabulary([(97, 98), (97, 99)])
    mine.check_same(Vocabulary([(97, 98), (97, 99)]))
    with pytest.raises(ValueError, match="^other: got "):
        mine.check_same(other)


def test_a_special_is_not_its_name():
    """The same bytes, once as a special and once as an ordinary token."""
    name, merges = "<a", [(ord("<"), ord("a"))]
    with pytest.raises(ValueError, match="special"):
        Vocabulary(merges, [name]).check_same(Vocabulary(merges, [name], ids=[*range(256), 257, 256]))


def test_one_tokenizer_serves_many_threads():
    tokenizer, texts = Tokenizer.train(documents()[:8], 600), documents()
    wanted, got = tokenizer.encode_batch(texts), {}
    shared = Tokenizer(tokenizer.merges)
    threads = [threading.Thread(target=lambda k=k: got.update({k: shared.encode_batch(texts)})) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 4 and all(tokens == wanted for tokens in got.values())


def test_training_needs_no_torch_and_little_memory():
    """A stream of 12 MB in 3,000 documents: the process grows by less than the text alone would need."""
    code = """
import resource, sys
from tlm_book.tokenization import Tokenizer, GPT2_PATTERN
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
stream = (f"line {k} of a text that says the same again " * 100 for k in range(3_000))
Tokenizer.train(stream, 400, pattern=GPT2_PATTERN)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 11_000, grown
assert 'torch' not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_of_two_specials_of_which_one_begins_the_other_the_longer_is_found():
    tokenizer = Tokenizer([], ["<a", "<ab"])
    assert tokenizer.encode("<ab<a", allowed_special=["<a", "<ab"]) == [257, 256]
