"""A model that answers while one types: view.py and pack.py what Python gives the page, tokens.js and model.js how it computes there, computer.js where (in a
worker), view.js what it shows.
"""

from tlm_book.viewer.playground.view import Playground, playground

__all__ = ["Playground", "playground"]
