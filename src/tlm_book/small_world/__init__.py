"""A small world in which stories happen, told in a small English that a program can check. Written by hand.

    from tlm_book import small_world
    text = small_world.story(3, random.Random(0))
    small_world.proofread(text).consistent     # True
"""

from tlm_book.small_world.faults import Fault, Reading, proofread, sentences
from tlm_book.small_world.questions import answer, askable
from tlm_book.small_world.telling import LEVELS, Level, stories, story
from tlm_book.small_world.trained import model
from tlm_book.small_world.world import Contradiction, World

__all__ = ["LEVELS", "Contradiction", "Fault", "Level", "Reading", "World", "answer", "askable", "proofread", "model", "sentences", "stories", "story"]
