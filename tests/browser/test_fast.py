"""The choice of the fast tests of this folder."""

from pathlib import Path

from tests.browser.conftest import FAST


def test_the_fast_tests_exist():
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name in sorted(FAST) if f"def {name.partition('[')[0]}(" not in sources] == []
