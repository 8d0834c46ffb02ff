"""The pages of the reference say what the code says."""

from tests.site.reference import REFERENCE, documents, table_in, with_help


def test_the_page_of_the_cassette_has_every_document_and_its_fields():
    assert table_in((REFERENCE / "cassette.md").read_text(encoding="utf-8")) == documents()


def test_writing_the_pages_anew_renews_a_help_text_and_nothing_else():
    page = (REFERENCE / "agent-commands.md").read_text(encoding="utf-8")
    assert with_help(page) == page
    line = "Show the session: model, turns, tokens, cost, where it is saved, servers.\n\noptions:"
    assert line in page
    assert with_help(page.replace(line, "Words of another day.\n\noptions:")) == page
