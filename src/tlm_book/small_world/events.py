"""What can happen in the small world, or be said about it: what each event requires and what it changes. Written by hand."""

from dataclasses import dataclass

from tlm_book.small_world.words import MOODS, TIMES, WEATHER, sort_of
from tlm_book.small_world.world import Contradiction, Event, World

__all__ = [
    "Asks", "Begins", "Ends", "Feels", "Finds", "Gets", "Gives", "Goes", "GoesWith", "Holds", "IsAt", "IsIn", "Lies", "Lives", "Meets", "PutsDown", "PutsIn",
    "Stays", "Takes", "TakesOut", "Tells", "Thanks", "Turns", "Wants",
]  # fmt: skip


def _need(condition: object, why: str) -> None:
    if not condition:
        raise Contradiction(why)


def _known(world: World, *names: str) -> None:
    for name in names:
        _need(name in world.where, f"{name} has not been told of")


def _is(name: str, *sorts: str) -> None:
    _need(sort_of(name) in sorts, f"{name} is no {' or '.join(sorts)}")


def _people(world: World, *names: str) -> None:
    _known(world, *names)
    for name in names:
        _is(name, "person")


def _objects(world: World, *names: str) -> None:
    _known(world, *names)
    for name in names:
        _is(name, "thing", "container")


def _new(world: World, name: str) -> None:
    _need(name not in world.where, f"{name} has been told of")


def _together(world: World, who: str, other: str) -> None:
    _people(world, who, other)
    _need(who != other, f"{who} is one person")
    _need(world.where[who] == world.where[other], f"{who} is in another place than {other}")


def _within_reach(world: World, who: str, container: str) -> None:
    _people(world, who)
    _known(world, container)
    _need(sort_of(container) == "container", f"nothing can be in the {container}")
    _need(world.where[container] in (who, world.where[who]), f"the {container} is not where {who} is")


def _not_alone(world: World, name: str, too: bool) -> None:
    _need(not too or not world.alone(name), f"nothing else is where {name} is")


def _has(world: World, who: str, what: str) -> None:
    _people(world, who)
    _objects(world, what)
    _need(world.where[what] == who, f"{who} does not have the {what}")


# What is the case at the beginning


@dataclass(frozen=True)
class Lives(Event):
    """The people and places of a story are named."""

    people: tuple[str, ...]
    places: tuple[str, ...]

    def happen(self, world: World) -> None:
        _need(world.last is None or (isinstance(world.last, Begins) and world.last.already), "the story has begun")
        for names, sort in ((self.people, "person"), (self.places, "place")):
            _need(len(set(names)) == len(names), "a name comes twice")
            for name in names:
                _is(name, sort)


@dataclass(frozen=True)
class Stays(Event):
    """Somebody new is in a place; `too`: somebody or something else is there."""

    who: str
    place: str
    trade: str = ""
    too: bool = False

    def happen(self, world: World) -> None:
        _new(world, self.who)
        _is(self.who, "person")
        _is(self.place, "place")
        world.where[self.who] = self.place
        _not_alone(world, self.who, self.too)
        world.path[self.who] = [self.place]
        if self.trade:
            world.trade[self.who] = self.trade


@dataclass(frozen=True)
class Lies(Event):
    """A new thing or container lies in a place or, if it is a thing, in a container; `too`: somebody or something else is there."""

    what: str
    where: str
    colour: str = ""
    too: bool = False

    def happen(self, world: World) -> None:
        _new(world, self.what)
        _is(self.what, "thing", "container")
        _need(sort_of(self.where) in ("place", "container"), f"{self.where} is neither a place nor a container")
        if sort_of(self.where) == "container":
            _known(world, self.where)
            _need(sort_of(self.what) == "thing", "containers are not put into containers")
            _need(not world.looked_into.get(self.where), f"it has been told what is in the {self.where}")
        world.where[self.what] = self.where
        _not_alone(world, self.what, self.too)
        if self.colour:
            world.colour[self.what] = self.colour


@dataclass(frozen=True)
class Holds(Event):
    """Somebody holds a new thing or container."""

    who: str
    what: str
    colour: str = ""

    def happen(self, world: World) -> None:
        _people(world, self.who)
        _new(world, self.what)
        _is(self.what, "thing", "container")
        world.where[self.what] = self.who
        if self.colour:
            world.colour[self.what] = self.colour


# What happens


@dataclass(frozen=True)
class Goes(Event):
    """Somebody goes to another place; what they hold goes with them."""

    who: str
    place: str
    how: str = ""

    def happen(self, world: World) -> None:
        _people(world, self.who)
        _is(self.place, "place")
        _need(world.where[self.who] != self.place, f"{self.who} is there already")
        world.where[self.who] = self.place
        world.path[self.who].append(self.place)


@dataclass(frozen=True)
class GoesWith(Event):
    """Two people who are together go to another place."""

    who: str
    other: str
    place: str

    def happen(self, world: World) -> None:
        _together(world, self.who, self.other)
        Goes(self.who, self.place).happen(world)
        Goes(self.other, self.place).happen(world)


@dataclass(frozen=True)
class Meets(Event):
    """Two people are in the same place, which may be named."""

    who: str
    other: str
    place: str = ""

    def happen(self, world: World) -> None:
        _together(world, self.who, self.other)
        _need(self.place in ("", world.where[self.who]), f"{self.who} is elsewhere")


@dataclass(frozen=True)
class Takes(Event):
    """Somebody takes what lies openly in their place, which may be named."""

    who: str
    what: str
    place: str = ""

    def happen(self, world: World) -> None:
        _people(world, self.who)
        _objects(world, self.what)
        _need(world.where[self.what] == world.where[self.who], f"the {self.what} does not lie where {self.who} is")
        _need(self.place in ("", world.where[self.who]), f"{self.who} is elsewhere")
        world.where[self.what] = self.who


@dataclass(frozen=True)
class TakesOut(Event):
    """Somebody takes a thing out of a container that stands in their place or that they hold."""

    who: str
    what: str
    container: str

    def happen(self, world: World) -> None:
        _within_reach(world, self.who, self.container)
        _objects(world, self.what)
        _need(world.where[self.what] == self.container, f"the {self.what} is not in the {self.container}")
        world.where[self.what] = self.who


@dataclass(frozen=True)
class PutsIn(Event):
    """Somebody puts a thing that they have into a container that stands in their place or that they hold."""

    who: str
    what: str
    container: str

    def happen(self, world: World) -> None:
        _has(world, self.who, self.what)
        _need(sort_of(self.what) == "thing", "containers are not put into containers")
        _within_reach(world, self.who, self.container)
        world.where[self.what] = self.container


@dataclass(frozen=True)
class PutsDown(Event):
    """Somebody leaves what they have in the place where they are; the place may be named."""

    who: str
    what: str
    place: str = ""

    def happen(self, world: World) -> None:
        _has(world, self.who, self.what)
        _need(self.place in ("", world.where[self.who]), f"{self.who} is elsewhere")
        world.where[self.what] = world.where[self.who]


@dataclass(frozen=True)
class Gives(Event):
    """Somebody gives what they have to somebody in the same place."""

    who: str
    what: str
    other: str

    def happen(self, world: World) -> None:
        _has(world, self.who, self.what)
        _together(world, self.who, self.other)
        world.where[self.what] = self.other
        world.giver[self.what, self.other] = self.who


@dataclass(frozen=True)
class Thanks(Event):
    """Somebody says thanks for what they have just been given."""

    who: str
    other: str

    def happen(self, world: World) -> None:
        gift = world.last
        _need(isinstance(gift, Gives) and (gift.who, gift.other) == (self.other, self.who), f"{self.other} has not just given {self.who} anything")


@dataclass(frozen=True)
class Finds(Event):
    """Somebody looks into a container and sees what is in it."""

    who: str
    container: str
    found: tuple[str, ...]

    def happen(self, world: World) -> None:
        _within_reach(world, self.who, self.container)
        _need(sorted(world.inside(self.container)) == sorted(self.found), f"something else is in the {self.container}")
        world.looked_into[self.container] = True


@dataclass(frozen=True)
class Asks(Event):
    """Somebody asks somebody in the same place where a thing is."""

    who: str
    other: str
    what: str

    def happen(self, world: World) -> None:
        _together(world, self.who, self.other)
        _objects(world, self.what)


@dataclass(frozen=True)
class Tells(Event):
    """Somebody who has just been asked says where the thing is: in a place, in a container, or with a person."""

    who: str
    where: str

    def happen(self, world: World) -> None:
        _people(world, self.who)
        asked = world.last
        if not isinstance(asked, Asks) or asked.other != self.who:
            raise Contradiction(f"nobody has just asked {self.who}")
        _need(world.where[asked.what] == self.where, f"the {asked.what} is elsewhere")


# What is said once more


@dataclass(frozen=True)
class IsAt(Event):
    """It is said where somebody is at that moment; `too`: somebody or something else is there."""

    who: str
    place: str
    too: bool = False

    def happen(self, world: World) -> None:
        _people(world, self.who)
        _need(world.where[self.who] == self.place, f"{self.who} is elsewhere")
        _not_alone(world, self.who, self.too)


@dataclass(frozen=True)
class IsIn(Event):
    """It is said where a thing or container is at that moment: in a place, in a container, or with a person; `too`: as in `IsAt`."""

    what: str
    where: str
    too: bool = False

    def happen(self, world: World) -> None:
        _objects(world, self.what)
        _need(world.where[self.what] == self.where, f"the {self.what} is elsewhere")
        _not_alone(world, self.what, self.too)


# What is felt and wished


@dataclass(frozen=True)
class Feels(Event):
    """Somebody is in some mood."""

    who: str
    mood: str

    def happen(self, world: World) -> None:
        _people(world, self.who)
        _need(self.mood in MOODS, f"{self.mood} is no mood")
        world.mood[self.who] = self.mood


@dataclass(frozen=True)
class Wants(Event):
    """Somebody wants a thing that they do not have."""

    who: str
    what: str

    def happen(self, world: World) -> None:
        _people(world, self.who)
        _objects(world, self.what)
        _need(world.where[self.what] != self.who, f"{self.who} has the {self.what}")
        world.wish[self.who] = self.what


@dataclass(frozen=True)
class Gets(Event):
    """Somebody has what they wanted."""

    who: str
    what: str

    def happen(self, world: World) -> None:
        _has(world, self.who, self.what)
        _need(world.wish.pop(self.who, "") == self.what, f"{self.who} did not want the {self.what}")


# The sky


@dataclass(frozen=True)
class Begins(Event):
    """Some weather begins, if there was none; or there is such weather `already`, which is said before anything else."""

    weather: str
    already: bool = False

    def happen(self, world: World) -> None:
        _need(self.weather in WEATHER, f"{self.weather} is no weather")
        _need(not self.already or world.last is None, "the story has begun")
        _need(not world.weather, f"it is {world.weather}")
        _need((self.weather, world.time) != ("sunny", "night"), "it is night")
        world.weather = self.weather


@dataclass(frozen=True)
class Ends(Event):
    """The weather ends."""

    weather: str

    def happen(self, world: World) -> None:
        _need(world.weather == self.weather, f"it is not {self.weather}")
        world.weather = ""


@dataclass(frozen=True)
class Turns(Event):
    """A later time of the same day comes; after the night comes the next morning."""

    time: str

    def happen(self, world: World) -> None:
        _need(self.time in TIMES, f"{self.time} is no time of day")
        later = TIMES.index(self.time) > TIMES.index(world.time) if world.time else True
        _need(later or (world.time == "night" and self.time == "morning"), f"it is {world.time} already")
        _need((world.weather, self.time) != ("sunny", "night"), "the sun is shining")
        world.time = self.time
