"""What may stand where the specification means an array: nested lists, tuples, torch tensors of any kind, and arrays."""

import numpy as np
import pytest
import torch

from tlm_book.checks import shaped
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
