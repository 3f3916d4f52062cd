"""Tests and documentation examples run in float64; detection margins are shown at the end."""

import jax

jax.config.update("jax_enable_x64", True)


def pytest_terminal_summary(terminalreporter):
    """The claims that each planted error falsifies, and how many tolerances they are off."""
    reports = terminalreporter.stats.get("passed", [])
    planted = [value for report in reports for name, value in report.user_properties if name == "planted"]
    if planted:
        terminalreporter.section("planted errors: the claims they falsify, off by how many tolerances")
    for line in planted:
        terminalreporter.write_line(line)
