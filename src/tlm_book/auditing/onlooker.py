"""Looking at every operation that torch carries out."""

import sys
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Onlooker(TorchDispatchMode):
    """A context in which `see` carries out each operation. torch.compile does not compile `see`, even if the model is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.carry_out: Any = self.see

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False, since True would make torch import its compiler, which takes seconds; if it has been imported, `__enter__` tells it."""
        return False

    def __enter__(self) -> Any:
        compiler = sys.modules.get("torch._dynamo")
        self.carry_out = self.see if compiler is None else compiler.disable(self.see)
        super().__enter__()
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.carry_out(func, args, kwargs or {})

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of the operation."""
        return func(*args, **kwargs)
