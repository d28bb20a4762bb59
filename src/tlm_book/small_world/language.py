"""The language of the small world: one table of sentences, by which events are told and texts are read. Written by hand.

A pattern is a sentence with slots. `{place:to}` stands for "to the mill" if the event's place is the mill. To tell an event is to fill the slots of a
pattern; to read a sentence is to find the pattern that it fits and the contents of the slots. So whatever can be told can be read, and nothing else.

"She" and "he" at the beginning of a sentence mean the one woman or man whom the previous sentence names; "it" means the one thing or container
that it names. "There" means the place that was named last.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, NamedTuple

import tlm_book.small_world.events as w
from tlm_book.small_world.words import (
    COLOURS,
    CONTAINERS,
    MOODS,
    PEOPLE,
    PLACES,
    THINGS,
    TIMES,
    TRADES,
    WAYS,
    WEATHER,
    article,
    said,
    where_it_is,
)
from tlm_book.small_world.world import Event

__all__ = ["BEFORE", "TELLINGS", "Named", "NotGrammatical", "Pattern", "Sentence", "fill", "patterns", "read"]


class NotGrammatical(Exception):
    """Raised if a sentence fits no pattern, or if a question has no answer."""


@dataclass
class Named:
    """The people and things that a sentence names, in order, and the place that was named last: what the next sentence's pronouns may mean."""

    people: list[str] = field(default_factory=list)
    things: list[str] = field(default_factory=list)
    place: str = ""

    def add(self, *names: str) -> None:
        """Note these names, in this object; a place becomes the one that was named last."""
        for name in names:
            group = self.people if name in PEOPLE else self.things
            if name in PLACES:
                self.place = name
            elif name not in group:
                group.append(name)

    def meant_by(self, pronoun: str) -> str:
        """The name that a pronoun stands for; NotGrammatical unless exactly one fits."""
        fitting = self.things if pronoun == "it" else [who for who in self.people if PEOPLE[who] == pronoun]
        if len(fitting) != 1:
            raise NotGrammatical(f"{pronoun!r} could mean {said(fitting) if fitting else 'nobody'}")
        return fitting[0]

    def pronoun(self, name: str) -> str | None:
        """The pronoun that would mean this name, if there is one."""
        word = PEOPLE.get(name, "it")
        try:
            return word if self.meant_by(word) == name else None
        except NotGrammatical:
            return None


TELLINGS: dict[type, list[str]] = {
    w.Lives: ["{people:names} lived around {places:list}.", "{people:names} often came to {places:list}."],
    w.Stays: [
        "{who:name} was {place:at}.", "{who:name}, {trade:a}, was {place:at}.", "{place:At} was {who:name}.",
        "There was {trade:a} called {who:name} {place:at}.",
    ],
    w.Lies: ["There was {what:a} {where:at}.", "{what:A} lay {where:at}.", "{where:At} lay {what:a}.", "{what:A} could be seen {where:at}."],
    w.Holds: ["{who:subject} had {what:a}.", "{who:subject} held {what:a}.", "{who:subject} was carrying {what:a}."],
    w.Goes: [
        "{who:subject} went {place:to}.", "{who:subject} went {how} {place:to}.", "{who:subject} walked {place:to}.", "{who:subject} ran {place:to}.",
        "{who:subject} walked {how} {place:to}.", "{who:subject} made the journey {place:to}.", "{who:subject} set off and came {place:to}.",
        "Then {who:name} went {place:to}.", "Off went {who:name} {place:to}.",
    ],
    w.GoesWith: ["{who:name} and {other:name} went {place:to}.", "{who:subject} went {place:to} with {other:name}.", "Together {who:name} and {other:name} walked {place:to}."],
    w.Meets: ["{who:subject} met {other:name} {place:there}.", "{place:there} {who:name} met {other:name}.", "{who:name} and {other:name} greeted each other."],
    w.Takes: [
        "{who:subject} took {what:object}.", "{who:subject} picked up {what:the}.", "{what:The} was picked up by {who:name}.",
        "{who:subject} found {what:the} and took it along.", "Then {who:name} took {what:the}.",
        "{who:subject} took {what:object} {place:at}.", "{who:subject} picked up {what:the} {place:at}.", "{place:At} {who:name} picked up {what:the}.",
        "{who:subject} found {what:the} {place:at} and took it along.",
    ],
    w.TakesOut: ["{who:subject} took {what:the} out of {container:the}.", "{what:The} was taken out of {container:the} by {who:name}.", "Out of {container:the} {who:name} took {what:the}."],
    w.PutsIn: [
        "{who:subject} put {what:object} into {container:the}.", "{what:The} was put into {container:the} by {who:name}.", "{who:subject} hid {what:the} in {container:the}.",
        "Then {who:name} laid {what:the} into {container:the}.",
    ],
    w.PutsDown: [
        "{who:subject} left {what:object} {place:at}.", "{who:subject} put {what:object} down {place:at}.", "{place:At} {who:name} left {what:the}.",
        "{who:subject} left {what:object} {place:there}.", "{who:subject} put {what:object} down.",
    ],
    w.Gives: [
        "{who:subject} gave {other:name} {what:the}.", "{who:subject} gave {what:object} to {other:name}.", "{what:The} was given to {other:name} by {who:name}.",
        "{who:subject} handed {what:the} to {other:name}.", "{other:name} got {what:the} from {who:name}.", '"Take {what:the}," said {who:name} to {other:name}, and so it was done.',
    ],
    w.Thanks: ["{who:subject} thanked {other:name}.", '"Thank you, {other:name}," said {who:name}.'],
    w.Finds: ["{who:subject} looked into {container:the} and found {found:list}.", "{who:subject} looked into {container:the}: it held {found:list}."],
    w.Asks: ['"Where is {what:the}?" {who:name} asked {other:name}.', "{who:subject} asked {other:name} for {what:the}.", '"Have you seen {what:the}?" asked {who:name}, and {other:name} thought.'],
    w.Tells: ['"It is {where:at}," said {who:name}.', '"You will find it {where:at}," {who:name} answered.'],
    w.IsAt: ["{who:name} was {place:at} then.", "Meanwhile {who:name} was {place:at}.", "{who:name} happened to be {place:at}.", "Meanwhile {who:name} happened to be {place:at}."],
    w.IsIn: ["{what:The} was {where:at}.", "{what:The} could be found {where:at}."],
    w.Feels: ["{who:subject} was {mood}.", "{who:subject} felt {mood}."],
    w.Wants: ["{who:subject} wanted {what:the}.", "{who:subject} wished for {what:the}.", "{who:subject} was looking for {what:the}."],
    w.Gets: ["Now {who:name} had {what:the} at last.", "At last {who:name} had {what:the}, and all was well.", "So {who:name} got the wish and held {what:the}."],
    w.Begins: ["{weather:sky}"],
    w.Ends: ["{weather:over}"],
    w.Turns: ["{time:comes}"],
}  # fmt: skip

TOO = ", too."

# What happened before the event that has just been told.
BEFORE: dict[type, list[str]] = {
    w.Goes: ["Before that, {who:name} had gone {place:to}.", "{who:name} had walked {place:to} before."],
    w.Takes: ["Before that, {who:name} had taken {what:the}.", "{what:The} had been taken by {who:name} before."],
    w.PutsIn: ["Before that, {who:name} had put {what:the} into {container:the}.", "{what:The} had been put into {container:the} by {who:name} before."],
    w.PutsDown: ["Before that, {who:name} had put {what:the} down."],
    w.Gives: ["Before that, {who:name} had given {what:the} to {other:name}.", "{who:name} had given {other:name} {what:the} before."],
}  # fmt: skip

_COMES = {"morning": "Morning came.", "noon": "Noon came.", "afternoon": "The afternoon came.", "evening": "Evening came.", "night": "Night fell."}


class Sentence(NamedTuple):
    """What a sentence says: the event, whether it happened before the previous one, and whom and what the sentence names."""

    event: Event
    before: bool
    named: Named


class Pattern(NamedTuple):
    """A sentence with slots, and the kind of event that it tells."""

    kind: type
    text: str
    before: bool
    expression: re.Pattern[str]
    slots: list[tuple[str, str]]  # field, form

    @property
    def too(self) -> bool:
        """Whether the pattern says that somebody or something else is there, too."""
        return self.text.endswith(TOO)


# The forms of slots as regular expressions; the nouns and names in them are looked up afterwards.
_COLOURED = f"(?:(?:{'|'.join(COLOURS)}) )?" + r"\w+"
_THE, _A, _AT = r"the \w+", f"an? {_COLOURED}", r"(?:in|at|on|by) the \w+|with \w+"
_EXPRESSIONS = {
    "name": r"[A-Z][a-z]+", "subject": r"[A-Z][a-z]+|she|he", "the": _THE, "object": f"{_THE}|it", "a": _A, "to": r"to the \w+", "at": _AT, "list": r".+", "names": r".+",
    "": r"\w+", "there": "there", "sky": ".+", "over": ".+", "comes": ".+",
}  # fmt: skip


def lowered(sentence: str) -> str:
    """The sentence without its initial capital, which names keep. NotGrammatical if it has none."""
    start = 1 if sentence.startswith('"') else 0
    word = re.match(r"\w*", sentence[start:])[0]  # type: ignore[index]
    if not word[:1].isupper():
        raise NotGrammatical("a sentence begins with a capital")
    return sentence if word in PEOPLE else sentence[:start] + sentence[start].lower() + sentence[start + 1 :]


def raised(sentence: str) -> str:
    """The sentence with an initial capital."""
    start = 1 if sentence.startswith('"') else 0
    return sentence[:start] + sentence[start].upper() + sentence[start + 1 :]


def compiled(kind: type, text: str, before: bool = False) -> Pattern:
    text = re.sub(r"\{(\w+):(A|At|The)\}", lambda m: f"{{{m[1]}:{m[2].lower()}}}", text)
    text = text if text.startswith("{") else lowered(text)
    slots = [(name, form or "") for name, form in re.findall(r"\{(\w+)(?::(\w+))?\}", text)]
    parts = re.split(r"\{\w+(?::\w+)?\}", text)
    expression = re.escape(parts[0])
    for (_, form), part in zip(slots, parts[1:]):
        expression += f"({_EXPRESSIONS[form]})" + re.escape(part)
    return Pattern(kind, text, before, re.compile(expression), slots)


@cache
def patterns() -> dict[tuple[type, bool], list[Pattern]]:
    """All patterns, by the kind of event and by whether they look back. For an event with a field `too`, each has a twin that ends with the word."""
    twins = lambda kind, texts: [*texts, *(text[:-1] + TOO for text in texts)] if hasattr(kind, "too") else texts
    return {
        (kind, before): [compiled(kind, text, before) for text in twins(kind, texts)]
        for before, table in ((False, TELLINGS), (True, BEFORE))
        for kind, texts in table.items()
    }


# Telling


def _phrase(form: str, value: Any, colour: str, before: Named, plain: bool) -> str:
    """The value of a slot in words; `colour` is that of a new thing, `plain` means without pronouns."""
    match form:
        case "subject" | "object":
            pronoun = None if plain else before.pronoun(value)
            return pronoun or _phrase("name" if form == "subject" else "the", value, colour, before, plain)
        case "the":  # a colour is told only once, with "a"
            return f"the {value}"
        case "a":
            return article(f"{colour} {value}".lstrip())
        case "to":
            return f"to the {value}"
        case "at":
            return where_it_is(value)
        case "there":
            return "there"
        case "list":
            return said([f"the {name}" for name in value]) if value else "nothing"
        case "names":
            return said(list(value))
    return str(value)


def fill(pattern: Pattern, event: Any, before: Named, plain: bool) -> tuple[str, Named]:
    """The event in the words of this pattern, and whom and what they name; `before` is what the previous sentence names."""
    if pattern.kind in (w.Begins, w.Ends, w.Turns):
        return _sky(event), Named(place=before.place)
    named, text = Named(place=before.place), pattern.text
    for name, form in pattern.slots:
        value = getattr(event, name)
        colour = getattr(event, "colour", "") if name == "what" else ""
        text = text.replace(f"{{{name}:{form}}}" if form else f"{{{name}}}", _phrase(form, value, colour, before, plain), 1)
        if form and name != "trade":
            named.add(*(value if isinstance(value, tuple) else [value]))
    return raised(text), _after(pattern, named)


def _after(pattern: Pattern, named: Named) -> Named:
    """What the next sentence may refer to: "It is in the box" speaks of a thing without naming it, so "it" means nothing after such a sentence."""
    return replace(named, things=[]) if pattern.kind is w.Tells else named


def _sky(event: Any) -> str:
    if isinstance(event, w.Turns):
        return _COMES[event.time]
    return WEATHER[event.weather][2 if isinstance(event, w.Ends) else 0 if event.already else 1]


# Reading


def _without_article(phrase: str) -> str:
    words = phrase.partition(" ")[2]
    if article(words) != phrase:
        raise NotGrammatical(f"{phrase!r} has the wrong article")
    return words


def _new(phrase: str) -> tuple[str, str]:
    """A noun and its colour from "a red key"."""
    *colour, noun = _without_article(phrase).split()
    return _one_of(noun, _NOUNS), "".join(colour)


def _value(form: str, name: str, phrase: str, before: Named) -> Any:
    """The value of a slot, read from a phrase."""
    match form:
        case "name" | "subject":
            return before.meant_by(phrase) if phrase in ("she", "he") else _one_of(phrase, PEOPLE)
        case "the" | "object":
            return before.meant_by("it") if phrase == "it" else _one_of(phrase.removeprefix("the "), _NOUNS)
        case "a":  # a trade; a new thing, which may have a colour, is read by `_new`
            return _one_of(_without_article(phrase), TRADES)
        case "to":
            return _one_of(phrase.split()[-1], PLACES)
        case "at":
            return _at(phrase)
        case "there":
            if not before.place:
                raise NotGrammatical("'there' could mean nowhere")
            return before.place
        case "list":
            names = [] if phrase == "nothing" and name == "found" else [part.removeprefix("the ") for part in re.split(", | and ", phrase)]
            if (said([f"the {n}" for n in names]) if names else "nothing") != phrase:
                raise NotGrammatical(f"{phrase!r} is no list")
            return tuple(_one_of(n, PLACES if name == "places" else _NOUNS) for n in names)
        case "names":
            names = re.split(", | and ", phrase)
            if said(names) != phrase:
                raise NotGrammatical(f"{phrase!r} is no list")
            return tuple(_one_of(n, PEOPLE) for n in names)
    return _one_of(phrase, {"how": WAYS, "mood": MOODS}[name])


_NOUNS = [*THINGS, *CONTAINERS]


def _one_of(word: str, words: Any) -> str:
    if word not in words:
        raise NotGrammatical(f"{word!r} does not stand there")
    return word


def _at(phrase: str) -> str:
    preposition, *middle, noun = phrase.split()
    if preposition == "with" and not middle and noun in PEOPLE:
        return noun
    if middle == ["the"] and (preposition == PLACES.get(noun) or (preposition == "in" and noun in CONTAINERS)):
        return noun
    raise NotGrammatical(f"{phrase!r} is nowhere")


@cache
def _skies() -> dict[str, Event]:
    """{sentence: its event} for the sentences without slots."""
    found: dict[str, Event] = {_COMES[time]: w.Turns(time) for time in TIMES}
    for weather, (is_so, begins, ends) in WEATHER.items():
        found |= {is_so: w.Begins(weather, already=True), begins: w.Begins(weather), ends: w.Ends(weather)}
    return found


def _fitting(sentence: str) -> Iterator[tuple[Pattern, re.Match[str]]]:
    for group in patterns().values() if sentence.endswith(".") else ():
        for pattern in group:
            if pattern.slots[0][1] not in ("sky", "over", "comes") and (found := pattern.expression.fullmatch(sentence)):
                yield pattern, found


def read(sentence: str, before: Named) -> Sentence:
    """What a sentence says; `before` is what the previous sentence names. NotGrammatical if it is not a sentence of the language."""
    if sentence in _skies():
        return Sentence(_skies()[sentence], False, Named(place=before.place))
    why = NotGrammatical("no such sentence")
    for pattern, found in _fitting(lowered(sentence)):
        values: dict[str, Any] = {"too": pattern.too}
        named = Named(place=before.place)
        try:
            for (name, form), phrase in zip(pattern.slots, found.groups()):
                if form == "a" and name == "what":
                    values["what"], values["colour"] = _new(phrase)
                else:
                    values[name] = _value(form, name, phrase, before)
                if form and name != "trade":
                    named.add(*(values[name] if isinstance(values[name], tuple) else [values[name]]))
        except NotGrammatical as error:
            why = error
            continue
        allowed = {f.name for f in fields(pattern.kind)}
        return Sentence(pattern.kind(**{k: v for k, v in values.items() if k in allowed}), pattern.before, _after(pattern, named))
    raise why
