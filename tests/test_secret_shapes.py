"""The table of the shapes of secrets: each row in each form, texts that are no secrets, and hostile ones."""

import gc
import html
import json
import re
import time
from base64 import b64encode, encodebytes, urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmagic import secrets
from agentmagic.escapes import _ESCAPES, Places, _character, _decode_simple, decode, decoded_forms
from agentmagic.messages import ToolCall
from agentmagic.replay.exchange import blank_secrets
from agentmagic.secret_shapes import SHAPES
from agentmagic.secrets import BLANK, redact
from agentmagic.serialization import encode
from agentmagic.text import ShownStream, clean, exact, sanitize, sanitize_json

EXPECTED = {
    "password in an address": f"postgres://reader:{BLANK}@db.example.org/sales",
    "bearer token": f"Bearer {BLANK}",
    "basic credentials": f"Basic {BLANK}",
    "authorization header": f"Authorization: Token {BLANK}",
    "cookie": f"Set-Cookie: {BLANK}",
    "netrc": f"machine example.org login ann password {BLANK}",
    "hook": f"https://hooks.slack.com/services/{BLANK}",
    "Telegram bot": f"98765432:{BLANK}",
    "password": f"password={BLANK}",
    "API key": f"x-api-key: {BLANK}",
    "secret": f"client_secret={BLANK}",
    "token": f"https://example.org/?access_token={BLANK}",
    "signature": f"?sv=2024&sig={BLANK}",
}
"""What is left of the examples of the rows that blank a part only."""
EXAMPLES = {shape.name: "".join(shape.example) for shape in SHAPES}


def secret_of(name: str) -> str:
    """The part of an example that no one may see."""
    before, _, after = EXPECTED.get(name, BLANK).partition(BLANK)
    assert EXAMPLES[name].startswith(before)
    assert EXAMPLES[name].endswith(after)
    return EXAMPLES[name][len(before) : len(EXAMPLES[name]) - len(after)]


SECRETS = {name: secret_of(name) for name in EXAMPLES}
MORE = {
    "password": (
        'password = "x7-Quiet.Sea"|x7-Quiet.Sea', "passwd: s3cr3tP@ss|s3cr3tP@ss", "pwd=Pa55word!|Pa55word!",
        "Server=db;User Id=me;Password=hunter2-Qx;|hunter2-Qx", "<password>hunter2-Qx</password>|hunter2-Qx",
        '{"db_password": "hunter2-Qx"}|hunter2-Qx', "connect(user='me', password='hunter2-Qx')|hunter2-Qx",
        "DB_PASSWORD=hunter2-Qx|hunter2-Qx", "dbPassword: hunter2-Qx|hunter2-Qx", "login failed (pwd=hunter2)|hunter2",
        "--password=hunter2-Qx|hunter2-Qx", "--password hunter2-Qx|hunter2-Qx",
        "--token Zx81kLmNq7Rt5Vw3|Zx81kLmNq7Rt5Vw3",
        "--api-key 'a1b2c3d4e5f6'|a1b2c3d4e5f6", "spring.datasource.password=hunter2-Qx|hunter2-Qx",
    ),
    "key": (
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEK|wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEK",
        "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEK|wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEK",
        '"SecretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEK"|wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEK',
        '"SessionToken": "IQoJb3JpZ2luX2VjEJr9f8e7d6c5b4a3+/=="|IQoJb3JpZ2luX2VjEJr9f8e7d6c5b4a3+/==',
        "aws_session_token=IQoJb3JpZ2luX2VjEJr9f8e7d6c5b4a3+/==|IQoJb3JpZ2luX2VjEJr9f8e7d6c5b4a3+/==",
        "AccountName=a;AccountKey=Zx81kLmNq7Rt5Vw3Bn6/Hj2+Qs4Yt9==;E=x|Zx81kLmNq7Rt5Vw3Bn6/Hj2+Qs4Yt9==",
        "('x-api-key', 'a1b2c3d4e5f6')|a1b2c3d4e5f6", '["api-key", "a1b2c3d4e5f6"]|a1b2c3d4e5f6',
        "?key=Zx81kLmNq7Rt5Vw3&v=2|Zx81kLmNq7Rt5Vw3", "?api_key=Zx81kLmNq7Rt5Vw3&v=2|Zx81kLmNq7Rt5Vw3",
        "?a=1&token=Zx81kLmNq7Rt5Vw3|Zx81kLmNq7Rt5Vw3", "_authToken=a1b2c3d4-e5f6-7890-abcd-ef0123456789|ef0123456789",
        "X-Amz-Signature=38af86134b65d0f10fe33d30dd76442e38af86134b65d0f1|38af86134b65d0f10fe33d30dd76442e38af86134b65d0f1",
        "API_KEY: a1b2c3d4e5f6a7b8|a1b2c3d4e5f6a7b8", "apikey='a1b2c3d4e5f6a7b8'|a1b2c3d4e5f6a7b8",
    ),
    "header": (
        'headers={"Authorization": "a1b2c3d4e5f6a7b8c9"}|a1b2c3d4e5f6a7b8c9',
        "Authorization: AWS4-HMAC-SHA256 Credential=me/2024, Signature=38af86134b65d0f10f|38af86134b65d0f10f",
        "{'Cookie': 'sessionid=38afe337504b; theme=dark'}|38afe337504b", "Cookie: a=1; sid=38afe337504b|38afe337504b",
        "redis://:hunter2-Qx@localhost:6379/0|hunter2-Qx", "mongodb+srv://me:p%40ss%2Fw0rd@c.example.org|p%40ss%2Fw0rd",
        "mysql://me:p@ss-w0rd@localhost/db|p@ss-w0rd",
        "machine a.example.org\n  login me\n  account x\n  password hunter2-Qx\n|hunter2-Qx",
        "https://discord.com/api/webhooks/123456789012/AbCdEfGhIj-KlMnOpQr_StUv|AbCdEfGhIj-KlMnOpQr_StUv",
    ),
}  # fmt: skip
"""More texts with secrets beside their names: the text, and what no one may see of it."""

LINE = "It says:\n\tKey "
RED, PLAIN = "\x1b[31m", "\x1b[0m"


def colours(text: str) -> str:
    """The text with a colour before each third character, as a highlighter of syntax writes it."""
    return "".join(f"{RED}{letter}{PLAIN}" if place % 3 == 0 else letter for place, letter in enumerate(text))


def zero_widths(text: str) -> str:
    return "\u200b".join(text)


FORMS = {
    "plain": lambda text: f"{LINE}{text}\nand more",
    "JSON": lambda text: json.dumps({"said": f"{LINE}\n{text}\nand more"}),
    "repr": lambda text: repr(f"{LINE}\n{text}\nand more"),
    "bytes": lambda text: repr(f"{LINE}\n{text}\nand more".encode()),
    "twice JSON": lambda text: json.dumps(json.dumps({"said": f"{LINE}\n{text}\nand more"})),
    "repr of JSON": lambda text: repr(json.dumps(f"\n{text}")),
    "colours": lambda text: f"{LINE}{RED}{colours(text)} and more",
    "colours in JSON": lambda text: json.dumps(f"{RED}{colours(text)}"),
    "zero widths": lambda text: f"{LINE}{zero_widths(text)} and more",
    "zero widths in JSON": lambda text: json.dumps(zero_widths(text)),
    "an address": lambda text: f"https://example.org/?q=%20{quote(text, safe='')}%0Amore",
    "twice in an address": lambda text: f"https://example.org/?q=%2520{quote(quote(text, safe=''), safe='')}",
    "HTML": lambda text: f"<p>{html.escape(text)}</p>",
    "HTML numbers": lambda text: "".join(f"&#{ord(letter)};" for letter in f"\n{text}"),
    "JSON for HTML": lambda text: json.dumps(f"\n{html.escape(text)}").replace("&", "\\u0026"),
    "base64": lambda text: "data: " + b64encode(text.encode() + b".\n").decode(),
    "base64 of an address": lambda text: urlsafe_b64encode(f"a\n{text}\n".encode()).decode(),
    "a name and base64": lambda text: f"auth={b64encode(text.encode()).decode()}&x=1",
    "base64 of a user and a key": lambda text: f"It is {b64encode(f'user:{text}'.encode()).decode()}, it says",
    "hexadecimal": lambda text: f"{LINE}{text.encode().hex()}",
}


@lru_cache(maxsize=1000)
def legible(text: str) -> str:
    """All that can be read in a text: as it is, without its escapes, and the words of base64 and of digits in it."""
    texts = [text, clean(text), *decoded_forms(text)]
    words = {word for one in texts for word in re.findall("[A-Za-z0-9+/_-]{12,}", one)}
    for word in words:
        for at in range(4):
            part = word[at : at + (len(word) - at) // 4 * 4]
            texts.append(urlsafe_b64decode(part.replace("+", "-").replace("/", "_")).decode("latin-1"))
        if re.fullmatch("[0-9A-Fa-f]+", word):
            texts += [bytes.fromhex(word[at : at + (len(word) - at) // 2 * 2]).decode("latin-1") for at in range(2)]
    return "\0".join(texts)


@pytest.mark.parametrize("form", FORMS)
def test_each_row_of_the_table_blanks_its_example_in_every_form(form):
    texts = {name: FORMS[form](example) for name, example in EXAMPLES.items()}
    assert [name for name, text in texts.items() if not seen(SECRETS[name], text) or BLANK not in redact(text)] == []
    looks = [(name, look(text)) for name, text in texts.items() for look in (redact, sanitize, exact)]
    assert [name for name, text in looks if seen(SECRETS[name], text)] == []
    assert [name for name, text in texts.items() if redact(redact(text)) != redact(text)] == []


def seen(secret: str, text: str) -> list[str]:
    """The pieces of a secret, of eight characters, that can be read in a text."""
    readable = legible(text)
    pieces = {secret[place : place + 8] for place in range(0, max(1, len(secret) - 7), 8)}
    return [piece for piece in pieces if piece in readable]


def test_each_row_of_the_table_blanks_exactly_its_secret():
    for name, example in EXAMPLES.items():
        expected = EXPECTED.get(name, BLANK)
        assert redact(example) == expected
        assert redact(f"It is:\n{example}\n") == f"It is:\n{expected}\n"
    assert len({shape.name for shape in SHAPES}) == len(SHAPES) >= 60
    starts = [start for shape in SHAPES for start in shape.starts]
    assert len(set(starts)) == len(starts)


@pytest.mark.parametrize("form", ["plain", "JSON", "repr", "colours", "twice JSON"])
def test_a_value_beside_its_name_is_blanked_in_every_syntax(form):
    rows = [row.rpartition("|") for rows in MORE.values() for row in rows]
    assert [text for text, _, secret in rows if seen(secret, redact(FORMS[form](text)))] == []
    assert [text for text, _, secret in rows if text.partition(secret)[0][:4] not in redact(FORMS["plain"](text))] == []


@pytest.mark.parametrize("form", ["plain", "JSON", "colours", "twice JSON"])
@pytest.mark.parametrize("length", [1, 7])
def test_no_part_of_a_secret_is_shown_of_a_text_that_comes_in_pieces(form, length):
    few = {name: EXAMPLES[name] for name in (*EXPECTED, "private key", "JSON web token", "GitHub", "SendGrid")}
    for name, example in (few | {"a command": "--token Zx81kLmNq7Rt5Vw3"}).items():
        text = FORMS[form](example)
        stream, shown_parts = ShownStream(), list[str]()
        for at in range(0, len(text), length):
            shown_parts.append(stream.feed(text[at : at + length]))
            assert not seen(SECRETS.get(name, "Zx81kLmNq7Rt5Vw3"), "".join(shown_parts))
        assert "".join(shown_parts) + stream.finish() == sanitize(text)


def test_names_in_json_blank_the_values_beside_them():
    arguments = {
        "user": "ann",
        "password": "hunter2-Qx",
        "headers": {"x-api-key": ["a1b2c3d4e5f6"]},
        "page_token": "CAUQAA12345678",
    }
    safe = {"user": "ann", "password": BLANK, "headers": {"x-api-key": [BLANK]}, "page_token": "CAUQAA12345678"}
    assert sanitize_json(arguments) == sanitize_json(arguments, exact) == safe
    assert blank_secrets(ToolCall("1", "connect", arguments))["arguments"] == safe
    assert "hunter2" in encode(ToolCall("1", "connect", arguments))
    assert "hunter2" not in repr(ToolCall("1", "connect", arguments))


KNOWN = "Tr0ub4dor&3/horse+x"


@pytest.mark.parametrize(
    "write",
    [
        *FORMS.values(),
        *(lambda text, n=n: b64encode(b"u" * n + text.encode() + b"more").decode() for n in range(6)),
        lambda text: f"Authorization: {b64encode(f'user:{text}'.encode()).decode()}",
        lambda text: b64encode(f"user:{text}".encode()).decode().replace("+", "-").replace("/", "_"),
        lambda text: text.encode().hex().upper(),
        lambda text: f"auth={b64encode(text.encode()).decode()}",
        lambda text: quote(text, safe="/"),
        lambda text: f"a\\n{text}",
        lambda text: json.dumps(f"ä€ {text}", ensure_ascii=False),
    ],
)
@pytest.mark.parametrize("known", [KNOWN, "hunter2x", "pa\"s's\nwörd/1-Grün", "ключ-от-всех-дверей"])
def test_a_known_value_is_blanked_in_every_form(known, write):
    secrets.register_secret(known)
    text = write(known)
    safe = redact(text, keep_likely=True)
    assert BLANK in safe
    assert not seen(known, safe)
    assert not seen(known.encode().decode("latin-1"), safe)  # as the words of base64 are read


HARMLESS = """\
d41d8cd98f00b204e9800998ecf8427e
da39a3ee5e6b4b0d3255bfef95601890afd80709
e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
commit 8791319a0b1c2d3e4f5061728394a5b6c7d8e9f0
550e8400-e29b-41d4-a716-446655440000
uuid.UUID('12345678-1234-5678-1234-567812345678')
doi:10.1038/s41586-020-2649-2
https://doi.org/10.1145/3292500.3330701
arXiv:1706.03762v7
ISBN 978-3-16-148410-0
3.141592653589793238462643383279
12345678901234567890123456789012345678901234567890
0x7ffeefbff5a8c0de1234567890abcdef
2026-11-26T06:44:58.123456+00:00
password = getpass()
password = getpass.getpass("Password: ")
password = os.environ["DB_PASSWORD"]
password = os.getenv("DB_PASSWORD2", "")
password=args.password1, user=args.user
password = config["db2"]["password"]
password: str | None = None
password: Optional[str] = None
def login(user: str, password: str) -> bool:
password=None, token=None
password=password, secret=secret
password = f"{prefix}{number}"
password="${DB_PASSWORD2}"
password: "{{ vault_password_2 }}"
password: <your password 1>
password = "********"
password=xxxxxxxx
"password": {"type": "string", "minLength": 8}
"password": "string"
"password": "Your password must have 8 characters"
Password: required
the password is required, and so is the token
Enter your password:
I forgot my password; where do I change it?
df[["user_id", "password_hash", "token_count"]]
columns: user, password_hash, created_at2
password_hash = "pbkdf2_sha256"
passwordless login with passkeys2
password_reset_url: https://example.org/reset/1
PWD=/home/ann/notebooks2024
pwd: D:/users/ann2
token = tokens[0]
token = tokens2[1:-1]
token = next(tokens)
token = tokenizer.convert_ids_to_tokens(101)
token_count=4096, max_tokens=1024
"next_page_token": "CAUQAA1b2c3d4e5f6g7"
"nextPageToken": "EAAaBlBUOkNBVQ1a2b3c"
pad_token = "<pad>", eos_token="</s>"
eos_token: "endoftext100257x"
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
secrets.token_hex(16)
secret santa is on December 24
secretary: Ann Smith
client_secret = load_secret("client")
api_key = config.api_key
api_key=API_KEY_2
api_key = "your-api-key-12345678"
api_key: <YOUR_API_KEY1>
primary_key = "user_id_2024"
sort_key=lambda row: row[1]
df.groupby(key="region1_name2")
keyword = "region12345678"
monkey=banana12345678
key: value123456
{"key": "user:1a2b3c4d5e6f", "value": 12}
cache_key="users/1a2b3c4d/profile"
public_key: "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE"
-----BEGIN PUBLIC KEY-----
-----BEGIN CERTIFICATE-----
The file starts with -----BEGIN PRIVATE KEY----- and ends with another line.
sk-learn-compatible-estimators
scikit-learn and sk-image and task-12345678901234567890
risk-adjusted-returns-of-the-portfolio
ask-me-anything-about-transformers
https://github.com/owner/repository-with-a-long-name/blob/main/src/module_name.py
/usr/local/lib/python3.11/site-packages/pandas/core/frame.py
https://example.org/search?q=password&page=2
https://example.org/?key=name&token=abc
https://example.org/?sig=1&signature=none
http://localhost:8888/tree?token=
http://localhost:8080/a@b and https://example.org/x?y=1:2@3
postgres://user:password@localhost/db
postgres://user:${DB_PASSWORD}@localhost/db
git clone ssh://git@github.com:22/owner/repository.git
mailto:ann.smith@example.org
Bearer of bad news, Bearer responsibilities
Basic JavaScriptProgramming for beginners
Authorization: required
Authorization: Bearer <token>
headers = {"Authorization": f"Bearer {token}"}
Cookie: the recipe needs 200 g of flour
cookies = requests.get(url).cookies
cookie_policy="strict2024policy"
machine learning models login to nothing
The machine has 16 cores; login with your password
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==
VGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIHRoZSBsYXp5IGRvZw==
54686520717569636b2062726f776e20666f78
Ann    34   Berlin   2024-01-02   1.5e-07
SKU1234567890 SKLEARN AKIA is a word
AIzaSomething short
eyJhbGciOiJub25lIn0 is the head of a token
def test_password_is_required(client): assert client.post("/login")
UPDATE users SET password = :password WHERE id = 12345678
autocomplete="current-password" type="password"
"password": "string?", "token": "str | None"
http://<user>:<password>@proxy-host:8080
"Cookie: %s=%s" % (name, value)
"""


def test_harmless_texts_stay_as_they_are_in_every_form():
    lines = HARMLESS.splitlines()
    assert len(lines) >= 100
    forms = [FORMS[name] for name in FORMS if name not in ("an address", "twice in an address")]
    hits = [(line, redact(text)) for line in lines for write in forms if redact(text := write(line)) != text]
    assert hits == []
    assert redact(HARMLESS) == HARMLESS
    assert redact(json.dumps(lines)) == json.dumps(lines)


def test_base64_that_hides_no_secret_stays_and_lines_of_it_too():
    data = bytes(range(256)) * 40
    for text in (b64encode(data).decode(), encodebytes(data).decode(), data.hex()):
        assert redact(text) == text


HOSTILE = (
    *(word * (100_000 // len(word)) for shape in SHAPES if not shape.key for word in shape.starts),
    *(shape.starts[0] * (100_000 // len(shape.starts[0])) for shape in SHAPES if shape.key),
    *(
        word * (100_000 // len(word))
        for word in ("a", "\\", "%", "&amp;", "\\u", "\x1b[", "-", "://a:", "sk-a", " ", "=")
    ),
    *(
        word * (100_000 // len(word))
        for word in ("cookie=a ", 'password="', "machine a ", "eyJhbGciOi.", "\u200b", "\\\\n")
    ),
    "-----BEGIN PRIVATE KEY-----" + "A" * 100_000,
    "password=" + " " * 100_000,
    "bearer " + "a" * 100_000,
    "sk-" + "-" * 100_000,
    "&" + "amp;" * 25_000,
    "%" + "25" * 50_000,
)


@pytest.fixture
def no_collection():
    """To collect what a million objects of the tests before have left takes a second."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
def test_no_text_takes_long():
    def seconds(text: str) -> float:
        start = time.thread_time()
        redact(text)
        secrets.safe_length(text)
        return time.thread_time() - start

    ordinary = max(
        seconds("The quick brown fox jumps over the lazy dog, and the token is old. " * 1500) for _ in range(3)
    )
    slow = {text[:20]: seconds(text) for text in HOSTILE}
    assert {text: taken for text, taken in slow.items() if taken > 150 * ordinary + 0.1} == {}


PIECES = st.sampled_from(
    [*'\\n"/tr%\n é', "\\\\", "u0041", "x41", "u200b", "%41", "%2541", "&amp;", "&lt;", "#65;", RED, "\u200b"]
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_places_of_what_was_decoded_lead_back(text):
    for number, reading in enumerate(decoded_forms(text)):
        places = Places(text, number)
        assert places.text == reading
        for at in range(len(reading)):
            start, end = places.span(at, at + 1)
            assert 0 <= start < end <= len(text)
            assert text[start:end] == reading[at] or decode(text[start:end]) != text[start:end]


@given(st.lists(st.sampled_from(["\\", "\\\\", "n", "t", "r", '"', "-", "/", "a", "s"]), max_size=12).map("".join))
def test_backslashes_are_decoded_alike_fast_and_slowly(text):
    assert _decode_simple(text) == dict(_ESCAPES)["\\"].sub(_character, text)
