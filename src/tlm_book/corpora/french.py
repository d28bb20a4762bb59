"""French sentences and their English translations, from a small grammar.

A sentence is built in both languages at once from tables of words, so it is known which words correspond. The grammar contains what a
word-by-word translation gets wrong: agreement, elision (*j'ai*), contraction (*du*), the order of adjective and noun, negation,
questions, professions without an article, and *grand*, which means *tall* of a person and *big* of a thing.

Written by hand.
"""

import random
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from tlm_book.checks import expects_positive, expects_several, expects_whole

__all__ = [
    "split_words",
    "join_words",
    "Noun",
    "Adjective",
    "FRENCH_NOUNS",
    "FRENCH_ADJECTIVES",
    "PERSONS",
    "OBJECTS",
    "PROFESSIONS",
    "ELIDED",
    "CONTRACTED",
    "Word",
    "with_s",
    "plural",
    "opens_with_vowel",
    "spelled",
    "with_an",
    "noun_phrase",
    "some_sentence",
    "SentencePair",
    "sentence_pairs",
    "HELD_OUT",
    "part",
    "split_pairs",
]


def split_words(text: str) -> list[str]:
    """A text as a list of words; an apostrophe ends a word, and a question mark is a word.

    >>> split_words("est-ce qu'il n'est pas étudiant ?")
    ['est-ce', "qu'", 'il', "n'", 'est', 'pas', 'étudiant', '?']
    """
    return re.findall(r"[\w-]+'?|[^\w\s]", text.lower().replace("’", "'"))


def join_words(words: Iterable[str]) -> str:
    """Words as a text, from which `split_words` makes the same words again."""
    return " ".join(words).replace("' ", "'")


# Tables


class Noun(NamedTuple):
    """A French noun in the singular, its gender ("m" or "f"), the English noun, and whether it means a person."""

    french: str
    gender: str
    english: str
    person: bool


class Adjective(NamedTuple):
    """A French adjective, masculine and feminine; its place before or after the noun; the English for a thing and for a person ("-": not used)."""

    masculine: str
    feminine: str
    place: str
    of_thing: str
    of_person: str


def _rows(table: str) -> list[list[str]]:
    return [entry.split() for entry in table.split(",")]


_PEOPLE = _rows("""
étudiant étudiante student, professeur professeure teacher, artiste artiste artist, boulanger boulangère baker,
ingénieur ingénieure engineer, avocat avocate lawyer, chanteur chanteuse singer, ami amie friend, voisin voisine neighbour,
enfant enfant child""")
_NO_PROFESSION = ("ami", "voisin", "enfant")
_THINGS = _rows("""
m livre book, m jardin garden, m chat cat, m chien dog, m oiseau bird, m arbre tree, m hôtel hotel, m homard lobster,
m château castle, m bateau boat, f maison house, f voiture car, f fleur flower, f pomme apple, f ville city, f école school,
f église church, f île island, f histoire story, f chaise chair""")
_LOOKS = _rows("""
grand grande before big tall, petit petite before small small, joli jolie before pretty pretty, nouveau nouvelle before new new,
vieux vieille before old old, jeune jeune before - young, rouge rouge after red -, vert verte after green -,
noir noire after black -, blanc blanche after white -, étrange étrange after strange strange, célèbre célèbre after famous famous,
intelligent intelligente after - intelligent, content contente after - happy, fatigué fatiguée after - tired""")
# the stem of a verb in -er, the preposition before its object, the English verb and its preposition (-: none)
_VERBS = _rows("""
regard - watch -, aim - like -, cherch - look for, trouv - find -, admir - admire -, dessin - draw -, parl de talk about,
rêv de dream of, pens à think of, ressembl à look like""")
_ACTIONS = _rows("travaill work, chant sing, dans dance, arriv arrive")

FRENCH_NOUNS = [
    Noun(french, gender, english, True)
    for masculine, feminine, english in _PEOPLE
    for gender, french in (("m", masculine), ("f", feminine))
] + [Noun(french, gender, english, False) for gender, french, english in _THINGS]
FRENCH_ADJECTIVES = [Adjective(*row) for row in _LOOKS]
PERSONS = [noun for noun in FRENCH_NOUNS if noun.person]
OBJECTS = [noun for noun in FRENCH_NOUNS if not noun.person]
PROFESSIONS = [noun for noun in PERSONS if not noun.french.startswith(_NO_PROFESSION)]

# person 0 … 5: je, tu, il, nous, vous, ils
_ENDINGS = "e es e ons ez ent".split()
_TO_BE = "suis es est sommes êtes sont".split()
_TO_HAVE = "ai as a avons avez ont".split()
_BE = "am are is are are are".split()
_PRONOUNS = [
    # French, English, person, possible genders and numbers
    ("je", "i", 0, "mf", "s"),
    ("tu", "you", 1, "mf", "s"),
    ("il", "he", 2, "m", "s"),
    ("elle", "she", 2, "f", "s"),
    ("nous", "we", 3, "mf", "p"),
    ("vous", "you", 4, "mf", "sp"),
    ("ils", "they", 5, "m", "p"),
    ("elles", "they", 5, "f", "p"),
]
_ARTICLES = {
    ("the", "s"): {"m": "le", "f": "la"},
    ("the", "p"): {"m": "les", "f": "les"},
    ("a", "s"): {"m": "un", "f": "une"},
    ("a", "p"): {"m": "des", "f": "des"},
}


def with_s(word: str) -> str:
    """The English noun in the plural, or the verb in the third person singular, for the words of the grammar.

    >>> [with_s(w) for w in ("cat", "church", "city", "child", "do", "have")]
    ['cats', 'churches', 'cities', 'children', 'does', 'has']
    """
    if word in ("child", "have"):
        return {"child": "children", "have": "has"}[word]
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|sh|ch|o)$", word) else "s")


def plural(word: str) -> str:
    """The French noun or adjective in the plural, for the words of the grammar.

    >>> [plural(w) for w in ("maison", "oiseau", "vieux")]
    ['maisons', 'oiseaux', 'vieux']
    """
    if word[-1] in "sx":
        return word
    return word + ("x" if word.endswith("eau") else "s")


# Spelling


def opens_with_vowel(word: str) -> bool:
    """Whether the French word begins with a vowel as spoken. (The h of homard counts as a consonant.)"""
    return word[0] in "aeiouàâäæéèêëîïôöœùûü" or (word[0] == "h" and not word.startswith("homard"))


class Word(NamedTuple):
    """A word and the names of the parts of the sentence that it expresses."""

    text: str
    parts: tuple[str, ...]


ELIDED = ("je", "ne", "de", "que", "le", "la")
CONTRACTED = {
    ("de", "le"): "du",
    ("de", "les"): "des",
    ("à", "le"): "au",
    ("à", "les"): "aux",
    ("de", "des"): "de",
    ("de", "de"): "de",
}


def spelled(words: Sequence[Word]) -> list[Word]:
    """French words with the spelling that they have next to each other: je ai → j'ai, de le → du.

    This goes from right to left, so that le in "de le ami" loses its vowel before it can be contracted.

    >>> [word.text for word in spelled([Word(w, ()) for w in "je parle de le ami de le chat".split()])]
    ['je', 'parle', 'de', "l'", 'ami', 'du', 'chat']
    """
    done: list[Word] = []
    for text, parts in reversed(words):
        if done and (text, done[0].text) in CONTRACTED:
            follower = done.pop(0)
            text, parts = CONTRACTED[text, follower.text], parts + follower.parts
        if done and text in ELIDED and opens_with_vowel(done[0].text):
            text = text[:-1] + "'"
        done.insert(0, Word(text, parts))
    return done


def with_an(words: Sequence[Word]) -> list[Word]:
    """English words with "a" changed to "an" before a vowel."""
    following = [word.text for word in words[1:]] + ["."]
    return [
        Word("an", word.parts) if word.text == "a" and after[0] in "aeiou" else word
        for word, after in zip(words, following)
    ]


# Phrases

_Phrase = tuple[list[Word], list[Word]]  # French, English


def noun_phrase(noun: Noun, number: str, article: str, adjectives: Sequence[Adjective], name: str) -> _Phrase:
    """Article, adjectives and noun in both languages; number "s" or "p"; article "the", "a" or "no" (the indefinite article after a negation)."""
    many = plural if number == "p" else str
    before = [a for a in adjectives if a.place == "before"]
    after = [a for a in adjectives if a.place == "after"]
    de = article == "no" or (article == "a" and number == "p" and bool(before))
    article_of = lambda text: Word(text, (f"{name} article",))
    noun_of = lambda text: Word(text, (f"{name} noun",))

    def french(a: Adjective) -> Word:
        form = a.masculine if noun.gender == "m" else a.feminine
        if number == "s" and a.place == "before" and opens_with_vowel(noun.french):
            form = {"nouveau": "nouvel", "vieux": "vieil"}.get(form, form)
        return Word(many(form), (f"{name} {a.masculine}",))

    def english(a: Adjective) -> Word:
        return Word(a.of_person if noun.person else a.of_thing, (f"{name} {a.masculine}",))

    le = "de" if de else _ARTICLES[article, number][noun.gender]
    the = ["the"] if article == "the" else ["a"] if number == "s" else []
    said = with_s(noun.english) if number == "p" else noun.english
    return (
        [article_of(le), *map(french, before), noun_of(many(noun.french)), *map(french, after)],
        [*map(article_of, the), *map(english, before + after), noun_of(said)],
    )


class _Subject(NamedTuple):
    """The subject of a sentence: the words in both languages; person 0 … 5, gender and number; whether it is a person."""

    words: _Phrase
    person: int
    gender: str
    number: str
    human: bool


def _is_said(a: Adjective, human: bool) -> bool:
    """Whether the adjective is used of persons (if `human`) or of things (if not)."""
    return (a.of_person if human else a.of_thing) != "-"


def _some_noun_phrase(chance: random.Random, nouns: Sequence[Noun], articles: Sequence[str], name: str) -> _Subject:
    """A random noun phrase: one of the nouns, with at most one adjective before it and one after it."""
    noun, number = chance.choice(nouns), chance.choice("sp")
    adjectives = [
        chance.choice([a for a in FRENCH_ADJECTIVES if a.place == place and _is_said(a, noun.person)])
        for place in ("before", "after")
        if chance.random() < 0.4
    ]
    words = noun_phrase(noun, number, chance.choice(articles), adjectives, name)
    return _Subject(words, 2 if number == "s" else 5, noun.gender, number, noun.person)


def _some_subject(chance: random.Random, nouns: Sequence[Noun]) -> _Subject:
    """A random subject: a pronoun, which stands for a person, or a noun phrase."""
    if chance.random() < 0.4:
        return _some_noun_phrase(chance, nouns, ("the", "the", "a"), "subject")
    french, english, person, genders, numbers = chance.choice(_PRONOUNS)
    words = [Word(french, ("subject",))], [Word(english, ("subject",))]
    return _Subject(words, person, chance.choice(genders), chance.choice(numbers), True)


def _some_quality(chance: random.Random, subject: _Subject) -> _Phrase:
    """Something that the subject is, at random: a profession, without an article in French, or an adjective."""
    one = subject.number == "s"
    many = str if one else plural
    if subject.human and chance.random() < 0.5:
        job = chance.choice([n for n in PROFESSIONS if n.gender == subject.gender])
        article = [Word("a", ("article",))] if one else []
        return [Word(many(job.french), ("noun",))], [*article, Word(job.english if one else with_s(job.english), ("noun",))]
    a = chance.choice([a for a in FRENCH_ADJECTIVES if _is_said(a, subject.human)])
    french = many(a.masculine if subject.gender == "m" else a.feminine)
    return [Word(french, ("adjective",))], [Word(a.of_person if subject.human else a.of_thing, ("adjective",))]


# Sentences


def _sentence(subject: _Subject, french: str, english: str, rest: _Phrase, negated: bool, question: bool) -> _Phrase:
    """Subject, verb and rest, perhaps negated, perhaps as a question. `french` is the form of the verb, `english` the verb as in the dictionary.

    French puts "est-ce que" before a question and "ne … pas" around a verb. English needs an auxiliary for both: "do", unless the verb is "be".
    """
    third, be = subject.person == 2, english == "be"
    helped = be or negated or question
    does = _BE[subject.person] if be else with_s("do") if third else "do"
    expressed = "verb" if be else "not" if negated else "question"
    helper = [Word(does, (expressed,))] if helped else []
    verb = [] if be else [Word(with_s(english) if third and not helped else english, ("verb",))]
    ask = [Word("est-ce", ("question",)), Word("que", ("question",))] if question else []
    mark = [Word("?", ("mark",))] if question else []
    ne, pas, no = ([Word(word, ("not",))] if negated else [] for word in ("ne", "pas", "not"))
    who_F, who_E = subject.words
    F = [*ask, *who_F, *ne, Word(french, ("verb",)), *pas, *rest[0], *mark]
    E = [*(helper + who_E if question else who_E + helper), *no, *verb, *rest[1], *mark]
    return spelled(F), with_an(E)


def some_sentence(chance: random.Random) -> tuple[list[Word], list[Word]]:
    """One sentence of the grammar, drawn at random, in French and in English."""
    negated, question = chance.random() < 0.3, chance.random() < 0.3
    kind = chance.choice(("be", "have", "do", "do", "act"))
    subject = _some_subject(chance, FRENCH_NOUNS if kind == "be" else PERSONS)
    if kind == "be":
        return _sentence(subject, _TO_BE[subject.person], "be", _some_quality(chance, subject), negated, question)
    if kind == "act":
        stem, english = chance.choice(_ACTIONS)
        return _sentence(subject, stem + _ENDINGS[subject.person], english, ([], []), negated, question)
    if kind == "have":
        form, preposition, english, after = _TO_HAVE[subject.person], "-", "have", "-"
    else:
        stem, preposition, english, after = chance.choice(_VERBS)
        form = stem + _ENDINGS[subject.person]
    articles = ("the", "no") if negated and preposition == "-" else ("the", "a")
    F, E = _some_noun_phrase(chance, OBJECTS if kind == "have" else FRENCH_NOUNS, articles, "object").words
    if preposition != "-":
        F = [Word(preposition, ("preposition",)), *F]
    if after != "-":
        E = [Word(after, ("verb" if preposition == "-" else "preposition",)), *E]
    return _sentence(subject, form, english, (F, E), negated, question)


class SentencePair(NamedTuple):
    """A French sentence, its translation, and links (i, j): French word i and English word j express the same part of the sentence."""

    french: tuple[str, ...]
    english: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


def sentence_pairs(count: int, seed: int = 0) -> list[SentencePair]:
    """`count` pairs with different French sentences, drawn with this seed. (T-one-translation, T-agreement)

    The grammar has far more sentences than one would ask for. ValueError for a count below 1, TypeError for a count or seed that is not a whole number.
    """
    expects_positive(count=count)
    expects_whole(seed=seed)
    chance = random.Random(int(seed))
    found: dict[tuple[str, ...], SentencePair] = {}
    while len(found) < count:
        F, E = some_sentence(chance)
        links = tuple((i, j) for i, f in enumerate(F) for j, e in enumerate(E) if set(f.parts) & set(e.parts))
        pair = SentencePair(tuple(f.text for f in F), tuple(e.text for e in E), links)
        found.setdefault(pair.french, pair)
    return list(found.values())


# Held out

HELD_OUT = ("je suis étudiant", "je suis étudiante")


def part(french: Sequence[str]) -> str:
    """The part of a sentence, "train", "validation" or "test", by a hash: 90, 5 and 5 in a hundred. The sentences in `HELD_OUT` are for the test.
    TypeError for a sentence that is not split into words.

    >>> part(["je", "suis", "étudiant"])
    'test'
    """
    expects_several("french", french, "a list of words (see split_words)")
    text = join_words(french)
    place = int.from_bytes(sha256(text.encode()).digest()[:4]) / 2**32
    if 0.05 <= place < 0.1 or text in HELD_OUT:
        return "test"
    return "validation" if place < 0.05 else "train"


def split_pairs(pairs: Iterable[SentencePair]) -> dict[str, list[SentencePair]]:
    """The pairs, sorted into lists by their `part`."""
    parts: dict[str, list[SentencePair]] = {"train": [], "validation": [], "test": []}
    for pair in pairs:
        parts[part(pair.french)].append(pair)
    return parts
