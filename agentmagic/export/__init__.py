"""A conversation for others to read, send or run: Markdown, JSON, provider messages, a notebook.

Turns or messages go in, text or plain JSON comes out, and only `save` touches the disk. Secrets are blanked in
everything.
"""

from agentmagic.export.cells import to_notebook
from agentmagic.export.data import to_gemini, to_json, to_openai, to_responses
from agentmagic.export.document import to_markdown
from agentmagic.export.files import save

__all__ = ["save", "to_gemini", "to_json", "to_markdown", "to_notebook", "to_openai", "to_responses"]
