"""The picture of merge stepper: view.py has what Python gives it, view.js what it does on the page, view.css how it looks."""

from tlm_book.viewer.merge_stepper.view import MergeStepper, merge_stepper

__all__ = ["MergeStepper", "merge_stepper"]
