"""A training step on a GPU as one recording. A small model's step consists of a thousand kernels of a few microseconds each, and starting them
one by one takes longer than running them; a recording starts them together. Written by hand.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from tlm_book.checks import expects, expects_shape
from tlm_book.collector import collector_off
from tlm_book.loss import weighted_loss
from tlm_book.onednn import quick_products, quicker_library
from tlm_book.training.config import TrainConfig
from tlm_book.training.loss_kernel import fits, loss_and_gradient
from tlm_book.training.step import train_step
from tlm_book.transformer_lm import TransformerLM

__all__ = ["RecordedStep", "StepTaker", "library_for"]

Result = TypeVar("Result")


class StepTaker:
    """Takes the steps of a run: (read, batch, settings) ↦ (loss, norm of its gradient), by `train_step`, or by a recording of it on a GPU.

    A step is recorded if the whole model is on one GPU, a batch is processed at once, nothing is recomputed, and there are no experts, whose
    rows must be counted. Where there is too little memory for a recording, steps are taken as usual. On a CPU the linear layers multiply by
    `library` (`quick_products`).
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, library: str = "linear") -> None:
        self.model, self.optimizer, self.library = model, optimizer, library
        on_gpu = all(_on_gpu(group["lr"]) for group in optimizer.param_groups)
        self.may_record = on_gpu and isinstance(model, TransformerLM) and model.config.n_experts is None
        self.recorded: RecordedStep | None = None

    def __call__(self, read: Int[Tensor, "batch n"], batch: Int[Tensor, "batch n"], config: TrainConfig) -> tuple[float, float]:
        at_once = config.grad_accum_steps == 1 and not config.activation_checkpointing
        if self.may_record and at_once:
            try:
                loss, norm = self._recording(batch.shape, config)(read, batch).tolist()
                return loss, norm
            except torch.cuda.OutOfMemoryError:
                self.recorded, self.may_record = None, False
        with quick_products(self.model, self.library):
            return train_step(self.model, self.optimizer, read, batch, config)

    def beside(self, job: Callable[[], Result]) -> Result:
        """What the job with the model returns. If it lacks the memory that a recording keeps, it is done again, and nothing is recorded any more."""
        with quick_products(self.model, self.library):
            try:
                return job()
            except torch.cuda.OutOfMemoryError:
                if self.recorded is None:
                    raise
                self.recorded, self.may_record = None, False
            return job()

    def _recording(self, shape: torch.Size, config: TrainConfig) -> "RecordedStep":
        of = lambda c: (c.clip, c.dtype, c.compile)
        if self.recorded is None or self.recorded.tokens.shape != shape or of(self.recorded.config) != of(config):
            self.recorded = None  # frees the memory of an older one
            self.recorded = RecordedStep(self.model, self.optimizer, (shape[0], shape[1]), config, weighted=False)
        return self.recorded


def library_for(config: TrainConfig, device: torch.device) -> str:
    """The library by which linear layers multiply on this device: a choice only on a CPU, and not in compiled code."""
    return quicker_library(config.products) if device.type == "cpu" and not config.compile else "linear"


def _on_gpu(rate: Any) -> bool:
    return isinstance(rate, Tensor) and rate.is_cuda


class RecordedStep:
    """`train_step` for batches of one shape, each processed at once: the gradient of the loss, clipped to length `config.clip`, and the
    optimizer's update. With `weighted`, each token has a weight.

    On a GPU the constructor records the step as a CUDA graph, without changing the weights, and every call replays it: hooks and other
    Python code in the model run only while it is recorded. A recording reads weights and learning rates from the same memory each time. The rates
    must be tensors on the GPU (ValueError otherwise), which `set_rate` fills (`optimizer_for` and `muon_for` make them so); if a weight or
    a rate has been replaced since, the step is recorded anew. What the optimizer remembers must not be replaced. On other devices
    every call computes the step anew.

    The step never waits for the device in order to check a number. If the loss or its gradient is not finite, the AdamW of `optimizer_for`
    does not move the weights; another optimizer moves them, unlike in `train_step`.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, shape: tuple[int, int], config: TrainConfig, *, weighted: bool = True
    ) -> None:
        self.model, self.optimizer, self.config = model, optimizer, config
        self.parameters = {name: w for name, w in model.named_parameters() if w.requires_grad}
        device = next(iter(self.parameters.values())).device
        self.read, self.tokens = (torch.zeros(shape, dtype=torch.long, device=device) for _ in range(2))
        self.weights = torch.ones(shape, device=device) if weighted else None
        self.graph = self._record() if device.type == "cuda" else None

    def __call__(
        self, read: Int[Tensor, "batch n"], tokens: Int[Tensor, "batch n"], weights: Float[Tensor, "batch n"] | None = None
    ) -> Float[Tensor, "2"]:
        """Take a step; returns the loss before the update and the norm of its gradient, on the device: only reading the numbers waits for it.
        ValueError for tensors of another shape, and for weights of tokens unless the step has them.
        """
        wants = "None" if self.weights is None else "a weight for each token"
        expects((weights is None) == (self.weights is None), "weights", type(weights).__name__, wants)
        for name, mine, given in (("read", self.read, read), ("tokens", self.tokens, tokens), ("weights", self.weights, weights)):
            if mine is not None and given is not None:
                expects_shape(name, given, tuple(mine.shape))
                mine.copy_(given)
        if self.graph is None:
            return self._step()
        if self._memory() != self.memory:
            self.graph = self._record()
        self.graph.replay()
        return self.found.clone()

    def _memory(self) -> list[int]:
        """Where a recording finds weights, tables and rates."""
        tensors = *self.model.parameters(), *self.model.buffers()
        return [t.data_ptr() for t in tensors] + [id(group["lr"]) for group in self.optimizer.param_groups]

    def _step(self) -> Float[Tensor, "2"]:
        c = self.config
        leaves = {name: nn.Parameter(w.detach()) for name, w in self.parameters.items()}  # for this step alone, as a recording requires
        with torch.autocast(self.read.device.type, torch.bfloat16, c.dtype == "bfloat16"):
            scores = functional_call(self.model, leaves, (self.read,))
        judge = loss_and_gradient if c.compile and fits(scores) else grad_and_value(weighted_loss)
        by_scores, loss = judge(scores.detach(), self.tokens, self.weights)
        gradients = torch.autograd.grad(scores, list(leaves.values()), by_scores)
        for w, gradient in zip(self.parameters.values(), gradients):
            w.grad = gradient
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        norm = norm * (1 + 0 * loss)  # NaN where the loss is ∞, as in `train_step`
        self._move(gradients, norm)
        return torch.stack((loss, norm))

    def _move(self, gradients: tuple[Tensor, ...], norm: Float[Tensor, ""]) -> None:
        """The optimizer's step with the gradient clipped. AdamW's kernel reads both numbers that torch's GradScaler would set: what to divide
        by, and whether to stay. So nothing waits for the device.
        """
        optimizer: Any = self.optimizer
        excess = ((norm + 1e-6) / self.config.clip).clamp(min=1)
        if not getattr(optimizer, "_step_supports_amp_scaling", False):
            torch._foreach_mul_(gradients, 1 / excess)
            optimizer.step()
            return
        optimizer.grad_scale, optimizer.found_inf = excess.float(), (~norm.isfinite()).float()
        try:
            optimizer.step()
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def _record(self) -> torch.cuda.CUDAGraph:
        for group in self.optimizer.param_groups:
            expects(_on_gpu(group["lr"]), "optimizer", f"a learning rate of {group['lr']!r}", "rates that are tensors on the GPU")
        device = self.tokens.device
        at_rest = _at_rest(self.optimizer, list(self.parameters.values()))
        # the warm-up draws random numbers, and a recording that the collector frees meanwhile would break this one
        with torch.random.fork_rng(devices=[device]), torch.cuda.device(device), at_rest, collector_off():
            stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._step()  # so that what happens only the first time is not recorded
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self.found = self._step()
            torch.cuda.synchronize()
        self.memory, self.rates = self._memory(), [group["lr"] for group in self.optimizer.param_groups]  # kept, so that no other has their identity
        return graph


@contextlib.contextmanager
def _at_rest(optimizer: torch.optim.Optimizer, weights: list[nn.Parameter]) -> Iterator[None]:
    """A context in which the optimizer may step: on leaving, the weights and the optimizer's state are as they were."""
    parts: list[Any] = getattr(optimizer, "parts", [optimizer])
    remembered = lambda: [t for part in parts for state in part.state.values() for t in state.values() if isinstance(t, Tensor)]
    kept = {t: t.detach().clone() for t in [*weights, *remembered()]}
    before, done = [set(part.state) for part in parts], False
    try:
        yield
        done = True
    finally:
        if weights[0].is_cuda:
            torch.cuda.synchronize()  # what a step has begun on another stream
        for part, had in zip(parts, before):
            for w in () if done else part.state.keys() - had:
                del part.state[w]  # perhaps only half of it was made
        with torch.no_grad():
            for t, was in kept.items():
                t.copy_(was)
            for t in set(remembered()) - kept.keys():
                t.zero_()  # state that the first step has made; every optimizer here begins with zeros
