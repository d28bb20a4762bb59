"""What may stand where the specification means an array: nested lists, tuples, torch tensors of any kind, and arrays."""

import inspect
import pkgutil
from importlib import import_module

import numpy as np
import pytest
import torch

from tlm_book import Config, TransformerLM, spec
from tlm_book.arrays import as_float64
from tlm_book.checks import shaped
from tlm_book.spec import (
    decoder_block,
    encoder_decoder,
    feed_forward,
    gradients,
    graph_networks,
    inference,
    loss,
    named_tensors,
    operators,
    optimization,
    positional_encoding,
    tokenization,
)
from tlm_book.spec.attention import attention
from tlm_book.spec.embedding import embed
from tlm_book.spec.operators import causal_mask, softmax

ROWS = [[1.0, 0.5], [0.25, 2.0], [3.0, 0.0]]
FORMS = {
    "list": lambda rows: rows,
    "tuple": lambda rows: tuple(map(tuple, rows)),
    "whole numbers beside others": lambda rows: [[int(x) if x == int(x) else x for x in row] for row in rows],
    "list of arrays": lambda rows: [np.array(row) for row in rows],
    "list of tensors": lambda rows: [torch.tensor(row) for row in rows],
    "tensor": torch.tensor,
    "tensor with gradients": lambda rows: torch.tensor(rows, requires_grad=True),
    "half precision": lambda rows: torch.tensor(rows, dtype=torch.bfloat16),
    "double": lambda rows: torch.tensor(rows).double(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_gives_what_the_array_gives(form):
    A, X = np.array(ROWS), form(ROWS)
    result = attention(X, X, V=X)
    assert result.dtype == np.float64 and np.array_equal(result, attention(A, A, A))
    assert np.array_equal(softmax(X), softmax(A)) and np.array_equal(embed([2, 0], X), A[[2, 0]])


def test_whole_numbers_stay_whole_where_they_are_meant():
    assert np.array_equal(embed(torch.tensor([1, 0]), ROWS), embed((1, 0), ROWS))
    assert causal_mask([[1, 2], [3, 4]]).dtype == np.float64
    with pytest.raises(TypeError, match="t: got dtype float64, want integers"):
        embed([0.5], ROWS)


def test_an_array_is_passed_on_as_it_is():
    from jaxtyping import Float

    @shaped
    def same(X: Float[np.ndarray, "n d"]) -> bool:
        return X is A

    A = np.eye(2)
    assert same(A) and same(X=A)


# ---- every function of the specification ------------------------------------------------------------------------------------------

SPECIFICATION = [import_module(f"tlm_book.spec.{room.name}") for room in pkgutil.iter_modules(spec.__path__)]
# What takes no array, number, text or function that could be another thing: a table of counts, a graph, dictionaries of named tensors.
UNREAD = {"most_frequent", "vertex_sets"}


def test_every_public_function_of_the_specification_reads_its_arguments():
    """One that compares nothing takes lists, batches and texts until something inside breaks, or silently makes something of them."""
    functions = [(room, name) for room in SPECIFICATION for name in room.__all__ if inspect.isfunction(vars(room)[name])]
    unread = {name for room, name in functions if not hasattr(vars(room)[name], "__wrapped__")}
    assert len(functions) > 130 and unread <= UNREAD


def likely(tokens):
    """A model of four tokens: after token t the likeliest is t + 1."""
    return 5.0 * np.eye(4)[(np.asarray(tokens) + 1) % 4]


ROW, MATRIX, BLOCK = [0.5, -1.0], [[1.0, 2.0], [0.5, 0.0]], TransformerLM(Config(5, d_model=2, d_ff=3, n_layers=1, n_heads=1)).spec_weights()["blocks"][0]
# {name: (the function of what may be a list or a tensor, that list)}
CALLS = {
    "res": (lambda X: decoder_block.res(lambda Y: 2 * Y)(X), MATRIX),
    "decoder_block": (lambda X: decoder_block.decoder_block(X, BLOCK), MATRIX),
    "encoder": (lambda X: encoder_decoder.encoder(X, []), MATRIX),
    "decoder": (lambda X: encoder_decoder.decoder(X, X, []), MATRIX),
    **{name: (formula, MATRIX) for name, formula in feed_forward.FORMULAS.items()},
    "central_difference": (lambda x: gradients.central_difference(lambda x: (x**2).sum(), x), ROW),
    "activation_derivative": (lambda Z: gradients.activation_derivative(Z, "gelu"), MATRIX),
    "mlp": (lambda W: graph_networks.mlp(W[0], [W, W], [W[1], W[1]]), MATRIX),
    "network_function": (lambda W: graph_networks.network_function(graph_networks.layered_network([W], [W[0]]), W[1]), MATRIX),
    "without_biases": (lambda W: graph_networks.without_biases([W], [W[0]])[0], MATRIX),
    "next_distribution": (lambda x: inference.next_distribution(likely, x), [1, 2]),
    "greedy": (lambda x: inference.greedy(likely, x, 3), [1, 2]),
    "sample": (lambda u: inference.sample(likely, [1], u), [0.2, 0.9]),
    "keep": (lambda p: inference.keep(p, [1]), [0.25, 0.75]),
    "chosen": (lambda z: inference.chosen(z, [1], k=1), ROW),
    "sample_chosen": (lambda u: inference.sample_chosen(likely, [1], u, 0, k=2), [0.2, 0.9]),
    "beam_search": (lambda x: inference.beam_search(likely, x, 2, 2)[0].tokens, [1, 2]),
    "named": (lambda X: named_tensors.to_array(named_tensors.named(X, "a", "b"), "b", "a"), MATRIX),
    "agree": (lambda X: operators.agree(X, X), MATRIX),
    "is_rowwise": (lambda X: operators.is_rowwise(np.tanh, X), MATRIX),
    "is_autoregressive": (lambda X: operators.is_autoregressive(lambda Y: Y.mean(0) + Y, X), MATRIX),
    "is_indexed_rowwise": (lambda X: operators.is_indexed_rowwise(np.tanh, X, X), MATRIX),
    "is_equivariant": (lambda X: operators.is_equivariant(np.tanh, X), MATRIX),
    "is_causal_pattern": (lambda X: operators.is_causal_pattern(lambda Y: operators.masked_softmax(Y @ Y.T), X), MATRIX),
    "masked_softmax": (operators.masked_softmax, MATRIX),
    "decode": (lambda t: tokenization.decode(t, [(97, 98)]), [256, 97]),
    "apply_merges": (lambda t: tokenization.apply_merges(t, [[97, 98]]), [97, 98, 99]),
    "count_pairs": (lambda t: tokenization.count_pairs([t]), [7, 7, 7]),
}


@pytest.mark.parametrize("name", CALLS)
def test_lists_and_tensors_are_the_arrays(name):
    call, rows = CALLS[name]
    expected = call(np.array(rows))
    for form in (rows, torch.tensor(rows), torch.tensor(rows).double().requires_grad_() if isinstance(rows[0], (float, list)) else tuple(rows)):
        got = call(form)
        assert type(got) is type(expected)
        assert np.allclose(got, expected, rtol=1e-6) if isinstance(got, np.ndarray) else got == expected


@pytest.mark.parametrize(("message", "call"), [
    ("x: got shape (1, 2), want (n)", lambda: inference.greedy(likely, [[1, 2]], 2)),  # a batch of texts was flattened to one
    ("x: got shape (1, 2), want (n)", lambda: inference.next_distribution(likely, [[1, 2]])),
    ("X: got shape (2,), want (n, d)", lambda: decoder_block.res(np.tanh)([1, 2])),
    ("X: got shape (1, 1, 2), want (n, d)", lambda: decoder_block.decoder_block([[[1, 2]]], BLOCK)),
    ("f: got int, want a function", lambda: decoder_block.res(3)),
    ("T: got float, want a function", lambda: operators.is_rowwise(0.5, MATRIX)),
    ("x: got str, want an array", lambda: feed_forward.silu("one")),
    ("X: got list, want a DataArray", lambda: named_tensors.softmax(MATRIX, "ax")),
    ("n_merges: got '3', want a whole number", lambda: tokenization.learn(["abab"], "3")),
    ("n_merges: got True, want a whole number", lambda: tokenization.learn(["abab"], True)),
    ("pieces: got a single str, want a list of them", lambda: tokenization.learn("a string", 3)),
    ("pieces: got 3 at 0, want a list of str", lambda: tokenization.learn([3], 3)),
    ("piece: got int, want str", lambda: tokenization.encode(3, [])),
    ("tokens: got 97.5 at 0, want a list of whole numbers", lambda: tokenization.decode([97.5], [])),
    ("tokens: got a single str, want a list of whole numbers", lambda: tokenization.decode("abc", [])),
    ("merges[1]: got (1, 2, 3), want a pair of whole numbers", lambda: tokenization.encode("a", [(1, 2), (1, 2, 3)])),
    ("C[0]: got int, want a list of whole numbers", lambda: tokenization.count_pairs([1, 2])),
    ("alphabet: got int, want several", lambda: tokenization.base_vocabulary(3)),
    ("loss: got 'a', want a number", lambda: loss.bits_per_byte("a", 1, 1)),
    ("k: got 1.5, want a whole number", lambda: positional_encoding.offset_map(1.5, 4)),
    ("t: got 'a', want a whole number", lambda: optimization.scheduled_rate("a", 1, 1, 1.0, 0.0, "linear")),
    ("casual: got an unknown argument, want one of Q, K, V, causal, scale; did you mean causal?", lambda: attention(MATRIX, MATRIX, V=MATRIX, casual=True)),
])  # fmt: skip
def test_what_is_meant_is_said(message, call):
    with pytest.raises((TypeError, ValueError)) as error:
        call()
    assert str(error.value) == message


def test_an_argument_too_few_is_pythons_own_error():
    with pytest.raises(TypeError, match=r"missing .*argument: 'V'"):
        attention(MATRIX, MATRIX)


def test_an_array_of_numbers_is_a_copy():
    numbers = torch.zeros(2, dtype=torch.float64)
    as_float64(numbers)[0] = 1.0
    assert numbers.tolist() == [0.0, 0.0]


def test_a_pair_of_halves_is_no_merge():
    with pytest.raises(TypeError, match=r"merges\[0\]: got \(0.5, 97\), want a pair of whole numbers"):
        tokenization.encode("a", [(0.5, 97)])


def test_tokens_of_numpy_become_pythons_own():
    made = tokenization.apply_merges([np.uint8(97), np.uint8(98), np.uint8(99)], [(97, 98)])
    assert made == [256, 99] and {type(token) for token in made} == {int}


def test_complex_numbers_are_not_real():
    with pytest.raises(TypeError, match="got dtype complex128, want real numbers"):
        attention(np.array(ROWS) * 1j, ROWS, ROWS)
