"""Hand in wrong answers to every exercise, typical ones and nonsense, and print as JSON what the graders say."""

import json
import math

import numpy as np

from tlm_book import exercises

NONSENSE = {
    "nothing": None, "a text": "text", "nan": math.nan, "an empty list": [], "an object": object(), "an array": np.zeros((2, 7)),
    "a tuple": (1, 2, 3), "a set": {"no such thing"}, "raises": lambda *inputs: 1 / 0, "returns nothing": lambda *inputs: None,
    "returns a text": lambda *inputs: "text", "returns nan": lambda *inputs: np.full((3, 3), np.nan), "takes nothing": lambda: 1,
}


def main() -> None:
    found: dict[str, list[tuple[str, str, str]]] = {}
    for chapter in exercises.chapters():
        for name, exercise in exercises.exercises(chapter).items():
            typical = [(f"typical {k}", hint, answer) for k, (hint, answer) in enumerate(exercise.wrong)]
            nonsense = [(what, "", answer) for what, answer in NONSENSE.items()]
            found[name] = [(what, hint, exercises.check(name, answer).hint) for what, hint, answer in typical + nonsense]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
