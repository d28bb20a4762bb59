"""The state of the small world: who and what is where. Written by hand.

What can happen in it is defined in `events`. An event says what it requires and what it changes; if a requirement is not met, it raises
`Contradiction` with the reason in words.

    world = World()
    for event in (Stays("Anna", "kitchen"), Lies("key", "kitchen"), Takes("Anna", "key"), Goes("Anna", "mill")):
        world = world.after(event)
    world.place_of("key")    # "mill"
"""

import copy
from dataclasses import dataclass, field

from tlm_book.small_world.words import sort_of

__all__ = ["Contradiction", "Event", "World"]


class Contradiction(Exception):
    """Raised if what is told cannot be so."""


@dataclass
class World:
    """The state of the small world.

    where:   a person's place; a container's place or bearer; a thing's place, bearer or container.
    path:    the places in which a person has been, in order; the last is the present one.
    """

    where: dict[str, str] = field(default_factory=dict)
    path: dict[str, list[str]] = field(default_factory=dict)
    colour: dict[str, str] = field(default_factory=dict)
    trade: dict[str, str] = field(default_factory=dict)
    mood: dict[str, str] = field(default_factory=dict)
    wish: dict[str, str] = field(default_factory=dict)
    giver: dict[tuple[str, str], str] = field(default_factory=dict)  # (thing, receiver): who gave it last
    looked_into: dict[str, bool] = field(default_factory=dict)  # containers whose contents have been told
    weather: str = ""
    time: str = ""
    last: "Event | None" = None

    def after(self, event: "Event") -> "World":
        """The world after the event; this one stays as it is. Contradiction if the event cannot happen."""
        world = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict):
                setattr(world, name, dict(value))
        world.path = {who: list(places) for who, places in self.path.items()}
        event.happen(world)
        world.last = event
        return world

    def all(self, sort: str) -> list[str]:
        """All names of this sort that have been introduced, in the order of introduction."""
        return [name for name in self.where if sort_of(name) == sort]

    def way_to(self, name: str) -> list[str]:
        """Where the named one is: its container or bearer, the container or bearer of that, and so on; the last is the place."""
        way = [self.where[name]]
        while sort_of(way[-1]) != "place":
            way.append(self.where[way[-1]])
        return way

    def place_of(self, name: str) -> str:
        """The place in which the named one is, itself or with its container or bearer."""
        return self.way_to(name)[-1]

    def inside(self, where: str) -> list[str]:
        """What lies directly in a container or a place, or is in a person's hands."""
        return [name for name in self.where if self.where[name] == where and sort_of(name) in ("thing", "container")]

    def alone(self, name: str) -> bool:
        """Whether nobody and nothing else is where the named one is."""
        return not any(where == self.where[name] for other, where in self.where.items() if other != name)

    def at(self, place: str) -> list[str]:
        """The people in a place."""
        return [who for who in self.all("person") if self.where[who] == place]


class Event:
    """Something that happens, or is said to be the case."""

    def happen(self, world: World) -> None:
        """Change the world; Contradiction if this cannot happen. The world may then be half changed, so use `World.after`."""
        raise NotImplementedError
