"""A story, a question and a model's answer, with the words at which the head that found the answer looked."""

from tlm_book.viewer.questions.view import Questions, questions

__all__ = ["Questions", "questions"]
