"""The picture of clock hands: view.py has what Python gives it, view.js what it does on the page, view.css how it looks."""

from tlm_book.viewer.clock_hands.view import ClockHands, clock_hands

__all__ = ["ClockHands", "clock_hands"]
