"""Whatever a model, a tool or a server writes, the page it is shown on is not theirs."""

import re
from html.parser import HTMLParser

import pytest

from agentmagic.display import html
from agentmagic.display.transcript import Transcript
from agentmagic.events import PartDelta, PartStarted
from agentmagic.messages import Text, ToolCall, ToolResult
from tests.display.logs import carried_out, everywhere, started

PAYLOADS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    '" style="position:fixed;inset:0" x="',
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
    "<!--><img src=x onerror=alert(1)>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "</div></div></details></td></table><h1>outside",
    "<details open ontoggle=alert(1)>",
    "<div><p><b>unclosed <a href='",
    "```html\n</code></pre><script>alert(1)</script>\n```",
    '```"onmouseover="alert(1)\nx\n```',
    "`</code><script>alert(1)</script>`",
    "[x](javascript:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](\x01javascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](file:///etc/passwd)",
    '[x](https://ok.example "onmouseover=alert(1)")',
    '[x](<https://ok.example/" onclick="alert(1)>)',
    "<javascript:alert(1)>",
    "![x](https://evil.example/pixel.png)",
    "![x](data:image/svg+xml;base64,PHN2Zz4=)",
    '![" onerror="alert(1)](data:image/png;base64,AAAA)',
    '![x](data:image/png;base64,AAAA" onerror="alert(1))',
    "[![x](https://evil.example/a.png)](javascript:alert(1))",
    "|<img src=x onerror=alert(1)>|b|\n|-|-|\n|<script>|[x](javascript:alert(1))|",
    "$<img src=x onerror=alert(1)>$ and \\(<script>alert(1)</script>\\)",
    "<a href=https://ok.example style=background:url(//evil.example)>x</a>",
    "<template><script>alert(1)</script></template><noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<table><tr><td style='background:url(//evil.example);color:red;position:fixed' colspan=9 onclick=alert(1)>1",
    "<td style='color:url(//evil.example)'>1</td><style>td{position:fixed}</style><details open ontoggle=alert(1)>",
    '{"<script>alert(1)</script>": {"<img src=x onerror=alert(1)>": ["</details><script>alert(1)</script>", 1]}}',
    '{"a": "</pre><script>alert(1)</script>"}',
]

HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
FLOW = {"blockquote", "br", "details", "div", "hr", "li", "ol", "p", "pre", "summary", "ul"}
TABLES = {"table", "tbody", "td", "th", "thead", "tr"}
TAGS = HEADINGS | FLOW | TABLES | {"a", "b", "code", "del", "em", "font", "img", "s", "samp", "small", "span", "strong"}
TAGS |= {"caption", "dd", "dl", "dt", "i", "kbd", "mark", "sub", "sup", "tfoot", "u"}
ATTRIBUTES = {"align", "alt", "class", "color", "colspan", "href", "open", "rel", "rowspan", "src", "start", "style"}
ATTRIBUTES |= {"title", "value", "role", "aria-label", "aria-level"}
SOURCE = r"am-source-[0-9a-f]{8}-\d+"
VOID = {"br", "hr", "img"}
STYLE = re.compile(
    r"((align-items|background-color|border|border-left|border-radius|border-top|color|cursor"
    r"|display|flex|font-family|font-weight|gap|height|line-height|margin|margin-left|max-height"
    r"|max-width|min-width|overflow|overflow-wrap|overflow-x|padding|padding-left|text-align|text-overflow"
    r"|vertical-align|white-space|width|word-break):(?!.*(url|expression|@|\\))[^;]*(;|$))*"
)


class Guard(HTMLParser):
    """Reads a page as a browser's tokeniser would, and notes everything that must not be there."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.wrong = []
        self.path = []

    def handle_starttag(self, tag, attrs):
        if tag not in TAGS:
            self.wrong.append(f"<{tag}>")
        for name, value in attrs:
            self._check(tag, name, value or "")
        if tag not in VOID:
            self.path.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        if not self.path or self.path.pop() != tag:
            self.wrong.append(f"</{tag}> out of place")

    def handle_comment(self, data):
        self.wrong.append(f"<!--{data}-->")

    def handle_decl(self, decl):
        self.wrong.append(f"<!{decl}>")

    def unknown_decl(self, data):
        self.wrong.append(f"<![{data}")

    def handle_pi(self, data):
        self.wrong.append(f"<?{data}>")

    def _check(self, tag, name, value):
        right = name in ATTRIBUTES
        if name == "href":
            right = tag == "a" and re.match(rf"(https?://|mailto:|#{SOURCE}$)", value) is not None
        if name == "id":
            right = tag == "li" and re.fullmatch(SOURCE, value) is not None
        if name == "src":
            right = re.fullmatch(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*", value) is not None
        if name == "style":
            right = STYLE.fullmatch(value) is not None
        if name == "class":
            right = value in {"agentmagic mathjax_ignore", "mathjax_process"}
        if not right:
            self.wrong.append(f"<{tag} {name}={value!r}>")


def wrongs(events, **options):
    guard = Guard()
    guard.feed(html.render(Transcript(events), **options))
    guard.close()
    return guard.wrong + guard.path


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_does_no_harm_in_any_place_alone_in_a_result_or_while_it_is_streaming(payload):
    assert wrongs(everywhere(payload), prompt=True) == []
    result = ToolResult("c", "f", (Text(payload), Text("text")))
    assert wrongs([*started(), *carried_out(ToolCall("c", "f", {}), result, rich=("", payload))]) == []
    transcript = Transcript([*started(), PartStarted(0, "text"), PartStarted(1, "tool_call", payload)])
    renderer = html.HtmlRenderer(live=True)
    for letter in payload:
        transcript.feed(PartDelta(0, letter))
        transcript.feed(PartDelta(1, letter))
        guard = Guard()
        guard.feed(renderer.update(transcript))
        assert guard.wrong + guard.path == []


def test_the_guard_itself_sees_what_is_wrong():
    guard = Guard()
    guard.feed('<script>x</script><p onclick="x"><a href="javascript:x">x</a></p><!--x--><b style="background:url(x)">')
    assert len(guard.wrong) == 5
    assert guard.path == ["b"]
