"""The graders of the book's exercises. Written by hand, one module for each chapter.

A grader holds the specification, random inputs and typical errors, but not the solution:
it runs an answer, compares the results, and says what is wrong with it.
"""

import difflib
import functools
import importlib
from pathlib import Path
from typing import Any

from tlm_book.checks import expects, expects_kind, refuse
from tlm_book.exercises.grading import Exercise, Grade, WrongAnswer

__all__ = ["Grade", "check", "chapters", "exercises"]


def chapters() -> list[str]:
    """The chapters that have graded exercises."""
    return list(_chapters())


@functools.cache
def _chapters() -> tuple[str, ...]:
    files = Path(__file__).parent.glob("*.py")
    return tuple(sorted(file.stem for file in files if file.stem not in ("__init__", "grading")))


def _near(name: str) -> list[str]:
    """The chapters with names similar to this one, or all chapters if there is none."""
    return difflib.get_close_matches(name, _chapters(), n=3, cutoff=0.3) or chapters()


def exercises(chapter: str) -> dict[str, Exercise]:
    """The exercises of one chapter by their names, such as "attention-3".

    Errors: ValueError for a chapter without exercises, TypeError for a name that is not a text.

    >>> list(exercises("attention"))[:2]
    ['attention-1', 'attention-2']
    """
    expects_kind("chapter", chapter, str, "the name of a chapter")
    if chapter not in _chapters():
        refuse("chapter", repr(chapter), "one with exercises, such as " + ", ".join(_near(chapter)))
    graders: list[Exercise] = importlib.import_module(f"tlm_book.exercises.{chapter}").EXERCISES
    return {f"{chapter}-{number}": exercise for number, exercise in enumerate(graders, start=1)}


def check(exercise: str, answer: Any) -> Grade:
    """Grade an answer to an exercise of the book: say what is wrong with it, but not how to do it right.

    `exercise` is the chapter's name and the number of the exercise, such as "attention-3".
    `answer` is what the exercise asks for: a function, a number, a set, an array, a counterexample.
    The result is true when the answer is right, and says what is wrong otherwise. An answer that raises,
    runs too long or changes its input is wrong; no exception of its own reaches the caller.
    Errors: ValueError for an exercise that the book does not have, TypeError for a name that is not a text.

    >>> check("attention-1", lambda q, k: 0.5)
    attention-1: not right yet.
    Right for 0 of 6 inputs. For q of shape (2, 3), k of shape (2, 3): it is not the right number.
    Wanted: a function `weight(q, k) -> float`: the weight that row 1 gives to itself, for queries q and keys k of shape (2, d)
    """
    expects(isinstance(exercise, str), "exercise", repr(exercise), "a chapter and a number, such as 'attention-3'", TypeError)
    chapter, _, number = exercise.rpartition("-")
    chapter = chapter.replace("-", "_")
    if chapter not in _chapters():
        refuse("exercise", repr(exercise), "a chapter and a number, such as " + ", ".join(f"{name}-1" for name in _near(chapter or exercise)))
    known = exercises(chapter)
    name = f"{chapter}-{number}"
    expects(name in known, "exercise", repr(exercise), f"one of {', '.join(known)}")
    try:
        hint = known[name].judge(answer)
    except WrongAnswer as fault:
        hint = str(fault)
    except (Exception, SystemExit, GeneratorExit) as error:  # an object that cannot be inspected, since its ==, its length or its numbers raise
        hint = f"The answer cannot be compared with what is wanted: that raises {type(error).__name__}."
    return Grade(name, hint, known[name].wants)
