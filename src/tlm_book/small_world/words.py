"""The words of the small world: who lives in it, where they go, what they carry. Written by hand."""

__all__ = ["COLOURS", "CONTAINERS", "MOODS", "PEOPLE", "PLACES", "THINGS", "TIMES", "TRADES", "WAYS", "WEATHER", "article", "said", "sort_of", "where_it_is"]

_WOMEN = """
Ada Agnes Alma Anna Astrid Bella Carla Clara Dora Edith Ella Emma Eva Flora Freya Grace Greta Hanna Helga Ida Ines Ingrid Irma Jana
Julia Karin Kate Lea Lena Lisa Lotte Lucy Marta Mary Mia Mina Nell Nina Nora Olga Paula Rita Rosa Ruth Sara Sofia Stella Tilda Vera Wilma""".split()
_MEN = """
Adam Albert Anton Arthur Ben Bruno Carl Conrad David Edgar Egon Emil Erik Felix Finn Frank Fred Georg Gus Hans Henry Hugo Igor Ivan
Jack Jakob Jonas Karl Kurt Lars Leo Ludwig Lukas Magnus Martin Max Milo Noah Olaf Oscar Otto Paul Peter Ralf Robert Simon Theo Tom Viktor Walter""".split()
PEOPLE = dict.fromkeys(_WOMEN, "she") | dict.fromkeys(_MEN, "he")

PLACES = {
    place: preposition
    for preposition, places in {
        "in": """attic barn bedroom cabin castle cave cellar chapel church courtyard forest forge garage garden hall hut inn kitchen library
                 meadow museum office orchard park parlour pantry school shed shop stable studio theatre tower valley village workshop""",
        "at": "bakery bridge crossroads dock fair farm fountain gate harbour lighthouse market mill station well",
        "on": "balcony beach hill island mountain pier roof square terrace",
        "by": "lake pond river sea spring",
    }.items()
    for place in places.split()
}

CONTAINERS = """
bag barrel basin basket bowl box bucket case casket chest crate hamper jar pot pouch purse rucksack sack satchel suitcase trunk tub""".split()

THINGS = """
acorn anchor apple apron arrow axe ball balloon banana bandage banner bead bell belt bird biscuit blanket book boot bottle bracelet
branch brick broom brooch brush button cabbage cake calendar camera candle cap card carrot chain cheese cherry chisel clock
cloak clover coat coconut coin comb compass cookie cork crayon crown cup cushion dagger diamond dice dictionary doll dress drum egg
envelope fan feather fiddle fig file flag flask flower flute fork frame frog funnel gem glove goblet grape hammer harp
hat helmet herb hook horn hourglass jacket jewel jug kettle key kite knife ladle lamp lantern leaf lemon lens letter
lock locket lute magnet map marble mask medal melon mirror mitten mug mushroom nail napkin necklace needle nest net notebook nut
oar olive onion orange pan parcel peach pear pearl pebble pen pencil penny pepper petal photo pie pillow pin pipe pistol plant plate plum
poem postcard potato puppet puzzle quilt quill rabbit radish rake rattle razor recipe ribbon ring robe rock rope rose ruby ruler saddle sandal
saw scarf scissor scroll seed shawl shell shield shirt shoe shovel skirt slipper snail sock spade sponge spoon stamp statue
stick stocking stone stool string sword tablet tambourine tassel teapot thimble thread ticket tie tile tomato tool torch towel toy tray
trumpet turnip turtle twig umbrella vase veil vest violin wallet walnut watch wheel whip whistle wig wreath wrench""".split()
THINGS.remove("dice")
THINGS.remove("scissor")
THINGS.remove("orange")  # which is a colour here

COLOURS = "black blue brown golden green grey orange pink purple red silver violet white yellow".split()

TRADES = """
actor artist baker barber butcher carpenter clerk cook dancer doctor farmer fisherman gardener goldsmith guard hunter innkeeper judge
lawyer mason miller miner nurse painter pilot pirate poet porter potter printer sailor shepherd shoemaker singer smith soldier tailor
teacher thief weaver writer""".split()

MOODS = "angry bored calm cheerful cold curious glad happy hungry lonely merry nervous proud sad sleepy thirsty tired".split()

WAYS = "alone bravely calmly carefully cheerfully eagerly gladly happily hastily lazily nervously proudly quickly quietly sadly silently slowly softly steadily swiftly".split()

TIMES = ("morning", "noon", "afternoon", "evening", "night")

# weather: the sentences that tell that it is so, that it begins, that it ends
WEATHER = {
    "raining": ("It was raining.", "It began to rain.", "The rain stopped."),
    "snowing": ("It was snowing.", "It began to snow.", "The snow stopped."),
    "windy": ("It was windy.", "A wind rose.", "The wind fell."),
    "foggy": ("It was foggy.", "Fog came up.", "The fog lifted."),
    "stormy": ("It was stormy.", "A storm broke.", "The storm passed."),
    "sunny": ("The sun was shining.", "The sun came out.", "Clouds hid the sun."),
}

_SORTS = {
    **dict.fromkeys(PEOPLE, "person"),
    **dict.fromkeys(PLACES, "place"),
    **dict.fromkeys(CONTAINERS, "container"),
    **dict.fromkeys(THINGS, "thing"),
}


def sort_of(name: str) -> str:
    """The sort of a name: "person", "place", "container" or "thing"; "" for any other word."""
    return _SORTS.get(name, "")


def where_it_is(where: str) -> str:
    """The words that say where something is: in a place, in a container or with a person.

    >>> where_it_is("lake"), where_it_is("box"), where_it_is("Anna")
    ('by the lake', 'in the box', 'with Anna')
    """
    return f"with {where}" if sort_of(where) == "person" else f"{PLACES.get(where, 'in')} the {where}"


def article(words: str) -> str:
    """The words with "a" or "an" in front.

    >>> article("old box"), article("red egg"), article("hourglass")
    ('an old box', 'a red egg', 'an hourglass')
    """
    return ("an " if words.startswith(("a", "e", "i", "o", "u", "hour")) else "a ") + words


def said(names: list[str]) -> str:
    """A list in words.

    >>> said(["the key", "the map", "the hat"])
    'the key, the map and the hat'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
