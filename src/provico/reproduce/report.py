"""Reports of experiments and findings: report.html, and tables on stdout.

The page is self-contained, without scripts or network. It is made only from the NAME.json and NAME.png files,
so it covers several sessions, and the same files give the same bytes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape as escape_markup
from rich.table import Table

from provico.files import replace_text
from provico.reproduce.experiment import Experiment, Finding

_COLOURS = {
    "reproduced": "#2e8b57",
    "refuted": "#c81e1e",
    "not visible here": "#8a6d1f",
    "cannot be tested here": "#6e6e78",
}
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; }
table { border-collapse: collapse; font-size: 0.8rem; display: block; overflow-x: auto; max-height: 28rem; }
.overview { max-height: none; }
th, td { text-align: left; padding: 0.2rem 0.6rem; border-bottom: 1px solid #ddd; white-space: nowrap; }
.overview td { white-space: normal; vertical-align: top; }
img { max-width: 100%; }
.verdict { color: white; border-radius: 0.3rem; padding: 0.1rem 0.5rem; white-space: nowrap; }
section { border-top: 1px solid #bbb; margin-top: 2.5rem; }
.small, code { font-size: 0.85rem; } .small { color: #555; }
"""


def write_report(folder: Path, names: Iterable[str]) -> Path:
    """Write report.html about the folder's results of these experiments, and return its path."""
    findings = [
        json.loads(path.read_text(encoding="utf-8"))
        for name in names
        if (path := folder / f"{name}.json").is_file()
    ]
    path = folder / "report.html"
    replace_text(path, _page(folder, findings))
    return path


def _page(folder: Path, findings: Sequence[Mapping[str, Any]]) -> str:
    sections = "\n".join(_section(folder, finding) for finding in findings)
    counts = {verdict: sum(finding["verdict"] == verdict for finding in findings) for verdict in _COLOURS}
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>ProViCo: the paper's claims, tested</title><style>{_STYLE}</style></head><body>
<h1>The paper's claims, tested</h1>
<p>{len(findings)} experiments: {summary}.</p>
<p>Verdicts follow from the numbers by the rule that each section states. Data, networks and training here are
not the paper's unless a section's preset is <code>paper</code>, and on a CPU they are smaller by orders of
magnitude. So what is tested is whether an effect shows in the claimed direction, not whether the paper's
numbers are right. <em>Not visible here</em> means that an interval contains zero: the effect that such a test
would detect in 80 % of cases is stated beside the paper's.</p>
<table class="overview"><tr><th>Experiment</th><th>In the paper</th><th>Claim</th><th>Verdict</th></tr>
{"".join(_overview_row(finding) for finding in findings)}</table>
{sections}
</body></html>
"""


def _overview_row(finding: Mapping[str, Any]) -> str:
    name = escape(finding["name"])
    return (
        f'<tr><td><a href="#{name}">{name}</a></td><td>{escape(finding["source"])}</td>'
        f"<td>{escape(finding['claim'])}</td><td>{_badge(finding['verdict'])}</td></tr>\n"
    )


def _badge(verdict: str) -> str:
    return f'<span class="verdict" style="background:{_COLOURS[verdict]}">{verdict}</span>'


def _section(folder: Path, finding: Mapping[str, Any]) -> str:
    name = finding["name"]
    picture = base64.b64encode((folder / f"{name}.png").read_bytes()).decode()
    caption = escape(finding["caption"])
    notes = "".join(f"<p>{escape(note)}</p>" for note in finding["notes"])
    seeds = ", ".join(map(str, finding["seeds"])) or "none"
    splits = ", ".join(map(str, finding["splits"])) or "none"
    single = (
        " One seed: intervals cover videos, not the randomness of training."
        if len(finding["seeds"]) == 1
        else ""
    )
    return f"""<section id="{escape(name)}">
<h2>{escape(finding["title"])}</h2>
<p>{_badge(finding["verdict"])} {escape(finding["why"])}</p>
<p><b>Claim</b> ({escape(finding["source"])}): {escape(finding["claim"])}<br>
<b>Rule</b>: {escape(finding["rule"])}</p>{notes}
<img src="data:image/png;base64,{picture}" alt="{caption}">
{_table(finding["rows"])}
<p class="small"><code>{escape(finding["command"])}</code><br>
Data: {escape(finding["data"])}. Preset {finding["preset"]}, recipe {finding["size"]["recipe"]}.
Seeds: {seeds}. Splits: {splits}.{single} CPU time of its runs: {finding["cpu_seconds"]:.0f} s
(shared runs are counted for each experiment).</p>
</section>"""


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "<p>There are no results.</p>"
    columns = list(dict.fromkeys(column for row in rows for column in row))
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{_cell(row.get(column))}</td>" for column in columns) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>\n{body}</table>"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return escape(f"{value:g}" if isinstance(value, float) else str(value))


_STYLES = {
    "reproduced": "green",
    "refuted": "red",
    "not visible here": "yellow",
    "cannot be tested here": "dim",
}


def show_experiments(experiments: Iterable[Experiment]) -> None:
    """Show every experiment with its claim."""
    table = Table("experiment", "in the paper", "claim", box=None)
    for experiment in experiments:
        table.add_row(experiment.name, experiment.source, experiment.claim)
    Console().print(table)


def show_findings(findings: Iterable[Finding], report: Path) -> None:
    """Show the verdicts with their reasons."""
    console = Console()
    for finding in findings:
        style = _STYLES[finding.verdict]
        console.print(f"{finding.experiment.name}: [{style}]{finding.verdict}[/{style}]", soft_wrap=True)
        console.print(escape_markup(f"  {finding.sentence}"), soft_wrap=True)
    console.print(escape_markup(f"Report written to {report}"), soft_wrap=True)
