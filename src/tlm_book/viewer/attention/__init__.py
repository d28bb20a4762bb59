"""The picture of attention weights: view.py has what Python gives it, view.js what it does on the page, view.css how it looks."""

from tlm_book.viewer.attention.model import show
from tlm_book.viewer.attention.view import View, attention

__all__ = ["View", "attention", "show"]
