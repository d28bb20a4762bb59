"""The look of the book's drawn pictures: one palette, one colour scale, one set of matplotlib settings.

Six colours that can be told apart even by readers who lack one kind of cone (after Okabe and Ito, and
Tol), and a scale from near white to navy whose steps look equally large. Written by hand.
"""

import sys

from tlm_book.libraries import library

__all__ = ["BLUE", "CYCLE", "GREEN", "GREY", "ORANGE", "PURPLE", "RED", "SEQUENTIAL", "SIGNED", "use_style"]

BLUE = "#0072b2"
ORANGE = "#e69f00"
GREEN = "#009e73"
RED = "#d55e00"
PURPLE = "#772266"
GREY = "#6b7280"

CYCLE = (BLUE, RED, GREEN, PURPLE, ORANGE, GREY)
"""The colours of successive curves."""

SEQUENTIAL = "tlm_blues"
"""Name of the colour map for numbers from 0 (light) to large (dark); `use_style` registers it with matplotlib."""

# Nine colours at equal distances in CIELAB; the lightness falls from 98 to 17. The interactive picture has the same list.
SEQUENTIAL_STOPS = (
    "#f6fbfd", "#c4e7f2", "#8ed0e4", "#5bb4d7", "#3898cb", "#2a7cbb", "#295fa3", "#263f80", "#1d2657",
)  # fmt: skip

SIGNED = "tlm_signed"
"""Name of the colour map for numbers of both signs (orange-red below 0, blue above); `use_style` registers it, too."""

SIGNED_STOPS = ("#b34700", "#f0b98f", "#fbfbf9", "#8fc3e3", "#005a8f")

INK = "#1f2933"
LINE = "#d5dae1"


def use_style() -> None:
    """Give every picture drawn from now on the look of the book.

    Sets matplotlib's settings for this process (white ground, the palette `CYCLE`, DejaVu Sans at 10 points, a light
    grid, no frame at the top and right, 6.4 inches wide, 150 dots per inch, the same bytes for the same SVG), registers
    the colour maps `SEQUENTIAL` and `SIGNED`, and, inside a notebook, makes the inline pictures PNG. May be called again.
    Matplotlib draws the grid above images: say `ax.grid(False)` beside `imshow`, and `layout="constrained"` in `subplots`.

    >>> use_style()
    >>> import matplotlib
    >>> matplotlib.rcParams["figure.dpi"]
    150.0
    """
    matplotlib = library("matplotlib", "viewer")
    from cycler import cycler
    from matplotlib.colors import LinearSegmentedColormap

    for name, stops in ((SEQUENTIAL, SEQUENTIAL_STOPS), (SIGNED, SIGNED_STOPS)):
        if name not in matplotlib.colormaps:
            scale = LinearSegmentedColormap.from_list(name, stops, N=256)
            matplotlib.colormaps.register(scale)
            matplotlib.colormaps.register(scale.reversed())
    _inline_png()  # before the settings: loading the inline backend may write settings of its own
    matplotlib.rcParams.update({
        "figure.figsize": (6.4, 3.8),
        "figure.dpi": 150,
        "figure.facecolor": "white",
        "savefig.dpi": 150,
        "savefig.bbox": "tight",
        "savefig.pad_inches": 0.06,
        "savefig.facecolor": "white",
        "svg.hashsalt": "tlm_book",
        "svg.fonttype": "path",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 10,
        "mathtext.fontset": "dejavusans",
        "text.color": INK,
        "axes.prop_cycle": cycler(color=CYCLE),
        "axes.facecolor": "white",
        "axes.edgecolor": GREY,
        "axes.labelcolor": INK,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.unicode_minus": True,
        "grid.color": LINE,
        "grid.linewidth": 0.6,
        "grid.alpha": 0.7,
        "xtick.color": GREY,
        "ytick.color": GREY,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "xtick.major.width": 0.8,
        "ytick.major.width": 0.8,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
        "lines.solid_capstyle": "round",
        "patch.linewidth": 0.6,
        "image.cmap": SEQUENTIAL,
        "image.interpolation": "nearest",
    })  # fmt: skip


def _inline_png() -> None:
    """Inside IPython, ask for PNG; elsewhere (in a script or a test) do nothing."""
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        return
    try:
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:  # another front end, without the inline backend
        return
    set_matplotlib_formats("png")
