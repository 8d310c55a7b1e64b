"""Shapes and texts -> an SVG file, on a white card, so that it is readable on light and dark pages."""

from __future__ import annotations

from html import escape

INK = "#24292f"
GRAY = "#8a939c"
PALE = "#e9edf1"
BLUE = "#2a6fdb"
ORANGE = "#e07b00"
COLOURS = ("#2a6fdb", "#e07b00", "#2e9e5b", "#a44fc1", "#c9374a", "#1a9ba8", "#8a6d3b", "#5b6470")
_FONT = "font-family='system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif'"


class Drawing:
    """Collects shapes; `render` gives the file's text."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width = width
        self.height = height
        self._title = title
        self._shapes: list[str] = []

    def rectangle(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "none",
        stroke: str = "none",
        radius: float = 4,
        line: float = 1.5,
    ) -> None:
        self._shapes.append(
            f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='{radius:g}' "
            f"fill='{fill}' stroke='{stroke}' stroke-width='{line:g}'/>"
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 14,
        anchor: str = "start",
        fill: str = INK,
        bold: bool = False,
    ) -> None:
        weight = " font-weight='600'" if bold else ""
        self._shapes.append(
            f"<text x='{x:g}' y='{y:g}' font-size='{size:g}' text-anchor='{anchor}' "
            f"fill='{fill}'{weight}>{escape(words)}</text>"
        )

    def arrow(self, x0: float, y0: float, x1: float, y1: float, *, colour: str = GRAY) -> None:
        self._shapes.append(
            f"<line x1='{x0:g}' y1='{y0:g}' x2='{x1:g}' y2='{y1:g}' stroke='{colour}' "
            "stroke-width='2' marker-end='url(#head)'/>"
        )

    def render(self) -> str:
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width} {self.height}' "
            f"width='{self.width}' height='{self.height}' role='img' {_FONT}>"
        )
        marker = (
            "<defs><marker id='head' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' "
            f"markerHeight='7' orient='auto'><path d='M0 0L10 5L0 10z' fill='{GRAY}'/>"
            "</marker></defs>"
        )
        card = f"<rect width='{self.width}' height='{self.height}' rx='10' fill='#ffffff'/>"
        title = f"<title>{escape(self._title)}</title>"
        return "\n".join([head, title, marker, card, *self._shapes, "</svg>", ""])
