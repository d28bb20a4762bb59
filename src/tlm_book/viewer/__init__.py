"""Pictures: one style for drawn pictures, and interactive ones that work on a page without a kernel.

    from tlm_book.viewer import show, attention, use_style
    show(model, tokenizer, "any text").save("heads.html")

Each interactive picture has a folder with view.py, view.js and view.css. The style does not need anywidget. Written by hand; imports neither
torch nor a chapter.
"""

from importlib import import_module

from tlm_book.libraries import library
from tlm_book.viewer.style import use_style

__all__ = [
    "attention", "clock_hands", "descent", "epsilon_spread", "merge_stepper", "playground", "questions", "sampling", "show", "softmax_temperature", "use_style",
]  # fmt: skip

try:
    from tlm_book.viewer.attention import attention, show
    from tlm_book.viewer.clock_hands import clock_hands
    from tlm_book.viewer.descent import descent
    from tlm_book.viewer.epsilon_spread import epsilon_spread
    from tlm_book.viewer.merge_stepper import merge_stepper
    from tlm_book.viewer.playground import playground
    from tlm_book.viewer.questions import questions
    from tlm_book.viewer.sampling import sampling
    from tlm_book.viewer.softmax_temperature import softmax_temperature
except ImportError:  # mostly since anywidget is missing: the parts that draw with matplotlib alone still work

    def __getattr__(name: str) -> object:
        """Import a picture when it is asked for: the import says what is missing, or finds what has been installed meanwhile."""
        if name not in __all__:
            raise AttributeError(f"module 'tlm_book.viewer' has no attribute {name!r}")
        library("anywidget", "viewer")
        found = getattr(import_module(f"tlm_book.viewer.{'attention' if name == 'show' else name}"), name)
        globals()[name] = found  # in place of the subpackage of that name
        return found
