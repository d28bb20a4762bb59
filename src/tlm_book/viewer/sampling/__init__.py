"""The picture of sampling: view.py has what Python gives it, view.js what it does on the page, view.css how it looks."""

from tlm_book.viewer.sampling.view import Sampling, sampling

__all__ = ["Sampling", "sampling"]
