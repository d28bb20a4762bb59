"""Texts to learn from, made by a program: pairs of French and English sentences, by a grammar, and rhymes, by rule.

    from tlm_book.corpora import sentence_pairs
    pairs = sentence_pairs(20_000)

Written by hand.
"""

from tlm_book.corpora.french import (
    HELD_OUT,
    Adjective,
    Noun,
    SentencePair,
    Word,
    join_words,
    noun_phrase,
    part,
    plural,
    sentence_pairs,
    spelled,
    split_pairs,
    split_words,
    with_an,
    with_s,
)
from tlm_book.corpora.rhyming import charm, listing, lost_and_found, rhymes

__all__ = [
    "split_words",
    "join_words",
    "Noun",
    "Adjective",
    "Word",
    "with_s",
    "plural",
    "spelled",
    "with_an",
    "noun_phrase",
    "SentencePair",
    "sentence_pairs",
    "HELD_OUT",
    "part",
    "split_pairs",
    "charm",
    "listing",
    "lost_and_found",
    "rhymes",
]
