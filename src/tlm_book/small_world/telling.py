"""Stories of people with wishes in a small world, and questions about them. Written by hand."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import tlm_book.small_world.events as w
from tlm_book.checks import (
    expects,
    expects_kind,
    expects_positive,
    expects_several,
    expects_whole,
    is_whole,
)
from tlm_book.small_world.language import BEFORE, Named, Pattern, fill, patterns
from tlm_book.small_world.questions import QUESTIONS, answer, askable
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
    sort_of,
)
from tlm_book.small_world.world import Event, World

__all__ = ["LEVELS", "Level", "stories", "story"]


class Level(NamedTuple):
    """The size of a story: how many people, places, containers and things it has, how many small plots happen, how many questions are asked."""

    people: int
    places: int
    containers: int
    things: int
    plots: int
    questions: int
    plain: bool = False  # without pronouns, colours, trades, manners of going, looks back, weather, times of day and moods


LEVELS = (
    Level(2, 3, 0, 2, 1, 3, plain=True),
    Level(2, 3, 1, 2, 2, 4, plain=True),
    Level(2, 4, 1, 3, 2, 5),
    Level(3, 4, 2, 3, 3, 5),
    Level(4, 5, 2, 5, 6, 7),
)


# The least that a story needs, and the most for which there are words.
_RANGES = {"people": (2, len(PEOPLE)), "places": (2, len(PLACES)), "containers": (0, len(CONTAINERS)), "things": (1, len(THINGS)), "plots": (0, 100), "questions": (0, 100)}

_OF_THINGS = (w.Lies, w.Takes, w.TakesOut, w.PutsIn, w.PutsDown, w.Gives, w.IsIn)  # after these it is clear where a thing is


class _Stage:
    """A world, the events so far, and a source of chance.

    clear    pairs (name, where) for which it has lately been said where the named one is; a plot repeats what is not clear
    here     the place that was named last; lately: the pairs that were placed by the event that named it
    """

    def __init__(self, level: Level, rng: random.Random) -> None:
        self.level, self.rng = level, rng
        self.world, self.events = World(), list[Event]()
        self.places = sorted(rng.sample(list(PLACES), level.places))
        self.clear, self.lately, self.here = set[tuple[str, str]](), set[tuple[str, str]](), ""

    def do(self, event: Event) -> None:
        self.world = self.world.after(event)
        self.events.append(event)
        placed = self.placed_by(event)
        self.clear |= placed
        if (named := getattr(event, "place", "") or getattr(event, "where", "")) in PLACES:
            self.here, self.lately = named, placed
        else:
            self.lately |= {(name, where) for name, where in placed if where == self.here}

    def placed_by(self, event: Event) -> set[tuple[str, str]]:
        """The pairs (name, where) that the event that has just happened tells: people if it names a place, things if it moves or mentions them."""
        of_people, of_things = bool(getattr(event, "place", "")), isinstance(event, _OF_THINGS)
        names = [name for key in ("who", "other", "what", "container") if (name := getattr(event, key, ""))]
        return {(name, self.world.where[name]) for name in names if (of_people if sort_of(name) == "person" else of_things)}

    def begin_plot(self) -> None:
        """Begin a plot: only what was placed by the event that named a place last is still clear."""
        self.clear = set(self.lately)

    def recall(self, name: str, surely: bool = False) -> None:
        """Say where somebody or something is, `surely` or unless it is clear; likewise its bearer; of a container that is named, always."""
        where = self.world.where[name]
        if surely := surely or (name, where) not in self.clear:
            too = where == self.here and self.lately_beside(name)
            self.do(w.IsAt(name, where, too) if sort_of(name) == "person" else w.IsIn(name, where, too))
        if sort_of(where) != "place":
            self.recall(where, surely and sort_of(where) == "container")

    def locate(self, who: str) -> None:
        """Say where somebody is, unless the event that named a place last put them there."""
        self.recall(who, surely=(who, self.world.where[who]) not in self.lately)

    def lately_beside(self, name: str) -> bool:
        """Whether somebody or something else that the event that named a place last put there is still there."""
        return any(other != name and self.world.where[other] == self.here for other, _ in self.lately)

    # steps

    def go(self, who: str, place: str = "") -> None:
        """Somebody goes to a place, unless they are there; if none is given, to some other place, perhaps in company."""
        if place:
            self.locate(who)
        else:
            self.recall(who)
            place, other = self.somewhere_else(who), self.another(who) if self.rng.random() < 0.1 else who
            self.recall(other)
            if other != who and self.world.where[who] == self.world.where[other]:
                return self.do(w.GoesWith(who, other, place))
        if self.world.where[who] != place:
            self.do(w.Goes(who, place, self.rng.choice(WAYS) if not self.level.plain and self.rng.random() < 0.3 else ""))

    def fetch(self, who: str, what: str) -> None:
        """Somebody gets a thing, wherever it is."""
        where = self.world.where[what]
        if where == who:
            return
        self.recall(what)
        self.go(who, self.world.place_of(what))
        match sort_of(where):
            case "place":
                self.do(w.Takes(who, what, where if self.rng.random() < 0.5 else ""))
            case "person":
                self.give(where, what, who)
            case "container":
                holder = self.world.where[where]
                if sort_of(holder) == "person" and holder != who:
                    self.do(w.TakesOut(holder, what, where))
                    self.give(holder, what, who)
                else:
                    self.do(w.TakesOut(who, what, where))

    def give(self, who: str, what: str, other: str) -> None:
        self.do(w.Gives(who, what, other))
        if self.rng.random() < 0.4:
            self.do(w.Thanks(other, who))

    def meet(self, who: str, other: str) -> None:
        self.do(w.Meets(who, other, self.world.where[who] if self.rng.random() < 0.7 else ""))

    def leave(self, who: str, what: str) -> None:
        self.do(w.PutsDown(who, what, self.world.where[who] if self.rng.random() < 0.85 else ""))

    def somewhere_else(self, who: str) -> str:
        return self.rng.choice([place for place in self.places if place != self.world.where[who]])

    def anyone(self) -> str:
        """A random person, often the one who acted last."""
        last = getattr(self.events[-1], "who", "")
        return last if last and self.rng.random() < 0.4 else self.rng.choice(self.world.all("person"))

    def anything(self) -> str:
        """A random thing, but not the same again at once."""
        last = getattr(self.events[-1], "what", "")
        return self.rng.choice([thing for thing in self.world.all("thing") if thing != last] or [last])

    def another(self, who: str) -> str:
        return self.rng.choice([other for other in self.world.all("person") if other != who])


# Plots


def _wish(stage: _Stage) -> None:
    """Somebody wants a thing, asks for it, fetches it."""
    who, what = stage.anyone(), stage.anything()
    if stage.world.where[what] == who:
        return
    stage.recall(what)
    stage.locate(who)
    stage.do(w.Wants(who, what))
    if stage.world.where[who] != stage.world.place_of(what) and stage.rng.random() < 0.7:
        other = stage.another(who)
        stage.recall(other)
        if stage.world.where[who] == stage.world.where[other] and other != stage.world.where[what]:
            stage.do(w.Asks(who, other, what))
            stage.do(w.Tells(other, stage.world.where[what]))
    stage.fetch(who, what)
    if stage.rng.random() < 0.7:
        stage.do(w.Gets(who, what))


def _present(stage: _Stage) -> None:
    """Somebody brings somebody else a thing, but not to the one from whom it came."""
    who, what = stage.anyone(), stage.anything()
    other = stage.another(who)
    if other in (*stage.world.way_to(what), stage.world.giver.get((what, who))):
        return _errand(stage)
    stage.fetch(who, what)
    stage.recall(other)
    stage.go(who, stage.world.where[other])
    if stage.rng.random() < 0.3:
        stage.meet(who, other)
    return stage.give(who, what, other)


def _tidy(stage: _Stage) -> None:
    """Somebody puts a thing into a container."""
    containers = stage.world.all("container")
    if not containers:
        return _errand(stage)
    who, what, container = stage.anyone(), stage.anything(), stage.rng.choice(containers)
    if stage.world.where[what] == container:
        return None
    stage.fetch(who, what)
    stage.recall(container, surely=True)
    if sort_of(stage.world.where[container]) == "person":
        stage.go(who, stage.world.place_of(container))
        if stage.world.where[container] != who:
            stage.give(stage.world.where[container], container, who)
    else:
        stage.go(who, stage.world.where[container])
    stage.do(w.PutsIn(who, what, container))
    return None


def _errand(stage: _Stage) -> None:
    """Somebody carries a thing to a place and leaves it there."""
    who, what = stage.anyone(), stage.anything()
    stage.fetch(who, what)
    stage.go(who)
    stage.leave(who, what)


def _walk(stage: _Stage) -> None:
    """Somebody goes somewhere, and may meet somebody."""
    who = stage.anyone()
    stage.go(who)
    if isinstance(stage.events[-1], w.GoesWith):
        return
    other = stage.another(who)
    stage.recall(other)
    if stage.world.where[who] == stage.world.where[other] and stage.rng.random() < 0.8:
        stage.meet(who, other)


def _move(stage: _Stage) -> None:
    """Somebody carries a container, with all that is in it, to another place."""
    containers = stage.world.all("container")
    if not containers:
        return _walk(stage)
    who, container = stage.anyone(), stage.rng.choice(containers)
    stage.fetch(who, container)
    stage.go(who)
    if stage.rng.random() < 0.5:
        stage.leave(who, container)
    return None


def _look(stage: _Stage) -> None:
    """Somebody looks into a container."""
    containers = [box for box in stage.world.all("container") if sort_of(stage.world.where[box]) == "place"]
    if not containers:
        return _walk(stage)
    who, container = stage.anyone(), stage.rng.choice(containers)
    stage.recall(container, surely=True)
    stage.go(who, stage.world.where[container])
    stage.do(w.Finds(who, container, tuple(stage.world.inside(container))))
    return None


def _sky(stage: _Stage) -> None:
    """The weather or the time of day changes, or somebody's mood."""
    which = stage.rng.randrange(3)
    if which == 0:
        if stage.world.weather:
            stage.do(w.Ends(stage.world.weather))
        else:
            stage.do(w.Begins(stage.rng.choice([weather for weather in WEATHER if (weather, stage.world.time) != ("sunny", "night")])))
    elif which == 1:
        now = stage.world.time
        time = "morning" if now == "night" else TIMES[TIMES.index(now) + 1] if now else stage.rng.choice(TIMES)
        if time == "night" and stage.world.weather == "sunny":
            stage.do(w.Ends("sunny"))
        stage.do(w.Turns(time))
    else:
        stage.do(w.Feels(stage.anyone(), stage.rng.choice(MOODS)))


_PLOTS: list[Callable[[_Stage], None]] = [_wish, _present, _tidy, _errand, _walk, _move, _look, _sky]
_CHANCES = [3.0, 2.0, 3.0, 2.0, 1.0, 2.0, 0.4, 1.0]


def _beginning(stage: _Stage) -> None:
    """Introduce the people, and say what is where."""
    level, rng = stage.level, stage.rng
    if not level.plain and rng.random() < 0.4:
        stage.do(w.Begins(rng.choice(list(WEATHER)), already=True))
    people = sorted(rng.sample(list(PEOPLE), level.people))
    stage.do(w.Lives(tuple(people), tuple(stage.places)))
    for who in people:
        place = rng.choice(stage.places)
        stage.do(w.Stays(who, place, "" if level.plain or rng.random() < 0.6 else rng.choice(TRADES), place == stage.here))
    containers = sorted(rng.sample(CONTAINERS, level.containers))
    for what in [*containers, *sorted(rng.sample(THINGS, level.things))]:
        colour = "" if level.plain or what in containers or rng.random() < 0.5 else rng.choice(COLOURS)
        chance = rng.random()
        if chance < 0.2:
            stage.do(w.Holds(stage.anyone(), what, colour))
        elif chance < 0.5 and containers and what not in containers:
            stage.do(w.Lies(what, rng.choice(containers), colour))
        else:
            place = rng.choice(stage.places)
            stage.do(w.Lies(what, place, colour, place == stage.here))


# Telling


def _told(stage: _Stage) -> Iterator[str]:
    """The sentences of the story. Sometimes an event is told after the one that followed it."""
    rng, plain, named = stage.rng, stage.level.plain, Named()
    waiting: Event | None = None
    for event, following in zip(stage.events, [*stage.events[1:], None]):
        if waiting is None and not plain and _may_wait(event, following) and rng.random() < 0.1:
            waiting = event
            continue
        text, named = _worded(event, False, named, rng, plain)
        yield text
        if waiting is not None:
            text, named = _worded(waiting, True, named, rng, plain)
            yield text
            waiting = None


def _may_wait(event: Event, following: Event | None) -> bool:
    return type(event) in BEFORE and isinstance(following, (w.Goes, w.Takes, w.PutsIn, w.PutsDown))


def _worded(event: Event, before: bool, named: Named, rng: random.Random, plain: bool) -> tuple[str, Named]:
    if isinstance(event, w.Meets) and event.place != named.place:
        event = replace(event, place="")
    fitting = [p for p in patterns()[type(event), before] if before or (_complete(p, event) and _clear(p, event, named))]
    pattern = fitting[0] if plain and rng.random() < 0.7 else rng.choice(fitting)
    return fill(pattern, event, named, plain or rng.random() < 0.5)


def _complete(pattern: Pattern, event: Event) -> bool:
    """Whether the pattern mentions a manner of going, a trade, a place or company exactly if the event has one."""
    return pattern.too == getattr(event, "too", False) and all(
        ("{" + name in pattern.text) == bool(getattr(event, name)) for name in ("how", "trade", "place") if hasattr(event, name)
    )


def _clear(pattern: Pattern, event: Any, named: Named) -> bool:
    """Whether "there", if the pattern has it, means the place of the event, which must be the place that was named last."""
    return ("place", "there") not in pattern.slots or event.place == named.place


def story(level: Level | int, rng: random.Random) -> str:
    """A story of this level with its questions: a line of prose, then a line for each question and its answer.
    ValueError for a number that is not a level, and for a `Level` with fewer than two people or places, without a thing, with more than there are
    words for, or with more than 100 plots or questions; TypeError for anything else.

    >>> print(story(0, random.Random(6)), end="")
    Ada and Astrid lived around the forest, the sea and the valley. Ada was in the forest. In the valley was Astrid. In the valley lay a nut, too. In the forest lay a quill. The nut was in the valley. Ada was in the forest then. Ada went to the valley. Ada took the nut in the valley. Astrid was in the valley then, too. Meanwhile Ada was in the valley, too. The nut was given to Astrid by Ada.
    Who was with Ada? Ada was in the valley, Astrid in the valley, too: Astrid.
    Where was the quill? In the forest.
    Who had the nut? Astrid.
    """
    expects(is_whole(level) or isinstance(level, Level), "level", type(level).__name__, "a number or a Level", TypeError)
    expects_kind("rng", rng, random.Random, "a random.Random")
    if not isinstance(level, Level):
        expects(0 <= level < len(LEVELS), "level", level, f"from 0 to {len(LEVELS) - 1}")
        level = LEVELS[level]
    for name, (low, high) in _RANGES.items():
        got = getattr(level, name)
        expects(isinstance(got, int) and low <= got <= high, f"level.{name}", got, f"a whole number from {low} to {high}")
    stage = _Stage(level, rng)
    _beginning(stage)
    plots = rng.choices(_PLOTS[:7] if level.plain else _PLOTS, _CHANCES[:7] if level.plain else _CHANCES, k=level.plots)
    for plot in plots:
        stage.begin_plot()
        plot(stage)
    prose = " ".join(_told(stage))
    return "\n".join([prose, *_asked(stage)]) + "\n"


def _asked(stage: _Stage) -> list[str]:
    """Random questions of different kinds, each with its answer."""
    found: dict[tuple[str, bool], list[str]] = {}
    for kind, names in askable(stage.world):
        question = QUESTIONS[kind].text.format(*names)
        line = f"{question} {answer(question, stage.world)}"
        found.setdefault((kind, line.endswith(("Nothing.", "Nobody.", "nobody."))), []).append(line)
    lines: dict[str, None] = {}
    wanted = min(stage.level.questions, sum(map(len, found.values())))
    while len(lines) < wanted:
        kind, none = stage.rng.choice(list(found))
        if not none or stage.rng.random() < 0.3:
            lines[stage.rng.choice(found[kind, none])] = None
    return list(lines)


def stories(count: int, seed: int = 0, levels: Sequence[Level | int] = tuple(range(len(LEVELS)))) -> list[str]:
    """Stories of these levels, mixed; the same seed gives the same. ValueError for a count below 1, and for no levels;
    TypeError for a seed that is not a whole number, and for a single level outside a list."""
    expects_positive(count=count)
    expects_whole(seed=seed)
    expects_several("levels", levels, "a list of levels", Sequence)
    expects(not isinstance(levels, Level), "levels", "one Level", "a list of levels", TypeError)  # a Level is itself a tuple of numbers
    expects(len(levels) > 0, "levels", levels, "at least one")
    rng = random.Random(int(seed))
    return [story(rng.choice(levels), rng) for _ in range(count)]
