"""Citations of Chat Completions lookalikes as Anthropic's, each URL and place once.

A `web_search_result_location` has an encrypted index that only Anthropic can make, so they are `search_result_location`s.
"""

from collections.abc import Iterator
from typing import Any

from gateway.json_text import Json
from gateway.kept import EACH

# Providers repeat the whole list in every chunk; an answer with more sources than this has no readers.
LIMIT = 1000
PLACE_COST = 4 * EACH  # bytes beside the URL's

Place = tuple[str, Any, Any]


class Citations:
    """`news` returns the citations not seen before; at most `LIMIT` in one answer, `dropped` counts the rest."""

    def __init__(self) -> None:
        self.dropped = 0
        self.size = 0  # of what is kept: places and their URLs
        self._places: set[Place] = set()
        self._urls: set[str] = set()

    def news(self, chunk: Json, delta: Json) -> list[Json]:
        found: list[Json] = []
        for note in _list(delta.get("annotations")):
            if isinstance(note, dict) and note.get("type") in ("url_citation", None):
                inner = note.get("url_citation")
                self._add(found, inner if isinstance(inner, dict) else note, placed=True)
        for source in (*_list(chunk.get("citations")), *_list(delta.get("citations"))):
            url = source if isinstance(source, str) else _text(source, "url", "uri", "link") if isinstance(source, dict) else None
            if url and url not in self._urls:
                more = source if isinstance(source, dict) else next(_results(chunk, url), {})
                self._add(found, {**more, "url": url}, placed=False)
        return found

    def _add(self, found: list[Json], said: Json, *, placed: bool) -> None:
        url = _text(said, "url", "uri")
        if not url:
            return
        start, end = (_place(said.get("start_index")), _place(said.get("end_index"))) if placed else (None, None)
        if (url, start, end) in self._places:
            return
        if len(self._places) >= LIMIT:
            self.dropped += 1
            return
        citation: Json = {
            "type": "search_result_location",
            "source": url,
            "title": _text(said, "title") or None,
            "cited_text": _text(said, "content", "cited_text", "snippet", "text") or "",
            "search_result_index": len(self._places),
            "start_block_index": 0,
            "end_block_index": 0,
        }
        if start is not None and end is not None:
            citation |= {"start_index": start, "end_index": end}
        self.size += len(url) + PLACE_COST
        self._places.add((url, start, end))
        self._urls.add(url)
        found.append(citation)


def _results(chunk: Json, url: str) -> Iterator[Json]:
    """What the provider's search found under the URL, beside a bare list of URLs."""
    for result in _list(chunk.get("search_results")):
        if isinstance(result, dict) and result.get("url") == url:
            yield result


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(said: Json, *names: str) -> str | None:
    return next((said[name] for name in names if isinstance(said.get(name), str) and said[name]), None)


def _place(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None
