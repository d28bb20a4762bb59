"""A training step on a GPU as one recording. A small model's step consists of a thousand kernels of a few microseconds each, and starting them
one by one takes longer than running them; a recording starts them together. Written by hand.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from tlm_book.loss import weighted_loss

__all__ = ["RecordedStep"]


class RecordedStep:
    """The step of `train_step` with a weight for each token, for batches of one shape: the gradient of −Σ w y / Σ w, clipped to length `clip`, and
    the optimizer's update.

    On a GPU the constructor records the step as a CUDA graph, without changing the weights, and every call replays it. A recording reads the
    learning rates from the same memory each time: they must be tensors on the GPU that are filled, not replaced (`muon_for` makes them so).
    On other devices every call computes the step anew. The step never waits for the device in order to check a number: unlike `train_step`,
    it updates the weights even if the loss or a gradient is not finite.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, shape: tuple[int, int], clip: float = 1.0) -> None:
        self.model, self.optimizer, self.clip = model, optimizer, clip
        self.parameters = dict(model.named_parameters())
        device = next(iter(self.parameters.values())).device
        self.read, self.tokens = (torch.zeros(shape, dtype=torch.long, device=device) for _ in range(2))
        self.weights = torch.ones(shape, device=device)
        self.graph = self._record() if device.type == "cuda" else None

    def __call__(self, read: Int[Tensor, "batch n"], tokens: Int[Tensor, "batch n"], weights: Float[Tensor, "batch n"]) -> Float[Tensor, ""]:
        """Take a step; returns the loss before the update, on the device: only reading the number waits for it."""
        for mine, given in ((self.read, read), (self.tokens, tokens), (self.weights, weights)):
            mine.copy_(given)
        if self.graph is None:
            return self._step()
        self.graph.replay()
        return self.loss.clone()

    def _step(self) -> Float[Tensor, ""]:
        leaves = {name: w.detach().requires_grad_() for name, w in self.parameters.items()}  # made for this step alone, as a recording requires
        loss = weighted_loss(functional_call(self.model, leaves, (self.read,)), self.tokens, self.weights)
        for w, gradient in zip(self.parameters.values(), torch.autograd.grad(loss, list(leaves.values()))):
            w.grad = gradient
        nn.utils.clip_grad_norm_(self.parameters.values(), self.clip)
        self.optimizer.step()
        return loss.detach()

    def _record(self) -> torch.cuda.CUDAGraph:
        with torch.cuda.device(self.tokens.device), _at_rest(self.optimizer, list(self.parameters.values())):
            stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._step()  # so that what happens only the first time is not recorded
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self.loss = self._step()
            torch.cuda.synchronize()
        return graph


class _at_rest:
    """A context in which the optimizer may step: on leaving, the weights and the optimizer's state are as they were."""

    def __init__(self, optimizer: torch.optim.Optimizer, weights: list[nn.Parameter]) -> None:
        self.parts: list[Any] = getattr(optimizer, "parts", [optimizer])
        self.weights = weights

    def _remembered(self) -> list[Tensor]:
        return [t for part in self.parts for state in part.state.values() for t in state.values() if isinstance(t, Tensor)]

    def __enter__(self) -> None:
        self.kept = [(t, t.detach().clone()) for t in [*self.weights, *self._remembered()]]

    @torch.no_grad()
    def __exit__(self, *error: object) -> None:
        known = {id(t) for t, _ in self.kept}
        for t, was in self.kept:
            t.copy_(was)
        for t in self._remembered():
            if id(t) not in known:
                t.zero_()  # state that the first step has made; every optimizer here begins with zeros
