"""Numbers for Prometheus: by route and status alone, nothing of clients or their texts."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds."""


class Metrics:
    """Counts of requests and histograms of their time."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = {}
        self.seconds: dict[str, list[float]] = {}
        """For each route: how many took at most each of `BUCKETS`, then all of them, then their sum."""

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[route, status] = self.requests.get((route, status), 0) + 1
        row = self.seconds.setdefault(route, [0.0] * (len(BUCKETS) + 2))
        if (place := bisect.bisect_left(BUCKETS, seconds)) < len(BUCKETS):
            row[place] += 1
        row[-2] += 1
        row[-1] += seconds

    def lines(self) -> Iterable[str]:
        """In the text format of Prometheus."""
        yield "# HELP undivided_requests_total Requests by route and status."
        yield "# TYPE undivided_requests_total counter"
        for (route, status), count in sorted(self.requests.items()):
            yield f'undivided_requests_total{{route="{route}",status="{status}"}} {count}'
        yield "# HELP undivided_request_seconds Seconds from a request to its answer."
        yield "# TYPE undivided_request_seconds histogram"
        for route, row in sorted(self.seconds.items()):
            total = 0.0
            for bound, seen in zip(BUCKETS, row, strict=False):
                total += seen
                yield f'undivided_request_seconds_bucket{{route="{route}",le="{bound:g}"}} {total:g}'
            yield f'undivided_request_seconds_bucket{{route="{route}",le="+Inf"}} {row[-2]:g}'
            yield f'undivided_request_seconds_count{{route="{route}"}} {row[-2]:g}'
            yield f'undivided_request_seconds_sum{{route="{route}"}} {row[-1]:.6f}'


def gauge(name: str, help: str, values: Iterable[tuple[str, float]], kind: str = "gauge") -> Iterable[str]:
    """One metric of which each value has its labels."""
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values:
        yield f"{name}{labels} {value:g}"
