"""A model that answers as one types: view.py and pack.py have what Python gives the page, tokens.js and model.js how it computes there,
computer.js where it computes (in a worker), view.js what it shows.
"""

from tlm_book.viewer.playground.view import Playground, playground

__all__ = ["Playground", "playground"]
