"""Decisions in the forms that services for continuous integration read.

JUnit XML has no schema of its own; what is written here is what Jenkins, GitLab and GitHub's
actions agree on. What cannot be told, or does not run, is an `error` there: the job does not pass.
"""

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from heapfit.gate.decision import Decision, Outcome

_ELEMENTS: dict[Outcome, str] = {"failed": "failure", "untold": "error", "broken": "error"}
_ANNOTATIONS: dict[Outcome, str] = {"failed": "error", "untold": "warning", "broken": "error"}
# What XML 1.0 has no way to write.
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(decisions: Sequence[Decision], suite: str) -> str:
    """Return the decisions as a test suite of JUnit's."""
    elements = [_ELEMENTS.get(each.outcome) for each in decisions]
    counts = {f"{name}s": str(elements.count(name)) for name in ("failure", "error")}
    root = ElementTree.Element("testsuites")
    top = ElementTree.SubElement(root, "testsuite", name=_xml(suite), tests=str(len(decisions)))
    for name, count in counts.items():
        top.set(name, count)
    for each in decisions:
        case = ElementTree.SubElement(top, "testcase", classname="heapfit", name=_xml(each.name))
        for name, value in _where(each).items():
            case.set(name, _xml(value))
        if each.outcome == "passed":
            ElementTree.SubElement(case, "system-out").text = _xml(each.why)
        else:
            element = ElementTree.SubElement(case, _ELEMENTS[each.outcome], message=_xml(each.why))
            element.text = _xml("\n".join([each.why, *(place.what for place in each.places)]))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _xml(text: str) -> str:
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def github(decisions: Sequence[Decision]) -> list[str]:
    """Return a workflow command for each decision that is no pass, at its first line of source."""
    lines = []
    for each in decisions:
        if each.outcome in _ANNOTATIONS:
            properties = {**_where(each), "title": f"heapfit: {each.name}"}
            words = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
            message = _data("\n".join([each.why, *(place.what for place in each.places)]))
            lines.append(f"::{_ANNOTATIONS[each.outcome]} {words}::{message}")
    return lines


def _where(decision: Decision) -> dict[str, str]:
    """Return the first line of source that a decision names, as attributes."""
    place = next((place for place in decision.places if place.file), None)
    return {"file": str(place.file), "line": str(place.line)} if place else {}


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def markdown(decisions: Sequence[Decision], title: str) -> str:
    """Return the decisions as a table for a comment, with the lines behind them."""
    lines = [f"### {_cell(title)}", "", "| | figure | |", "|---|---|---|"]
    lines += [
        f"| {f'**{each.word}**' if each.outcome != 'passed' else 'passed'} "
        f"| {_cell(each.name)} | {_cell(each.why)} |"
        for each in decisions
    ]
    for each in decisions:
        if each.places:
            lines += ["", f"{_cell(each.name)}:", ""]
            lines += [f"- {_cell(place.what)}" for place in each.places]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Return text that stays as it is within a line of Markdown.

    >>> _cell("a|b <c> operator*")
    'a\\\\|b \\\\<c\\\\> operator\\\\*'
    """
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", " ".join(text.split()))
