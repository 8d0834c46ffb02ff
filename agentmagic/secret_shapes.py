"""The shapes of secrets: a table of patterns for keys, tokens and passwords of known services and protocols.

The kinds of secrets are from the lists of gitleaks (https://github.com/gitleaks/gitleaks, MIT) and detect-secrets
(https://github.com/Yelp/detect-secrets, Apache-2.0); the patterns are agentmagic's own. Each row of the table has
literals, which are searched first. The row's pattern is matched only at a literal, so that texts without secrets take
little time.
"""

import re
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

LONGEST_VALUE = 2_000
"""The most characters of a value that are blanked after a name, as in `password=...`."""
LONGEST_WORD = 15
"""About the most letters of a plain word. A longer word that has only letters can be a password."""
KEY = "[A-Za-z0-9_-]"
"""A character of a base64url word. A key never begins in the middle of such a word: opaque data of a provider may
contain "-sk-" by chance, and must be sent back to the provider unchanged."""

_LETTERS = "[A-Za-z0-9]"
_DOTTED = "[A-Za-z0-9._-]"
_HEX = "[0-9a-f]"
_TOKEN = "[A-Za-z0-9._~+/=-]"  # noqa: S105  (characters of a token)
_MIXED = rf"(?={KEY}*(?:[A-Za-z]\d|\d[A-Za-z]|{_LETTERS}{{20}}))"
"""A lookahead for keys that can contain hyphens. Without it, "sk-learn-compatible-estimators" would be a key."""

Judge = Callable[[re.Match[str]], bool]


@dataclass(frozen=True)
class Shape:
    """A kind of secret, such as keys of one service: a row of the table `SHAPES`.

    `starts` are the literals that are searched, in lower case unless `key` is set. At a literal, the pattern `source`
    is matched. Its last group, or the whole match if it has no group, is the secret, unless `judge` returns False. The
    pattern `beginning` matches the end of a growing text that may become a match. `example` is a secret in pieces, so
    that secret scanners do not report this file. `key` says that the secret is one long word, so that only long words
    are searched.
    """

    name: str
    starts: tuple[str, ...]
    source: str
    beginning: str
    example: tuple[str, ...]
    judge: Judge | None = None
    key: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The compiled pattern `source`. It is compiled at its first use, since compiling all shapes takes 30 ms."""
        return re.compile(self.source)

    @cached_property
    def growing(self) -> re.Pattern[str]:
        """The compiled pattern `beginning`, made to match only at the end of a text."""
        return re.compile(rf"(?:{self.beginning})\Z")

    def span(self, match: re.Match[str]) -> tuple[int, int] | None:
        """Return the span of the secret in a match of `pattern`, or None if `judge` says that it is not a secret."""
        return None if self.judge and not self.judge(match) else match.span(match.lastgroup or 0)


# -- judging whether a value beside a name is a secret ---------------------------------------------------------

PLAIN = re.compile(
    rf"[a-z]{{1,{LONGEST_WORD}}}|[A-Z][a-z]{{1,{LONGEST_WORD}}}|[A-Z]{{1,{LONGEST_WORD}}}"  # a word
    r"|[-+\d.,:_/ TZ]+"  # a number, a date, a version
    r"|(?:\.{1,2}|~|[A-Za-z]:)?[/\\].*|\w+://.*|\$\{.*\}|<.*>",  # a path, an address, a placeholder
    re.DOTALL,
)
"""Matches a value that is not a secret, whatever its name is."""
_PLACEHOLDER = re.compile(
    r"[\[{<$*%]|.*[{}]|\w+\?$|(?:x|X|\.|\*)+$|(?:my|your|the|some|new|old|test|example|dummy|fake)[-_ ]"
    r"|(?:pass(?:w(?:or)?d|phrase)?|pwd?|secret|token|(?:api_?)?key|value|arg|field|column|col)_?\d{0,3}$"
    r"|(?:[a-z]+[-_])?(?:sha|md|argon|base|utf|aes|rsa|hs|rs|oauth|int|float|uint)[-_]?\d+\w{0,4}$",
    re.IGNORECASE,
)
_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[a-z]+(?:_[a-z0-9]+)+|[A-Z]+(?:_[A-Z0-9]+)+")
_SWITCH = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[a-z0-9])|\d(?=[A-Za-z])")
_LEAST_RANDOM = 16
_WORD = r"[^-_.:/,=\s]"
_MIXED_WORD = re.compile(rf"(?<!{_WORD})(?={_WORD}{{6}}){_WORD}*(?:[A-Za-z]\d|\d[A-Za-z])")
_NO_SECRET_TOKEN = re.compile(
    r"(?:next|prev|previous|page|continuation|sync|cursor|resume|start|stop|end|special|pad|eos|bos|unk|mask|cls|sep)"
    r"[-_]?(?:page)?[-_]?\Z",
    re.IGNORECASE,
)
"""Matches a word before "token" that gives it another meaning: a page token of a list, or a language model's token."""


def is_random(value: str) -> bool:
    """Return whether a value looks random because upper case, lower case and digits alternate often."""
    return len(value) >= _LEAST_RANDOM and len(_SWITCH.findall(value)) * 3 >= len(value)


def _value(match: re.Match[str]) -> str:
    """Return the value in a match of a name and its value, or "" if it is code, a plain word or a placeholder."""
    value = str(match["quoted"] or match["bare"])
    is_code = match["bare"] and (_CODE.fullmatch(value) or match.string[match.end() : match.end() + 1] in tuple("([{"))
    return "" if is_code or " " in value or _PLACEHOLDER.match(value) or PLAIN.fullmatch(value) else value


def _is_opaque(value: str) -> bool:
    """Return whether a value looks random, or has a word of six or more characters with letters next to digits."""
    return bool(_MIXED_WORD.search(value)) or is_random(value)


def _is_password(match: re.Match[str]) -> bool:
    value = _value(match)
    return len(value) >= 6 and bool(re.search("[A-Za-z]", value)) and bool(re.search(r"\d|[!@#^~?$%*+=]", value))  # noqa: PLR2004


def _is_key(match: re.Match[str]) -> bool:
    value = _value(match)
    return len(value) >= 8 and _is_opaque(value)  # noqa: PLR2004


def _is_token(match: re.Match[str]) -> bool:
    value, before = _value(match), match.string[max(0, match.start() - 20) : match.start()]
    return len(value) >= 12 and _is_opaque(value) and not _NO_SECRET_TOKEN.search(before)  # noqa: PLR2004


def _is_header(match: re.Match[str]) -> bool:
    value = str(match["quoted"] or match["bare"])
    return not _PLACEHOLDER.match(value) and _is_opaque(value)


def _is_cookie(match: re.Match[str]) -> bool:
    return bool(re.match(r"[\w!#$&*+.^|~-]{1,100}=[^\s;]", str(match["quoted"] or match["bare"])))


def _is_credentials(match: re.Match[str]) -> bool:
    """Return whether the matched word is "user:password" encoded in base64, as in an Authorization header."""
    try:
        return ":" in b64decode(match["secret"], validate=True).decode()
    except ValueError:
        return False


# -- the kinds of rows -----------------------------------------------------------------------------------------

_LONG = ("abcdefghij", "klmnopqrst", "0123456789", "ABCDEFGHIJ", "KLMNOPQRST")
_HEXADECIMAL = ("0123456789", "abcdef0123", "456789abcd", "ef01234567", "89abcdef")
_SPACE = r"\s{0,5}"
_BARE = r"""[^\s"'`;&<>,()\[\]{}]"""
_COMMAND = r"(?:(?<=--password)|(?<=--passwd)|(?<=--token)|(?<=--secret)|(?<=--api-key))\s{1,3}"
_JOINT = (
    rf"""(?:["']?{_SPACE}(?::=|=>|[:=]){_SPACE}[bru]?|(?:(?<=-key)|(?<=-token))["'],\s?(?=["'])"""
    rf"|>(?=[^<>\s]{{4,{LONGEST_VALUE}}}</[\w:.-]{{0,50}}(?:passw|phrase|pwd|key|secret|token))|{_COMMAND})"
)
"""The text between a name and its value: in code and files, in a list of headers, in XML, in a command."""
_VALUE = (
    rf"""(?:(?P<quote>["'`])(?P<quoted>(?:(?!(?P=quote))[^\n]){{4,{LONGEST_VALUE}}})"""
    rf"|(?P<bare>{_BARE}{{4,{LONGEST_VALUE}}}))"
)
_SCHEME = r"(?:[A-Za-z][A-Za-z0-9-]{2,30}\s{1,3}(?=\S))?"
_LINE = (
    rf"""(?:(?P<quote>["']){_SCHEME}(?P<quoted>(?:(?!(?P=quote))[^\n]){{4,4000}})"""
    rf"""|{_SCHEME}(?P<bare>[\w!#$%&*+.^|~-]{{1,100}}=[^\n"'<]{{1,4000}}|[^\s"'<]{{4,4000}}))"""
)
"""The value of a header: in code all characters up to the closing quote, else a word or pairs after a scheme's name."""


def _special(  # noqa: PLR0913  (the columns of the table)
    name: str, starts: str, pattern: str, growing: str, example: tuple[str, ...], judge: Judge | None = None
) -> Shape:
    """Return a `Shape` with the given patterns, changed to ignore case; `starts` are literals separated by "|"."""
    return Shape(name, tuple(starts.split("|")), f"(?i:{pattern})", f"(?i:{growing})", example, judge)


def _key(  # noqa: PLR0913  (the columns of the table)
    name: str, starts: str, kind: str, least: int, must: str = "", example: tuple[str, ...] = _LONG
) -> Shape:
    """Return the `Shape` of keys that begin with one of the words in `starts`.

    After the word, a key has at least `least` characters that match the pattern `kind`. `must` is a lookahead that
    these characters must match.
    """
    words = tuple(starts.split())
    either = "|".join(map(re.escape, words))
    pattern = rf"(?<!{KEY})(?:{either}){must}{kind}{{{least},}}"
    return Shape(name, words, pattern, rf"(?<!{KEY})(?:{either}){kind}*", (words[0], *example), key=True)


def _beside(name: str, starts: str, names: str, judge: Judge, example: tuple[str, ...]) -> Shape:
    """Return the `Shape` of secrets that stand after one of `names` and a colon, an equals sign or an XML tag."""
    growing = (
        rf"""(?:{names})(?:["']?{_SPACE}(?::=|=>|[:=,>]){_SPACE}|{_COMMAND})(?:[bru]?["'`][^\n"'`]*|{_BARE}*)"""
        rf"""|(?:{names})["']?{_SPACE}"""
    )
    return _special(name, starts, f"(?:{names}){_JOINT}{_VALUE}", growing, example, judge)


def _header(name: str, start: str, names: str, judge: Judge, example: tuple[str, ...]) -> Shape:
    """Return the `Shape` of an HTTP header whose whole value is a secret."""
    joint = rf"""(?:["']?{_SPACE}[:=]{_SPACE}|["'],\s?(?=["']))"""
    pair = rf"""(?:(?<=["'])|(?<=["']set-)|(?!(?:{names})["'],))"""  # in a list, name and value are in quotes
    return _special(name, start, f"{pair}(?:{names}){joint}{_LINE}", rf"(?:{names})(?:{joint}[^\n]*)?", example, judge)


_KEY_NAMES = "|".join(
    rf"(?<={word}{joint}key)"
    for word in ("api", "secret", "access", "private", "account", "shared", "subscription", "auth", "signing", "master")
    for joint in ("", "[-_ ]")
)
ADDRESS = re.compile(
    r"(?i:://[^\s/:@]{0,200}:(?P<secret>(?![\[{<$*]|&lt;|%(?![0-9A-F]{2})|(?:pass(?:word|wd)?|pwd|secret)@)"
    r"[^\s/\"'`<>]{1,500}(?=@)))"
)
"""The password in an address, of a database for example. Placeholders do not match."""

SHAPES: tuple[Shape, ...] = (
    # -- secrets of protocols and files --
    _special(
        "private key",
        "-----begin ",
        r"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:[^-]|-(?!----)){1,20000}+-----END[ A-Z0-9]{0,40}-----"
        r"|(?:\s{0,100}[A-Za-z0-9+/]{20,}+={0,2})++(?:\s{1,100}[A-Za-z0-9+/]{1,100}+={0,2}(?=\s*\Z))?)",
        r"-----BEGIN[ A-Z0-9]{0,60}(?:-{0,4}|(?:(?<=PRIVATE KEY)|(?<=PRIVATE KEY BLOCK))-----"
        r"(?:[^-]|-(?!----)){0,20000}(?:-----[ A-Z0-9]{0,44}-{0,5})?)",
        ("-----BEGIN RSA PRIV", "ATE KEY-----\nMIIEow", *_LONG, "\n", *_LONG, "=\n-----END RSA PRIV", "ATE KEY-----"),
    ),
    _special(
        "password in an address",
        "://",
        ADDRESS.pattern,
        r"://[^\s/:@]*(?::[^\s/]*)?",
        ("postgres://reader", ":x7-Qu", "iet.Sea@db.example.org/sales"),
    ),
    _special(
        "bearer token",
        "bearer ",
        rf"bearer (?P<secret>(?={_TOKEN}*(?:\d|[A-Za-z]{{20}})){_TOKEN}{{16,}})",
        rf"bearer {_TOKEN}*",
        ("Bearer ", *_LONG),
    ),
    _special(
        "basic credentials",
        "basic ",
        r"basic (?P<secret>[A-Za-z0-9+/]{4,}={0,2})",
        r"basic [A-Za-z0-9+/]*={0,2}",
        ("Basic dXNlcjpw", "YXNzd29yZA=="),
        _is_credentials,
    ),
    _header(
        "authorization header",
        "authorization",
        "authorization",
        _is_header,
        ("Authorization: Token ", "a1b2c3d4", "e5f6a7b8c9d0"),
    ),
    _header("cookie", "cookie", "cookies?", _is_cookie, ("Set-Cookie: session", "id=38af", "e337504b; Path=/")),
    _special(
        "netrc",
        "machine ",
        r"machine\s{1,50}\S{1,200}\s{1,50}login\s{1,50}\S{1,200}\s{1,50}(?:account\s{1,50}\S{1,200}\s{1,50})?"
        r"password\s{1,50}(?P<secret>[^\s\"']{4,200})",
        r"machine\s{1,50}(?:\S{0,200}|\S{1,200}\s{1,50}(?:l|lo|log|logi|login(?:\s{1,50}\S{0,200}){0,5})?)",
        ("machine example.org login ann password ", "sword", "fish99"),
    ),
    _special(
        "hook",
        "hook",
        r"hook(?:s\.slack\.com/(?:services|workflows|triggers)/|(?<=/api/webhook)s/\d{5,30}/"
        r"|(?<=webhook)\.office\.com/webhookb2/)(?P<secret>[A-Za-z0-9/@_-]{20,300})",
        r"hook(?:s|(?<=webhook))[a-z.]{0,15}/[A-Za-z0-9/@_-]*",
        ("https://hooks.slack.com/services/T0123", "4567/B01234567/", "abcdefghij01234567", "89abcd"),
    ),
    _special(
        "Telegram bot",
        ":aa",
        rf"(?<=\d{{8}}):(?P<secret>(?-i:AA){KEY}{{30,}})",
        rf"(?<=\d{{8}}):AA{KEY}*",
        ("98765432:AA", *_LONG),
    ),
    # -- values beside their names --
    _beside(
        "password",
        "passw|passphrase|pwd",
        r"passw(?:or)?d|passphrase|pwd",
        _is_password,
        ("password=", "hunter2", "-Qx"),
    ),
    _beside(
        "API key",
        "key",
        rf"key(?=[\"']?{_SPACE}[:=,>]|\s)(?:{_KEY_NAMES}|(?<=[?&;]key))",
        _is_key,
        ("x-api-key: ", "Zx81kLmN", "q7Rt5Vw3"),
    ),
    _beside("secret", "secret", "secret", _is_key, ("client_secret=", "Zx81kLmN", "q7Rt5Vw3")),
    _beside("token", "token", "token", _is_token, ("https://example.org/?access_token=", "Zx81kLmN", "q7Rt5Vw3")),
    _beside(
        "signature", "sig", r"(?<=[?&;, -])sig(?:nature)?(?==)", _is_token, ("?sv=2024&sig=", "Zx81kLmN", "q7Rt5Vw3%3D")
    ),
    # -- keys of services: name, first characters, pattern and least number of the characters that follow --
    _special(
        "JSON web token",
        "eyj",
        rf"(?<!{KEY})(?-i:eyJ){KEY}{{8,}}\.(?-i:eyJ){KEY}{{8,}}\.{KEY}{{8,}}",
        rf"(?<!{KEY})eyJ{KEY}*(?:\.{KEY}*){{0,2}}",
        ("eyJhbGciOi", "JIUzI1NiJ9.eyJ", *_LONG, ".", *_LONG),
    ),
    _key("OpenAI, Anthropic, OpenRouter and compatible", "sk-", KEY, 16, _MIXED),
    _key("Stripe", "sk_test_ sk_live_ rk_test_ rk_live_ whsec_", _LETTERS, 16),
    _key("Google API key", "AIza", KEY, 30),
    _key("Google access token", "ya29. AQ.", _DOTTED, 20, _MIXED),
    _key("Google client secret", "GOCSPX-", KEY, 20),
    _key("GitHub", "ghp_ gho_ ghu_ ghs_ ghr_", _LETTERS, 30),
    _key("GitHub fine-grained", "github_pat_", "[A-Za-z0-9_]", 30),
    _key("GitLab", "glpat- gldt- glrt- glptt- glcbt- glft- glimt- glsoat- glagent-", _DOTTED, 16, _MIXED),
    _key("Hugging Face", "hf_ api_org_", _LETTERS, 30),
    _key("Groq", "gsk_", _LETTERS, 30),
    _key("xAI", "xai-", KEY, 30, _MIXED),
    _key("Perplexity", "pplx-", _LETTERS, 30),
    _key("Replicate", "r8_", _LETTERS, 30),
    _key("NVIDIA", "nvapi-", KEY, 30, _MIXED),
    _key("LangSmith", "lsv2_pt_ lsv2_sk_", "[A-Za-z0-9_]", 30),
    _key("npm", "npm_", _LETTERS, 30),
    _key("PyPI", "pypi-", KEY, 30, _MIXED),
    _key("RubyGems", "rubygems_", _HEX, 40, "", _HEXADECIMAL),
    _key("Slack", "xoxb- xoxa- xoxp- xoxr- xoxs- xoxe- xoxe. xoxo- xapp-", "[A-Za-z0-9.-]", 10, _MIXED),
    _key("AWS key id", "AKIA ASIA ABIA ACCA", "[A-Z0-9]", 16, "", ("01234567", "89ABCDEF")),
    _key("Databricks", "dapi", _HEX, 32, "", _HEXADECIMAL),
    _key("HashiCorp Vault", "hvs. hvb. hvr.", KEY, 20),
    _key("SendGrid", "SG.", _DOTTED, 30, _MIXED),
    _key("Brevo", "xkeysib- xsmtpsib-", KEY, 30),
    _key("Mailgun", "key-", _HEX, 32, "", _HEXADECIMAL),
    _key("Twilio", "SK", _HEX, 32, "", _HEXADECIMAL),
    _key("DigitalOcean", "dop_v1_ doo_v1_ dor_v1_", _HEX, 40, "", _HEXADECIMAL),
    _key("Doppler", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", _LETTERS, 30),
    _key("Shopify", "shpat_ shpca_ shppa_ shpss_", "[0-9A-Fa-f]", 32, "", _HEXADECIMAL),
    _key("Square", "sq0atp- sq0csp- sq0idp-", KEY, 20),
    _key("Linear", "lin_api_ lin_oauth_", _LETTERS, 30),
    _key("Notion", "ntn_ secret_", _LETTERS, 40),
    _key("Figma", "figd_", KEY, 30),
    _key("Postman", "PMAK-", KEY, 30, _MIXED),
    _key("New Relic", "NRAK- NRJS- NRII-", KEY, 19, _MIXED),
    _key("Grafana", "glc_ glsa_", "[A-Za-z0-9_+/]", 30),
    _key("Sentry", "sntrys_ sntryu_", "[A-Za-z0-9_+/]", 30),
    _key("Pulumi", "pul-", _HEX, 40, "", _HEXADECIMAL),
    _key("PlanetScale", "pscale_tkn_ pscale_pw_ pscale_oauth_", KEY, 30),
    _key("Supabase", "sbp_", _HEX, 40, "", _HEXADECIMAL),
    _key("SonarQube", "squ_ sqp_ sqa_", _HEX, 40, "", _HEXADECIMAL),
    _key("Atlassian", "ATATT3", KEY, 30),
    _key("JFrog", "AKCp", _LETTERS, 40),
    _key("1Password", "ops_eyJ", KEY, 30),
    _key("age", "AGE-SECRET-KEY-1", "[A-Z0-9]", 40, "", ("QPZRY9X8GF", "2TVDW0S3JN", "54KHCE6MUA", "7LQPZRY9X8", "GF")),
    _key("OpenShift", "sha256~", KEY, 40),
    _key("Dynatrace", "dt0c01.", _DOTTED, 40),
    _key("Fly.io", "fm2_ fo1_", "[A-Za-z0-9_+/-]", 30, _MIXED),
    _key("Tailscale", "tskey-", KEY, 20, _MIXED),
    _key("Typeform", "tfp_", _DOTTED, 30),
    _key("Tavily", "tvly-", KEY, 20, _MIXED),
    _key("HubSpot", "pat-na1- pat-eu1-", KEY, 30, _MIXED),
    _key("Dropbox", "sl.", KEY, 60, _MIXED, (*_LONG, *_LONG)),
    _key("Alibaba Cloud", "LTAI", _LETTERS, 16, "", ("a1b2c3d4e5", "f6g7h8i9")),
)
"""The table of all shapes."""
