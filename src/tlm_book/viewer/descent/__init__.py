"""The picture of descent on a surface: view.py has what Python gives it, view.js what it does on the page, view.css how it looks."""

from tlm_book.viewer.descent.view import Descent, descent

__all__ = ["Descent", "descent"]
