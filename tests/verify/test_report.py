"""The three forms of a report."""

import dataclasses
import html.parser
import json
import math
import re

import pytest

from qkflow.setting import ArgumentError, Problem
from qkflow.trajectory import dumps
from qkflow.verify import Claim, Report, Scope, Verdict, verify
from qkflow.verify.verify import MODULES
from tests.verify.stored import stored

CLAIM = Claim(
    "first", "a < b & c", "paper", "derivation#Loss", Scope.IDENTITY, "this, and that", "rounding", 1e-3
)
TRAINED = {"n_classes": 4, "seeds": [0]}


def report(*claims: Claim) -> Report:
    return Report(Problem(), TRAINED, claims)


def test_ok_means_nothing_falsified():
    good, open_ = CLAIM.judged({"a": 0.0}), CLAIM.undecided("too short")
    assert report(good, open_).ok
    assert not report(good, CLAIM.judged({"a": math.nan})).ok


def test_the_table_lines_up():
    other = dataclasses.replace(CLAIM, id="a_longer_name", scope=Scope.STATISTICAL, tolerance=0.05)
    fine = CLAIM.judged({"a": 1e-5}, horizon="here")
    wrong = other.judged({"x": [0.0, 7.0]}, at={"x": {"log_t": [1.0, 2.5]}}, horizon="there")
    lines = report(fine, wrong).table().splitlines()
    assert [lines[1].index("here"), lines[2].index("there")] == [lines[0].index("held up to")] * 2
    assert "falsified: a_longer_name: first violated in x by 140 times the tolerance at log_t = 2.5" in lines
    assert lines[-1] == "1 verified, 1 falsified"


def test_the_document_is_strict_and_says_where_it_was_made():
    document = json.loads(dumps(report(CLAIM.judged({"a": math.nan})).document()))
    assert document["schema"] == 1
    assert document["setting"]["n_common_vocab"] == "inf"
    assert document["seeds"] == [0]
    assert document["dtype"] == "float64"
    assert {"versions", "device"} <= set(document)
    wanted = {field.name for field in dataclasses.fields(Claim)} | {"margin"}
    assert wanted <= set(document["claims"][0])


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.outside, self.links = [], [], []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [(v or "")[1:] for name, v in attrs if tag == "a" and name == "href"]
        outside = ("src", "href", "xlink:href", "data", "action")
        self.outside += [v for name, v in attrs if name in outside and not (v or "").startswith("#")]


@pytest.fixture(scope="module")
def page() -> str:
    return verify(Problem(), record=stored()).html()


def test_the_page_is_self_contained(page):
    parser = Page()
    parser.feed(page)
    assert parser.outside == []
    assert len(parser.ids) == len(set(parser.ids))
    assert not re.search(r"@import|url\((?!#)|<script|<link|<!DOCTYPE svg", page)
    assert page.count("<svg") == 4


def test_the_page_shows_every_claim(page):
    for name in ("reduction", "gradient_descent_order", "qk_bounded", "sharper"):
        assert f"<b>{name}</b>" in page
    assert 'class="verdict falsified"' not in page
    assert "a bound with a proof" not in page  # nor the text of a module that no claim names


def test_every_claim_links_to_its_derivation(page):
    parser = Page()
    parser.feed(page)
    assert len(parser.links) == len(MODULES)
    assert set(parser.links) <= set(parser.ids)


def test_text_is_escaped():
    assert "a &lt; b &amp; c" in report(CLAIM.judged({"a": 0.0})).html()


def test_a_route_without_an_answer_is_falsified(monkeypatch):
    from qkflow.verify import evidence

    def nowhere(*args, **kwargs):
        raise ArgumentError("Nowhere.")

    monkeypatch.setattr(evidence, "integrate", nowhere)
    judged = verify(Problem(), record=stored(), claims=["exact_integrated"])
    assert judged["exact_integrated"].verdict is Verdict.FALSIFIED
    assert "Nowhere." in judged.table()
