"""Pictures: one style for the drawn ones, and interactive ones that work on a page without a kernel.

    from tlm_book.viewer import show, attention, use_style
    show(model, tokenizer, "any text").save("heads.html")

Each has a folder: view.py, view.js and view.css. Written by hand; imports neither torch nor a chapter.
"""

from tlm_book.viewer.attention import attention, show
from tlm_book.viewer.clock_hands import clock_hands
from tlm_book.viewer.descent import descent
from tlm_book.viewer.epsilon_spread import epsilon_spread
from tlm_book.viewer.merge_stepper import merge_stepper
from tlm_book.viewer.playground import playground
from tlm_book.viewer.questions import questions
from tlm_book.viewer.sampling import sampling
from tlm_book.viewer.softmax_temperature import softmax_temperature
from tlm_book.viewer.style import use_style

__all__ = [
    "attention", "clock_hands", "descent", "epsilon_spread", "merge_stepper", "playground", "questions", "sampling", "show", "softmax_temperature", "use_style",
]  # fmt: skip
