"""Exports a conversation as a page that any browser shows: one file without scripts, which loads nothing."""

from collections.abc import Iterable

from markupsafe import Markup

from agentmagic.display import html
from agentmagic.display.blocks import PromptBlock
from agentmagic.display.transcript import Transcript
from agentmagic.history.history import Turn
from agentmagic.text import sanitize, single_line

LONGEST_TITLE = 80
"""Characters of the first prompt that are the page's title."""

_LIGHT = """
    color-scheme: light;
    --jp-content-font-color1: #1b1b1b; --jp-content-font-color2: #5c5c5c; --jp-content-font-color3: #757575;
    --jp-brand-color1: #1565c0; --jp-success-color1: #2e7d32; --jp-error-color1: #c62828; --jp-warn-color1: #b45309;
    --jp-cell-editor-background: #f5f5f5; --ground: #fff; --said: #eee; --line: #ddd; --link: #1565c0;"""
_DARK = """
    color-scheme: dark;
    --jp-content-font-color1: #e4e4e4; --jp-content-font-color2: #ababab; --jp-content-font-color3: #959595;
    --jp-brand-color1: #64b5f6; --jp-success-color1: #66bb6a; --jp-error-color1: #ff8a80; --jp-warn-color1: #ffb74d;
    --jp-cell-editor-background: #242424; --ground: #161616; --said: #2a2a2a; --line: #3d3d3d; --link: #64b5f6;"""
_STYLE = Markup(f"""
  :root {{{_LIGHT}
    --jp-code-font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
  @media (prefers-color-scheme: dark) {{ :root {{{_DARK} }} }}
  body {{ max-width: 54em; margin: 2em auto; padding: 0 1em; background: var(--ground);
    color: var(--jp-content-font-color1); font: 16px/1.55 system-ui, sans-serif; overflow-wrap: break-word; }}
  a {{ color: var(--link); }}
  code, samp, pre {{ font-family: var(--jp-code-font-family); font-size: 0.875em; }}
  pre {{ overflow-x: auto; }}
  .agentmagic > blockquote {{ margin: 2.2em 0 1em; padding: 0.1em 1em; border-radius: 8px; background: var(--said); }}
  table {{ border-collapse: collapse; }}
  th, td {{ padding: 3px 10px; border-bottom: 1px solid var(--line); }}
  img {{ height: auto; }}
""")  # noqa: S704  (nothing of it comes from the conversation)
_PAGE = Markup("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{conversation}
</main>
</body>
</html>
""")


def to_html(turns: Iterable[Turn]) -> str:
    """Return turns as an HTML page, with the first prompt as its title.

    The page shows the same as the saved outputs of cells, and prompts. It follows the browser's light or dark mode.
    Formulas stay as they are written. A picture that is not in the conversation itself is left out.
    """
    transcript = Transcript(event for turn in turns for event in turn.events)
    prompts = (block.prompt.text for block in transcript.blocks if isinstance(block, PromptBlock) and not block.client)
    title = single_line(sanitize(next(prompts, "")), LONGEST_TITLE) or "Conversation"
    conversation = html.render(transcript, prompt=True)
    return str(_PAGE.format(title=title, style=_STYLE, conversation=conversation))
