"""Translation, from nothing to a sentence. Generated from book/translation.ipynb: edit the notebook, then `make export`."""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tlm_book.checks import expects, expects_positive, expects_tokens
from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from tlm_book.loss import shift, weighted_loss
from tlm_book.training import (
    TrainConfig,
    choose_device,
    learning_rate,
    parameter_groups,
)

__all__ = [
    "words",
    "text",
    "Noun",
    "Adjective",
    "PEOPLE",
    "FRIENDS",
    "THINGS",
    "LOOKS",
    "VERBS",
    "ACTIONS",
    "NOUNS",
    "ADJECTIVES",
    "HUMANS",
    "OBJECTS",
    "JOBS",
    "ENDINGS",
    "ÊTRE",
    "AVOIR",
    "BE",
    "PRONOUNS",
    "ARTICLES",
    "with_s",
    "plural",
    "opens_with_vowel",
    "Word",
    "CUT",
    "FUSED",
    "spelled",
    "with_an",
    "Phrase",
    "noun_phrase",
    "Subject",
    "said_of",
    "some_noun_phrase",
    "some_subject",
    "some_quality",
    "sentence",
    "some_sentence",
    "Pair",
    "sentence_pairs",
    "KEPT",
    "part",
    "split_pairs",
    "SIGNS",
    "WordList",
    "padded",
    "translation_loss",
    "RECIPE",
    "SIZES",
    "Translator",
    "train_translator",
    "greedy_search",
    "Best",
    "beam_search",
    "translate_all",
    "translate",
]


# --- Words


def words(text: str) -> list[str]:
    """A text as words; an apostrophe ends a word, a question mark is one.

    >>> words("est-ce qu'il n'est pas étudiant ?")
    ['est-ce', "qu'", 'il', "n'", 'est', 'pas', 'étudiant', '?']
    """
    return re.findall(r"[\w-]+'?|[^\w\s]", text.lower().replace("’", "'"))


def text(words: Iterable[str]) -> str:
    """Words as a text, the inverse of `words`."""
    return " ".join(words).replace("' ", "'")


# --- Tables


class Noun(NamedTuple):
    """A French noun in the singular, its gender, and the English noun."""

    french: str
    gender: str
    english: str
    person: bool


class Adjective(NamedTuple):
    """Masculine and feminine; before or after the noun; what it is called in English of
    a thing and of a person ("-": not said of it).
    """

    masculine: str
    feminine: str
    place: str
    of_thing: str
    of_person: str


def _rows(table: str) -> list[list[str]]:
    return [entry.split() for entry in table.split(",")]


PEOPLE = _rows(
    """
étudiant étudiante student, professeur professeure teacher, artiste artiste artist,
boulanger boulangère baker, ingénieur ingénieure engineer, avocat avocate lawyer,
chanteur chanteuse singer, ami amie friend, voisin voisine neighbour,
enfant enfant child"""
)
FRIENDS = ("ami", "voisin", "enfant")  # not professions
THINGS = _rows(
    """
m livre book, m jardin garden, m chat cat, m chien dog, m oiseau bird, m arbre tree,
m hôtel hotel, m homard lobster, m château castle, m bateau boat, f maison house,
f voiture car, f fleur flower, f pomme apple, f ville city, f école school,
f église church, f île island, f histoire story, f chaise chair"""
)
LOOKS = _rows(
    """
grand grande before big tall, petit petite before small small,
joli jolie before pretty pretty, nouveau nouvelle before new new,
vieux vieille before old old, jeune jeune before - young, rouge rouge after red -,
vert verte after green -, noir noire after black -, blanc blanche after white -,
étrange étrange after strange strange, célèbre célèbre after famous famous,
intelligent intelligente after - intelligent, content contente after - happy,
fatigué fatiguée after - tired"""
)
VERBS = _rows(
    """
regard - watch -, aim - like -, cherch - look for, trouv - find -, admir - admire -,
dessin - draw -, parl de talk about, rêv de dream of, pens à think of,
ressembl à look like"""
)
ACTIONS = _rows("travaill work, chant sing, dans dance, arriv arrive")
NOUNS = [
    Noun(french, gender, english, True)
    for masculine, feminine, english in PEOPLE
    for gender, french in (("m", masculine), ("f", feminine))
] + [Noun(french, gender, english, False) for gender, french, english in THINGS]
ADJECTIVES = [Adjective(*row) for row in LOOKS]
HUMANS = [noun for noun in NOUNS if noun.person]
OBJECTS = [noun for noun in NOUNS if not noun.person]
JOBS = [noun for noun in HUMANS if not noun.french.startswith(FRIENDS)]


# person 0 … 5: je, tu, il, nous, vous, ils
ENDINGS = "e es e ons ez ent".split()
ÊTRE = "suis es est sommes êtes sont".split()
AVOIR = "ai as a avons avez ont".split()
BE = "am are is are are are".split()
PRONOUNS = [
    # French, English, person, genders and numbers that it may stand for
    ("je", "i", 0, "mf", "s"),
    ("tu", "you", 1, "mf", "s"),
    ("il", "he", 2, "m", "s"),
    ("elle", "she", 2, "f", "s"),
    ("nous", "we", 3, "mf", "p"),
    ("vous", "you", 4, "mf", "sp"),
    ("ils", "they", 5, "m", "p"),
    ("elles", "they", 5, "f", "p"),
]
ARTICLES = {
    ("the", "s"): {"m": "le", "f": "la"},
    ("the", "p"): {"m": "les", "f": "les"},
    ("a", "s"): {"m": "un", "f": "une"},
    ("a", "p"): {"m": "des", "f": "des"},
}


def with_s(word: str) -> str:
    """The English noun in the plural; the verb after he, she, it.

    >>> [with_s(w) for w in ("cat", "church", "city", "child", "do", "have")]
    ['cats', 'churches', 'cities', 'children', 'does', 'has']
    """
    if word in ("child", "have"):
        return {"child": "children", "have": "has"}[word]
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|sh|ch|o)$", word) else "s")


def plural(word: str) -> str:
    """The French noun or adjective in the plural.

    >>> [plural(w) for w in ("maison", "oiseau", "vieux")]
    ['maisons', 'oiseaux', 'vieux']
    """
    if word[-1] in "sx":
        return word
    return word + ("x" if word.endswith("eau") else "s")


# --- Spelling


def opens_with_vowel(word: str) -> bool:
    """Does the French word begin with a vowel for the ear? (The h of homard counts.)
    """
    return word[0] in "aeiouéèêîœ" or (
        word[0] == "h" and not word.startswith("homard")
    )


class Word(NamedTuple):
    """A word, and the names of the parts of the sentence that it expresses."""

    text: str
    parts: tuple[str, ...]


CUT = ("je", "ne", "de", "que", "le", "la")
FUSED = {
    ("de", "le"): "du",
    ("de", "les"): "des",
    ("à", "le"): "au",
    ("à", "les"): "aux",
    ("de", "des"): "de",
    ("de", "de"): "de",
}


def spelled(words: Sequence[Word]) -> list[Word]:
    """French words as they are written one after the other: je ai → j'ai, de le → du.

    From right to left, so that le in "de le ami" is cut before it can be fused.
    """
    done: list[Word] = []
    for text, parts in reversed(words):
        if done and (text, done[0].text) in FUSED:
            fused = done.pop(0)
            text, parts = FUSED[text, fused.text], parts + fused.parts
        if done and text in CUT and opens_with_vowel(done[0].text):
            text = text[:-1] + "'"
        done.insert(0, Word(text, parts))
    return done


def with_an(words: Sequence[Word]) -> list[Word]:
    """English words with "a" changed to "an" before a vowel.
    """
    following = [word.text for word in words[1:]] + ["."]
    return [
        Word("an", word.parts) if word.text == "a" and after[0] in "aeiou" else word
        for word, after in zip(words, following)
    ]


# --- Phrases


Phrase = tuple[list[Word], list[Word]]  # French, English


def noun_phrase(
    noun: Noun, number: str, article: str, adjectives: Sequence[Adjective], name: str
) -> Phrase:
    """Article, adjectives and noun in both languages; article "the", "a" or "no" (the
    indefinite one after a negation).
    """
    many = plural if number == "p" else str
    before = [a for a in adjectives if a.place == "before"]
    after = [a for a in adjectives if a.place == "after"]
    if article == "no" or (article == "a" and number == "p" and before):
        le = "de"
    else:
        le = ARTICLES[article, number][noun.gender]

    def adjective(a: Adjective) -> Word:
        form = a.masculine if noun.gender == "m" else a.feminine
        if number == "s" and a.place == "before" and opens_with_vowel(noun.french):
            form = {"nouveau": "nouvel", "vieux": "vieil"}.get(form, form)
        return Word(many(form), (f"{name} {a.masculine}",))

    def said(a: Adjective) -> Word:
        return Word(
            a.of_person if noun.person else a.of_thing, (f"{name} {a.masculine}",)
        )

    French = [
        Word(le, (f"{name} article",)),
        *map(adjective, before),
        Word(many(noun.french), (f"{name} noun",)),
        *map(adjective, after),
    ]
    the = ["the"] if article == "the" else ["a"] if number == "s" else []
    English = [
        *(Word(text, (f"{name} article",)) for text in the),
        *map(said, before + after),
        Word(
            with_s(noun.english) if number == "p" else noun.english,
            (f"{name} noun",),
        ),
    ]
    return French, English


class Subject(NamedTuple):
    """Who or what: the words in both languages; person 0 … 5, gender and number; is
    it a person?
    """

    words: Phrase
    person: int
    gender: str
    number: str
    human: bool


def said_of(a: Adjective, human: bool) -> bool:
    """Is the adjective said of persons, or of things?"""
    return (a.of_person if human else a.of_thing) != "-"


def some_noun_phrase(
    chance: random.Random, nouns: Sequence[Noun], articles: Sequence[str], name: str
) -> Subject:
    """One of the nouns with at most one adjective before it and one after it."""
    noun, number = chance.choice(nouns), chance.choice("sp")
    adjectives = [
        chance.choice(
            [a for a in ADJECTIVES if a.place == place and said_of(a, noun.person)]
        )
        for place in ("before", "after")
        if chance.random() < 0.4
    ]
    words = noun_phrase(noun, number, chance.choice(articles), adjectives, name)
    return Subject(
        words, 2 if number == "s" else 5, noun.gender, number, noun.person
    )


def some_subject(chance: random.Random, nouns: Sequence[Noun]) -> Subject:
    """A pronoun, which stands for a person, or a noun phrase."""
    if chance.random() < 0.4:
        return some_noun_phrase(chance, nouns, ("the", "the", "a"), "subject")
    french, english, person, genders, numbers = chance.choice(PRONOUNS)
    words = [Word(french, ("subject",))], [Word(english, ("subject",))]
    return Subject(
        words, person, chance.choice(genders), chance.choice(numbers), True
    )


def some_quality(chance: random.Random, subject: Subject) -> Phrase:
    """What the subject is: a profession, without article in French, or an adjective.
    """
    many = plural if subject.number == "p" else str
    if subject.human and chance.random() < 0.5:
        job = chance.choice([n for n in JOBS if n.gender == subject.gender])
        article = [Word("a", ("article",))] if subject.number == "s" else []
        english = job.english if subject.number == "s" else with_s(job.english)
        return [Word(many(job.french), ("noun",))], [
            *article,
            Word(english, ("noun",)),
        ]
    a = chance.choice([a for a in ADJECTIVES if said_of(a, subject.human)])
    french = many(a.masculine if subject.gender == "m" else a.feminine)
    english = a.of_person if subject.human else a.of_thing
    return [Word(french, ("adjective",))], [Word(english, ("adjective",))]


# --- The sentence


def sentence(
    subject: Subject,
    french: str,
    english: str,
    rest: Phrase,
    negated: bool,
    question: bool,
) -> Phrase:
    """Subject, verb and rest, perhaps negated, perhaps as a question.

    `french` is the form of the verb; `english` the verb as in the dictionary.
    """
    third = subject.person == 2
    helped = english == "be" or negated or question
    does = BE[subject.person] if english == "be" else with_s("do") if third else "do"
    what = ("verb",) if english == "be" else ("not",) if negated else ("question",)
    helper = [Word(does, what)] if helped else []
    verb = (
        []
        if english == "be"
        else [Word(with_s(english) if third and not helped else english, ("verb",))]
    )
    asks = [Word("est-ce", ("question",)), Word("que", ("question",))]
    mark = [Word("?", ("mark",))] if question else []
    ne, pas = ([Word(w, ("not",))] if negated else [] for w in ("ne", "pas"))
    no = [Word("not", ("not",))] if negated else []
    who_F, who_E = subject.words
    F = [
        *(asks if question else []),
        *who_F,
        *ne,
        Word(french, ("verb",)),
        *pas,
        *rest[0],
        *mark,
    ]
    E = [
        *(helper + who_E if question else who_E + helper),
        *no,
        *verb,
        *rest[1],
        *mark,
    ]
    return spelled(F), with_an(E)


def some_sentence(chance: random.Random) -> Phrase:
    """One sentence of the grammar, drawn at random."""
    negated, question = chance.random() < 0.3, chance.random() < 0.3
    kind = chance.choice(("be", "have", "do", "do", "act"))
    subject = some_subject(chance, NOUNS if kind == "be" else HUMANS)
    if kind == "be":
        rest = some_quality(chance, subject)
        return sentence(subject, ÊTRE[subject.person], "be", rest, negated, question)
    if kind == "act":
        stem, english = chance.choice(ACTIONS)
        return sentence(
            subject,
            stem + ENDINGS[subject.person],
            english,
            ([], []),
            negated,
            question,
        )
    if kind == "have":
        form, preposition, english, after = AVOIR[subject.person], "-", "have", "-"
    else:
        stem, preposition, english, after = chance.choice(VERBS)
        form = stem + ENDINGS[subject.person]
    articles = ("the", "no") if negated and preposition == "-" else ("the", "a")
    objects = OBJECTS if kind == "have" else NOUNS
    F, E = some_noun_phrase(chance, objects, articles, "object").words
    if preposition != "-":
        F = [Word(preposition, ("preposition",)), *F]
    if after != "-":
        E = [Word(after, ("verb" if preposition == "-" else "preposition",)), *E]
    return sentence(subject, form, english, (F, E), negated, question)


class Pair(NamedTuple):
    """A French sentence, its translation, and the links (i, j): French word i and
    English word j express the same part of the sentence.
    """

    french: tuple[str, ...]
    english: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


def sentence_pairs(count: int, seed: int = 0) -> list[Pair]:
    """That many pairs with different French sentences, drawn with this seed. (The
    grammar has far more sentences than one would ask for.) ValueError for a count
    below 1.
    """
    expects_positive(count=count)
    chance = random.Random(seed)
    found: dict[tuple[str, ...], Pair] = {}
    while len(found) < count:
        F, E = some_sentence(chance)
        links = tuple(
            (i, j)
            for i, f in enumerate(F)
            for j, e in enumerate(E)
            if set(f.parts) & set(e.parts)
        )
        pair = Pair(tuple(f.text for f in F), tuple(e.text for e in E), links)
        found.setdefault(pair.french, pair)
    return list(found.values())


# --- Held out


KEPT = ("je suis étudiant", "je suis étudiante")


def part(french: Sequence[str]) -> str:
    """ "train", "validation" or "test": by a hash of the sentence, 90, 5 and 5 in a
    hundred. The sentences in `KEPT` are for the test.

    >>> part(["je", "suis", "étudiant"])
    'test'
    """
    place = int.from_bytes(sha256(text(french).encode()).digest()[:4]) / 2**32
    if 0.05 <= place < 0.1 or text(french) in KEPT:
        return "test"
    return "validation" if place < 0.05 else "train"


def split_pairs(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    """The pairs by their `part`."""
    parts: dict[str, list[Pair]] = {"train": [], "validation": [], "test": []}
    for pair in pairs:
        parts[part(pair.french)].append(pair)
    return parts


SIGNS = ("·", "∅", "×")
PADDING, START, STOP = range(3)


@dataclass(frozen=True)
class WordList:
    """The words of a language, numbered after the three signs for padding, start and
    stop. ValueError for a word that is not in the list, IndexError for an unknown
    number.

    >>> french = WordList(("je", "suis"))
    >>> french.encode("je suis"), french.decode([3, 4, STOP, 3])
    ([3, 4], 'je suis')
    """

    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(SIGNS) + len(self.words)

    def encode(self, sentence: str) -> list[int]:
        """The numbers of the words."""
        expects(
            isinstance(sentence, str),
            "sentence",
            type(sentence).__name__,
            "a str",
            TypeError,
        )
        found = words(sentence)
        for word in found:
            expects(
                word in self.words,
                "sentence",
                repr(word),
                f"one of the {len(self.words)} words of the list",
            )
        return [len(SIGNS) + self.words.index(word) for word in found]

    def decode(self, tokens: Iterable[int]) -> str:
        """The words up to the stop sign; signs are left out."""
        found = []
        for token in tokens:
            expects(
                0 <= token < len(self),
                "tokens",
                token,
                f"from 0 to {len(self) - 1}",
                IndexError,
            )
            if token == STOP:
                break
            if token >= len(SIGNS):
                found.append(self.words[token - len(SIGNS)])
        return text(found)


def padded(rows: Sequence[Sequence[int]]) -> Int[Tensor, "batch n"]:
    """Rows of different lengths as one tensor, filled up with PADDING."""
    n = max(map(len, rows), default=0)
    filled = [[*row, *[PADDING] * (n - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.long).view(len(rows), n)


# --- What the model learns from


def translation_loss(
    model: EncoderDecoder,
    source: Int[Tensor, "batch n"],
    target: Int[Tensor, "batch m"],
) -> Float[Tensor, ""]:
    """Mean of −log p over all words and stop signs of the batch; the decoder reads
    `shift(target, START)`. (A-shift-def, M-loss)

    Both are filled up with PADDING; `target` is without START, each sentence in it ends
    with STOP. ValueError for a START in the target, a sentence without STOP, and a
    different number of sentences; errors of the model.
    """
    same = len(source) == len(target)
    expects(
        same,
        "target",
        f"{len(target)} sentences",
        f"as many as source, {len(source)}",
    )
    there = target != PADDING
    expects(
        bool((target != START).all()),
        "target",
        "a start sign ∅",
        "words and a stop sign × only",
    )
    ends = (target == STOP).any(-1) | ~there.any(-1)
    expects(
        bool(ends.all()),
        "target",
        "a sentence without the stop sign ×",
        "one at the end of each",
    )
    scores = model(source, shift(target, START), source != PADDING)
    return weighted_loss(scores, target, there.to(scores.dtype))


# --- Training


RECIPE = TrainConfig(
    steps=400, batch_size=64, lr=4e-3, min_lr=0.02, warmup=50, weight_decay=0.01
)
SIZES = {"d_model": 64, "d_ff": 128, "n_layers": 2, "n_heads": 4, "max_len": 32}


@dataclass(frozen=True)
class Translator:
    """A model, and the words of its two languages."""

    model: EncoderDecoder
    french: WordList
    english: WordList


def train_translator(
    pairs: Sequence[Pair],
    recipe: TrainConfig = RECIPE,
    *,
    device: str = "cpu",
    **sizes: object,
) -> Translator:
    """A translator that has learned from these pairs and no others, in evaluation mode.

    `sizes` overrule SIZES and may be any field of `EncoderDecoderConfig`. The same
    arguments give the same translator on the same machine. `device` as in
    `choose_device`. ValueError for no pairs and for values that describe no model.
    """
    expects(len(pairs) > 0, "pairs", "none", "at least one")
    French, English = (
        WordList(tuple(sorted({word for side in sides for word in side})))
        for sides in ([p.french for p in pairs], [p.english for p in pairs])
    )
    number = [
        {w: len(SIGNS) + k for k, w in enumerate(L.words)} for L in (French, English)
    ]
    sources = padded([[number[0][w] for w in p.french] for p in pairs])
    targets = padded([[*(number[1][w] for w in p.english), STOP] for p in pairs])
    fields: dict[str, Any] = {**SIZES, "source_vocab_size": len(French), **sizes}
    config = EncoderDecoderConfig(len(English), **fields)
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay
        torch.manual_seed(recipe.seed)
        place = choose_device(device)
        model = EncoderDecoder(config).to(place).train()
        _descend(model, sources.to(place), targets.to(place), recipe)
    return Translator(model.eval(), French, English)


def _descend(
    model: EncoderDecoder,
    sources: Int[Tensor, "N n"],
    targets: Int[Tensor, "N m"],
    recipe: TrainConfig,
) -> None:
    """Change the weights, step by step, along the gradients of random batches."""
    groups = parameter_groups(model, recipe.weight_decay)
    optimizer = torch.optim.AdamW(groups, betas=recipe.betas)
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, recipe)
        chosen = torch.randint(len(sources), (recipe.batch_size,)).to(sources.device)
        source, target = (_trimmed(rows[chosen]) for rows in (sources, targets))
        loss = translation_loss(model, source, target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()


def _trimmed(rows: Int[Tensor, "batch n"]) -> Int[Tensor, "batch m"]:
    """Without the columns that hold nothing but padding."""
    return rows[:, : int((rows != PADDING).sum(-1).max())]


# --- In torch


def _expects_search(
    model: nn.Module, source: Tensor, start: int, stop: int, max_new: int | None
) -> int:
    """Check what both searches are given; the number of words to write at most."""
    right = isinstance(model, EncoderDecoder)
    expects(right, "model", type(model).__name__, "an EncoderDecoder", TypeError)
    c: Any = model.config
    expects_tokens("source", source, c.source_vocab_size or c.vocab_size)
    expects(
        source.dim() == 2, "source", f"shape {tuple(source.shape)}", "(batch, n)"
    )
    for name, sign in (("start", start), ("stop", stop)):
        expects(
            0 <= sign < c.vocab_size,
            name,
            sign,
            f"a token from 0 to {c.vocab_size - 1}",
            IndexError,
        )
    most = c.max_len if max_new is None else max_new
    expects_positive(max_new=most)
    expects(most <= c.max_len, "max_new", most, f"at most max_len = {c.max_len}")
    return most


def _log_probs(scores: Float[Tensor, "b V"]) -> Float[Tensor, "b V"]:
    finite = bool((scores < float("inf")).all())
    expects(
        finite,
        "model",
        "scores that are NaN or +∞",
        "a model whose weights are finite",
    )
    return scores.double().log_softmax(-1)


@torch.no_grad()
def greedy_search(
    model: EncoderDecoder,
    source: Int[Tensor, "batch n"],
    visible: Bool[Tensor, "batch n"] | None = None,
    *,
    start: int = START,
    stop: int = STOP,
    max_new: int | None = None,
) -> Int[Tensor, "batch m"]:
    """The likeliest word each time; a sentence that is over is filled up with `stop`.
    (M-autoregressive-inference, M-one-token-per-step)

    visible: true for real source tokens; None: all. `max_new` words at most, by
    default and at most the model's max_len. Errors as in the model; IndexError for
    start or stop outside the vocabulary; ValueError for scores that are not finite.
    """
    steps = _expects_search(model, source, start, stop, max_new)
    state, written = model.begin(source, visible), []
    token = source.new_full(source.shape[:1], start)
    over = torch.zeros_like(token, dtype=torch.bool)
    for _ in range(steps):
        scores, state = model.advance(token, state)
        token = _log_probs(scores).argmax(-1).masked_fill(over, stop)
        over |= token == stop
        written.append(token)
        if bool(over.all()):
            break
    return torch.stack(written, 1)


class Best(NamedTuple):
    """For each source the best hypothesis that was found: its tokens, filled up with
    the stop sign, log P and its value.
    """

    tokens: Int[Tensor, "batch m"]
    log_p: Float[Tensor, "batch"]
    value: Float[Tensor, "batch"]


@torch.no_grad()
def beam_search(
    model: EncoderDecoder,
    source: Int[Tensor, "batch n"],
    visible: Bool[Tensor, "batch n"] | None = None,
    *,
    width: int = 4,
    length_power: float = 0.0,
    start: int = START,
    stop: int = STOP,
    max_new: int | None = None,
) -> Best:
    """The hypothesis with the highest log P(y) / |y|^length_power that a beam of this
    width finds. (T-beam)

    length_power 0 compares probabilities, 1 means per word (length normalization).
    Errors as in `greedy_search`; ValueError for a width below 1
    and a length_power below 0.
    """
    expects_positive(width=width)
    fine = 0 <= length_power < float("inf")
    expects(fine, "length_power", length_power, "a finite number ≥ 0")
    steps = _expects_search(model, source, start, stop, max_new)
    batch, V, none = len(source), model.config.vocab_size, float("-inf")
    first = torch.arange(batch, device=source.device)[:, None] * width
    state = model.begin(source, visible).select(
        first.flatten().repeat_interleave(width) // width
    )
    tokens = source.new_zeros(batch, width, 0)
    log_p = torch.full(
        (batch, width), none, dtype=torch.float64, device=source.device
    )
    log_p[:, 0] = 0  # one empty hypothesis; the other places are free
    over = torch.zeros_like(log_p, dtype=torch.bool)
    length = torch.zeros_like(log_p)
    last = source.new_full((batch * width,), start)
    for _ in range(steps):
        scores, state = model.advance(last, state)
        step = _log_probs(scores).view(batch, width, V)
        only_stop = torch.full_like(step[0, 0], none).index_fill(
            0, first.new_tensor(stop), 0.0
        )
        step = torch.where(over[..., None], only_stop, step)
        all_log_p = (log_p[..., None] + step).flatten(1)  # (batch, width·V)
        all_length = (length + ~over).repeat_interleave(V, 1)
        best = (
            (all_log_p / all_length**length_power)
            .sort(dim=-1, descending=True, stable=True)
            .indices[:, :width]
        )
        parent, token = best // V, best % V
        log_p, length = all_log_p.gather(1, best), all_length.gather(1, best)
        tokens = torch.cat(
            [tokens.take_along_dim(parent[..., None], 1), token[..., None]], -1
        )
        state = state.select((first + parent).flatten())
        over, last = token == stop, token.flatten()
        value = log_p / length**length_power
        bound = (log_p / steps**length_power).masked_fill(over, none)
        if bool((over[:, 0] & (value[:, 0] >= bound.amax(1))).all()):
            break
    return Best(tokens[:, 0], log_p[:, 0], value[:, 0])


def translate_all(
    translator: Translator,
    sentences: Sequence[str],
    *,
    width: int = 1,
    length_power: float = 0.0,
) -> list[str]:
    """The translations of many sentences at once: greedy for width 1, else the best of
    the beam.

    ValueError for a sentence that has no word, a word that is not in the list, or more
    words than the model's max_len; TypeError for what is no text.
    """
    one = isinstance(sentences, str)
    expects(not one, "sentences", "one str", "a list of str", TypeError)
    expects(len(sentences) > 0, "sentences", "none", "at least one")
    rows = [translator.french.encode(sentence) for sentence in sentences]
    expects(all(rows), "sentences", "one without words", "at least one word in each")
    place = next(translator.model.parameters()).device
    source = padded(rows).to(place)
    visible = source != PADDING
    if width == 1:
        found = greedy_search(translator.model, source, visible)
    else:
        found = beam_search(
            translator.model, source, visible, width=width, length_power=length_power
        ).tokens
    return [translator.english.decode(row) for row in found.tolist()]


def translate(
    translator: Translator,
    sentence: str,
    *,
    width: int = 1,
    length_power: float = 0.0,
) -> str:
    """The translation of one sentence; see `translate_all`. Errors as there, and
    TypeError for anything but a str.
    """
    expects(
        isinstance(sentence, str),
        "sentence",
        type(sentence).__name__,
        "a str",
        TypeError,
    )
    return translate_all(
        translator, [sentence], width=width, length_power=length_power
    )[0]
