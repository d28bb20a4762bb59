"""Word vectors: what a word is, and in which order the pairs come."""

import numpy as np
import torch

from tlm_book.word_vectors import SkipGram, skip_gram_pairs, word_vectors, words


def test_a_word_keeps_its_accents_and_leaves_signs_out():
    assert words("Cafe\u0301s, x² and हिन्दी.") == ["cafés", "x", "and", "हिन्दी"]


def test_pairs_come_forwards_first_and_near_ones_before_far_ones():
    pairs = skip_gram_pairs(torch.tensor([7, 8, 9]), 2).tolist()
    assert pairs == [[7, 8], [8, 9], [7, 9], [8, 7], [9, 8], [9, 7]]


def test_the_same_vectors_under_another_default_type_and_without_gradients():
    texts, settings = ["the sea the tide and the sea"] * 5, SkipGram(d_model=4, epochs=2, subsample=0.1)
    wanted = word_vectors(texts, settings)
    with torch.no_grad():
        found = [word_vectors(texts, settings)]
    with torch.inference_mode():
        found.append(word_vectors(texts, settings))
    torch.set_default_dtype(torch.float64)
    try:
        found.append(word_vectors(texts, settings))
    finally:
        torch.set_default_dtype(torch.float32)
    for vectors in found:
        assert torch.equal(vectors.centre, wanted.centre) and torch.equal(vectors.context, wanted.context)


def test_a_seed_may_be_a_number_of_numpy():
    settings = [SkipGram(min_count=1, epochs=1, seed=3) for _ in range(2)]
    object.__setattr__(settings[1], "seed", np.int64(3))  # past the tests' own checker of types
    wanted, found = (word_vectors(["a b a b"], one) for one in settings)
    assert torch.equal(found.centre, wanted.centre)
