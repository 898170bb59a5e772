"""Shows the result of a validation: a summary for the terminal and one self-contained HTML page.

    scan = Scan(shard_map)                              # kpl_codec.report.scan, needs pyarrow; in the workers
    for batch in checked: found = scan.process(batch)
    report = build_report(Tally.merged(tallies), shard_map, generated=now, version=kpl_codec.__version__)
    print(summary_text(report))
    write_page(report, "report.html")

Only `kpl_codec.report.scan` imports pyarrow; import it by that name. Jinja2 is imported for the first page,
rich for the first summary: workers need neither.
"""

from .build import build_report
from .counters import Tally
from .kinds import KINDS, SEVERITIES, Kind, Severity, kind_of
from .model import (
    CauseCount,
    Finding,
    KclLoss,
    KindCount,
    Landing,
    RateCell,
    Report,
    Sample,
    ShardFacts,
    Totals,
)
from .page import render_page, write_page
from .printed import summary_text
from .whole import findings_of_the_whole

__all__ = [
    "KINDS",
    "SEVERITIES",
    "CauseCount",
    "Finding",
    "KclLoss",
    "Kind",
    "KindCount",
    "Landing",
    "RateCell",
    "Report",
    "Sample",
    "Severity",
    "ShardFacts",
    "Tally",
    "Totals",
    "build_report",
    "findings_of_the_whole",
    "kind_of",
    "render_page",
    "summary_text",
    "write_page",
]
