"""Pictures: one style for the drawn ones, and one interactive picture of attention.

    from tlm_book.viewer import attention, use_style

Written by hand, like `attention.js` beside it. Imports neither torch nor a chapter.
"""

from tlm_book.viewer.attention import attention
from tlm_book.viewer.style import use_style

__all__ = ["attention", "use_style"]
