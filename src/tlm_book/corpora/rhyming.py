"""Texts made by rule, in which it pays to look back: charms, lists and stories from 134 words. Written by hand."""

import numpy as np

from tlm_book.checks import expects, expects_positive, expects_whole

__all__ = ["OTHERS", "WORDS", "charm", "listing", "rhymes", "lost_and_found"]

NOUNS = (
    "bell boat bread candle cat clock cloud crow drum egg fiddle fox garden goat hat "
    "hen horse jar kettle key ladder lamp lantern leaf map mill moon mouse needle "
    "onion owl pear pebble pot ribbon river rope salt sea seed shell shoe spoon star "
    "stone stove tree wheel wind window"
).split()
PLACES = (
    "bridge field forest harbour hill inn island market meadow shore tower valley "
    "well wood"
).split()
KINDS = (
    "black blue brown cold golden green grey heavy little long old pale quiet red "
    "round silver small soft warm white"
).split()
FIRST = (
    "Ada Bram Cora Dario Elin Finn Greta Hugo Ida Jonas Kaia Lena Milo Nora Otto "
    "Petra Quinn Rosa Sven Tilda Ugo Vera Wim Xenia Yara Zeno"
).split()
LAST = (
    "Alder Birk Crane Dale Elm Frost Gale Heath Ivers Jarrow Kirk Lund Marsh North "
    "Oak Pike Quill Reed Stark Thorn Udal Vane Weir Yarrow"
).split()
WORDS = NOUNS + PLACES + KINDS + FIRST + LAST
OTHERS = "a To From the went to with sang Where is In said took".split()


def charm(rng: np.random.Generator) -> str:
    """A charm: 3 to 24 random words, said 2 to 4 times."""
    said = " ".join(rng.choice(WORDS, rng.integers(3, 25)))
    return " ".join([said] * rng.integers(2, 5))


def listing(rng: np.random.Generator) -> str:
    """A list of what is brought to a place, and back."""
    nouns = rng.choice(NOUNS, rng.integers(3, 8), replace=False)
    said = ", ".join(f"a {rng.choice(KINDS)} {noun}" for noun in nouns)
    place = rng.choice(PLACES)
    return f"To the {place}: {said}. From the {place}: {said}."


def lost_and_found(rng: np.random.Generator) -> str:
    """A story of two people, a thing that is lost and found, and what they sing."""
    first = rng.choice(FIRST, 2, replace=False)
    one, two = (
        f"{a} {b}" for a, b in zip(first, rng.choice(LAST, 2, replace=False))
    )
    lost, *song = (f"{rng.choice(KINDS)} {rng.choice(NOUNS)}" for _ in range(4))
    lines = [
        f"{one} went to the {rng.choice(PLACES)} with a {lost}.",
        f"{two} sang: {', '.join(song)}.",
        f"{one} sang: {', '.join(song)}.",
        f"Where is the {lost}? said {two}.",
        f"In the {rng.choice(PLACES)}, said {one}.",
        f"{two} took the {lost} to {one}.",
    ]
    return " ".join([*lines[:2], *rng.permutation(lines[2:]), rng.choice(lines)])


def rhymes(count: int, seed: int = 0) -> list[str]:
    """`count` texts made by rule, in which it pays to look back: charms, lists and stories.

    ValueError if count < 1 or seed < 0, TypeError if one of them is not a whole number.

    >>> rhymes(1, seed=279)
    ['cold Elm North goat cold Elm North goat']
    """
    expects_positive(count=count)
    expects_whole(seed=seed)
    expects(seed >= 0, "seed", seed, "at least 0")
    rng = np.random.default_rng(seed)
    return [
        (charm, charm, charm, listing, lost_and_found)[rng.integers(5)](rng) for _ in range(count)
    ]
