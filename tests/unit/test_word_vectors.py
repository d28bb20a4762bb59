"""Word vectors: what a word is, and in which order the pairs come."""

import torch

from tlm_book.word_vectors import skip_gram_pairs, words


def test_a_word_keeps_its_accents_and_leaves_signs_out():
    assert words("Cafe\u0301s, x² and हिन्दी.") == ["cafés", "x", "and", "हिन्दी"]


def test_pairs_come_forwards_first_and_near_ones_before_far_ones():
    pairs = skip_gram_pairs(torch.tensor([7, 8, 9]), 2).tolist()
    assert pairs == [[7, 8], [8, 9], [7, 9], [8, 7], [9, 8], [9, 7]]
