"""The picture of epsilon spread: view.py has what Python gives it, view.js what it does on the page, view.css how it looks."""

from tlm_book.viewer.epsilon_spread.view import EpsilonSpread, epsilon_spread

__all__ = ["EpsilonSpread", "epsilon_spread"]
