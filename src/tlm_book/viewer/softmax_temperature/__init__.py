"""The picture of softmax temperature: view.py has what Python gives it, view.js what it does on the page, view.css how it looks."""

from tlm_book.viewer.softmax_temperature.view import (
    SoftmaxTemperature,
    softmax_temperature,
)

__all__ = ["SoftmaxTemperature", "softmax_temperature"]
