"""Text from outside, made safe for HTML and SVG."""

from __future__ import annotations

from html import escape

__all__ = ["escape_text"]


def escape_text(text: str) -> str:
    """Escape text for an element or attribute; half characters become ``?``."""
    return escape(text.encode("utf-8", "replace").decode())
