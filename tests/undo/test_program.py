"""What the analysis of a program says that it does: names, and risks with what they are about."""

import dis
import os
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agentmagic.undo.changes import Changes
from agentmagic.undo.program import AFTERWARDS, READS, analyse, names_of
from tests.undo.harmless_programs import cells
from tests.undo.hostile_programs import hostile
from tests.undo.hostile_programs import notebook as scratch


class Counter:
    """An object that may be changed by being read."""

    def __len__(self) -> int:
        return 1


def site_exit():
    """Return an `exit` as Python binds it."""
    import _sitebuiltins

    return _sitebuiltins.Quitter("exit", "Ctrl-D")


def notebook() -> dict[str, Any]:
    return {
        "rows": [{"n": 2}, {"n": 1}],
        "numbers": [3, 1, 2],
        "settings": {"a": 1},
        "counter": Counter(),
        "groups": defaultdict(list),
        "touch": lambda: 0,
        "word": "text",
    }


def test_a_card_says_what_is_read_and_written_and_ends_with_what_is_certain():
    known = {**notebook(), "frame": pd.DataFrame({"a": [1]}), "os": os}
    for code, lines in (
        ("print(len(rows), word)", ("Reads: rows, word", READS)),
        ("rows.append(word)", ("Reads: rows, word", "Writes: rows", AFTERWARDS)),
        ("touch()", ("Reads: touch", AFTERWARDS)),
        ("del rows", ("Removes: rows", AFTERWARDS)),
        ("import numpy.linalg", ("Writes: numpy", "Imports: numpy.linalg", AFTERWARDS)),
        ("x = tools.search(1)", ("Writes: x", "Calls tools: search", AFTERWARDS)),
        ("x = open('notes.txt')", ("Writes: x", "Reads files: notes.txt", AFTERWARDS)),
        ("os.remove('data/old.csv')", ("Reads: os", "Risk: deletes `data/old.csv` (line 1)")),
    ):
        assert analyse(code, known).lines() == lines, code
    assert analyse("print(len(rows), word)").lines() == ("Reads: rows, word", AFTERWARDS)
    assert READS not in analyse("len(rows)", {**known, "len": known["touch"]}).lines()  # the name hides the function


@pytest.mark.parametrize(
    ("code", "writes"),
    [
        ("rows[0]['n'] = 1", {"rows"}),
        ("settings[numbers.pop()] = 1", {"numbers", "settings"}),
        ("numbers.append(1)", {"numbers"}),
        ("for row in rows:\n    row['n'] += 1", {"row"}),
        ("def f():\n    global word\n    word = 1", {"f", "word"}),
        ("frame.drop(columns='a', inplace=True)", {"frame"}),
        ("np.add(array, 1, out=array)", {"array"}),
        ("[settings := 3]", {"settings"}),
        ("for settings['a'] in range(9): pass", {"settings"}),
        ("import json as settings", {"settings"}),
        ("try:\n    1 / 0\nexcept ZeroDivisionError as word:\n    pass", {"word"}),
        ("match 5:\n    case word:\n        pass", {"word"}),
        ("numbers[:] = []", {"numbers"}),
        ("settings |= {'b': 1}", {"settings"}),
        ("exec('word = 1')", {"word"}),
        ("%%capture shown\nword = 1", {"shown", "word"}),
        ("x = %timeit -o -n 2 len(rows)", {"x"}),
        ("print(numbers)", set()),
    ],
)
def test_what_a_program_writes_is_named(code: str, writes: set[str]):
    assert analyse(code, notebook()).writes == writes


RISKS = r"""
os.remove('data/old.csv') | deletes `data/old.csv` (line 1)
path = 'data/old.csv'\nos.remove(path) | deletes `data/old.csv` (line 2)
os.remove(path) | deletes files: `os.remove(path)` (line 1)
from os import remove as wipe\nwipe('a.csv') | deletes `a.csv` (line 2)
getattr(os, 'remove')('a.csv') | deletes `a.csv` (line 1)
__import__('os').remove('a.csv') | deletes `a.csv` (line 1)
importlib.import_module('os').remove('a.csv') | deletes `a.csv` (line 1)
list(map(os.remove, names)) | deletes files: `os.remove` (line 1)
vars(os)['remove']('a.csv') | deletes `a.csv` (line 1)
os.__dict__['remove']('a.csv') | deletes `a.csv` (line 1)
sys.modules['os'].remove('a.csv') | deletes `a.csv` (line 1)
shutil.rmtree('data') | deletes `data` (line 1)
Path('a.csv').unlink() | deletes `a.csv` (line 1)
(Path('data') / 'a.csv').unlink(missing_ok=True) | deletes `data/a.csv` (line 1)
for one in folder.glob('*'):\n    one.unlink() | deletes files: `one.unlink()` (line 2)
%time os.remove('a.csv') | deletes `a.csv` (line 1)
%%time\nos.remove('a.csv') | deletes `a.csv` (line 2)
%%timeit os.remove('a.csv')\npass | deletes `a.csv` (line 1)
x = %timeit -o -n 3 os.remove('a.csv') | deletes `a.csv` (line 1)
!ls \\n    data\nos.remove('a.csv') | deletes `a.csv` (line 3)
df.to_csv('out.csv') | writes `out.csv` (line 1)
df.to_csv(path_or_buf='out.csv') | writes `out.csv` (line 1)
df.to_parquet(f'{folder}/out.parquet') | writes `{folder}/out.parquet` (line 1)
df.write_json('out.json') | writes `out.json` (line 1)
with pd.ExcelWriter('book.xlsx') as writer: pass | writes `book.xlsx` (line 1)
df.agg('to_csv', 0, 'out.csv') | writes files: `df.agg('to_csv', 0, 'out.csv')` (line 1)
df.to_sql('sales', con) | writes the table `sales` (line 1)
plt.savefig('plot.png') | writes `plot.png` (line 1)
np.save('array.npy', array) | writes `array.npy` (line 1)
np.memmap('array', mode='w+') | writes `array` (line 1)
torch.save(model, 'model.pt') | writes `model.pt` (line 1)
open('notes.txt', 'w').write('x') | writes `notes.txt` (line 1)
with open('notes.txt', mode='a') as file: pass | writes `notes.txt` (line 1)
open(path, mode) | writes files: `open(path, mode)` (line 1)
Path('notes.txt').open('w') | writes `notes.txt` (line 1)
Path('notes.txt').write_text('x') | writes `notes.txt` (line 1)
os.makedirs('out', exist_ok=True) | writes `out` (line 1)
shutil.copy('a.csv', 'b.csv') | writes `b.csv` (line 1)
os.rename('a.csv', 'b.csv') | moves `a.csv` (line 1)
zipfile.ZipFile('a.zip').extractall('out') | writes `out` (line 1)
%%writefile helpers.py\nx = 1 | writes `helpers.py` (line 1)
pd.read_csv('https://example.org/a.csv') | reads `https://example.org/a.csv` (line 1)
url = 'https://example.org/a.csv'\npd.read_csv(url) | reads `https://example.org/a.csv` (line 2)
pl.scan_parquet('s3://bucket/a.parquet') | reads `s3://bucket/a.parquet` (line 1)
requests.get(url) | uses the network: `requests.get(url)` (line 1)
import requests as r\nr.get('https://example.org') | reads `https://example.org` (line 2)
client.get('https://example.org') | reads `https://example.org` (line 1)
requests.post('https://example.org', json=data) | sends data to `https://example.org` (line 1)
client.post(url='https://example.org') | sends data to `https://example.org` (line 1)
smtplib.SMTP('mail.example.org') | sends data to `mail.example.org` (line 1)
socket.socket() | uses the network: `socket.socket()` (line 1)
boto3.client('s3') | uses the network: `boto3.client('s3')` (line 1)
sqlalchemy.create_engine('postgresql://host/base') | reads `postgresql://host/base` (line 1)
urllib.request.urlretrieve('https://example.org/a.zip') | downloads `https://example.org/a.zip` (line 1)
sns.load_dataset('tips') | downloads `tips` (line 1)
from sklearn.datasets import *\nfetch_openml('mnist') | downloads `mnist` (line 2)
AutoModel.from_pretrained('bert-base-uncased') | downloads `bert-base-uncased` (line 1)
os.system('rm -rf data') | runs the shell command `rm -rf data` (line 1)
subprocess.run(['git', 'push']) | runs the shell command `git push` (line 1)
subprocess.run(command) | runs a shell command: `subprocess.run(command)` (line 1)
from subprocess import run\nrun(['ls']) | runs the shell command `ls` (line 2)
!rm -rf data | runs the shell command `rm -rf data` (line 1)
files = !ls | runs the shell command `ls` (line 1)
%%bash\nrm -rf data | runs the shell command `bash rm -rf data` (line 1)
get_ipython().system('ls') | runs the shell command `ls` (line 1)
get_ipython().run_line_magic('bash', 'ls') | runs the shell command `bash ls` (line 1)
multiprocessing.Pool(4) | starts a process: `multiprocessing.Pool(4)` (line 1)
!pip install pandas | changes packages with `pip install pandas` (line 1)
%pip uninstall pandas | changes packages with `pip uninstall pandas` (line 1)
subprocess.run([sys.executable, '-m', 'pip', 'install', 'x']) | changes packages with `… -m pip install x` (line 1)
os.environ['OPENAI_API_KEY'] | reads the credential `OPENAI_API_KEY` (line 1)
os.environ.get('AWS_SECRET_ACCESS_KEY') | reads the credential `AWS_SECRET_ACCESS_KEY` (line 1)
os.getenv('GITHUB_TOKEN') | reads the credential `GITHUB_TOKEN` (line 1)
dict(os.environ) | reads credentials: `os.environ` (line 1)
os.environ.items() | reads credentials: `os.environ.items()` (line 1)
%env OPENAI_API_KEY | reads the credential `OPENAI_API_KEY` (line 1)
getpass.getpass('Password: ') | reads credentials: `getpass.getpass('Password: ')` (line 1)
open('/home/me/.aws/credentials') | reads the credential `/home/me/.aws/credentials` (line 1)
open(r'C:\Users\me\.ssh\id_rsa') | reads the credential `C:\Users\me\.ssh\id_rsa` (line 1)
con.execute('DELETE FROM sales') | runs SQL that writes: `DELETE FROM sales` (line 1)
con.execute('/* a */ drop table if exists sales') | runs SQL that writes: `/* a */ drop table if exists sales` (line 1)
query = "UPDATE sales SET n = 1"\ncon.execute(text(query)) | runs SQL that writes: `UPDATE sales SET n = 1` (line 2)
pd.read_sql('CREATE TABLE a AS SELECT 1', con) | runs SQL that writes: `CREATE TABLE a AS SELECT 1` (line 1)
duckdb.sql("COPY sales TO 'out.csv'") | runs SQL that writes: `COPY sales TO 'out.csv'` (line 1)
%%sql\nDELETE FROM sales | runs SQL that writes: `DELETE FROM sales` (line 1)
np.load('a.npy', allow_pickle=True) | loads a pickle, which can run code: `a.npy` (line 1)
pd.read_pickle('a.pkl') | loads a pickle, which can run code: `a.pkl` (line 1)
pickle.loads(data) | loads a pickle, which can run code: `pickle.loads(data)` (line 1)
torch.load('model.pt') | loads a pickle, which can run code: `model.pt` (line 1)
yaml.load(text) | loads a pickle, which can run code: `yaml.load(text)` (line 1)
exec('a = 1') | runs code from the text `a = 1` (line 1)
exec('os.remove("a.csv")') | deletes `a.csv` (line 1)
eval(text) | runs code from text: `eval(text)` (line 1)
df.query('@os.remove("a")') | runs code from the text `@os.remove("a")` (line 1)
df.agg('eval', 0, '@f()') | runs code from text: `df.agg('eval', 0, '@f()')` (line 1)
pd.eval('rows.clear()') | runs code from the text `rows.clear()` (line 1)
%run script.py | runs the script `script.py` (line 1)
if 1:\n    %tensorboard --logdir logs | runs the magic of IPython `tensorboard --logdir logs` (line 2)
%reset -f | deletes variables with `reset -f` (line 1)
get_ipython().run_cell('1') | runs code from the text `1` (line 1)
sys.settrace(None) | reaches into the interpreter: `sys.settrace(None)` (line 1)
f.__globals__['x'] | reaches into the interpreter: `f.__globals__` (line 1)
import os as o\no._exit(1) | can end the kernel, with all its variables: `o._exit(1)` (line 2)
from os import _exit as bye\nbye(1) | can end the kernel, with all its variables: `from os import _exit` (line 1)
from os import *\n_exit(1) | can end the kernel, with all its variables: `_exit(1)` (line 2)
f = os._exit\nf(1) | can end the kernel, with all its variables: `os._exit` (line 1)
getattr(os, '_exit')(1) | can end the kernel, with all its variables: `getattr(os, '_exit')(1)` (line 1)
__import__('os')._exit(1) | can end the kernel, with all its variables: `__import__('os')._exit(1)` (line 1)
import signal\nsignal.alarm(1) | can end the kernel, with all its variables: `signal.alarm(1)` (line 2)
kernel.do_shutdown(False) | can end the kernel, with all its variables: `kernel.do_shutdown(False)` (line 1)
"""


@pytest.mark.parametrize("row", RISKS.strip().splitlines())
def test_a_risk_is_told_with_what_it_is_about(row: str):
    code, _, risk = row.rpartition(" | ")
    program = analyse(code.replace("\\n", "\n"))
    assert risk in program.risks
    assert program.lines()[-1].startswith("Risk: ")


def test_a_function_or_a_module_of_the_notebook_is_known_by_what_it_is():
    for code, held, risks in (
        ("wipe('a')", {"wipe": shutil.rmtree}, ("deletes `a` (line 1)",)),
        ("tool.rmtree('a')", {"tool": shutil}, ("deletes `a` (line 1)",)),
        ("rows.remove('a')", {"rows": [1]}, ()),
        ("os.remove('a')", {"os": ["a"]}, ()),
        ("bye(1)", {"bye": os._exit}, ("can end the kernel, with all its variables: `bye(1)` (line 1)",)),
        ("environ['API_KEY']", {"environ": os.environ}, ("reads the credential `API_KEY` (line 1)",)),
        ("frame.to_csv(path)", {"path": "a.csv"}, ("writes `a.csv` (line 1)",)),
        ("mine()", {"mine": site_exit}, ()),
        ("sys.exit(3)", {"sys": sys}, ()),
    ):
        assert analyse(code, held).risks == risks, code


def test_an_argument_on_a_card_is_one_short_line_with_secrets_blanked_and_nothing_hidden():
    key = "sk-ant-" + "a1b2c3d4" * 6
    (risk,) = analyse(f"!curl -H 'x-api-key: {key}' \u202e {'x' * 500}").risks
    assert key not in risk
    assert "\\u202e" in risk
    assert len(risk) < 160


@pytest.mark.parametrize("code", ["quit(3)", "print(numbers)\nexit('enough')"])
def test_a_program_that_ends_itself_has_no_risk_and_changes_nothing(code: str):
    for held in ({}, {"exit": site_exit(), "quit": site_exit()}):
        program = analyse(code, {**notebook(), **held})
        assert program.lines()[-1] == READS
        assert program.reads <= {"numbers"}


@pytest.mark.parametrize("code", ["exit()", "def f(exit):\n    exit()\nf(print)", "exit = print\nexit()"])
def test_an_exit_that_the_user_or_the_program_has_bound_may_do_anything(code: str):
    assert READS not in analyse(code, {"exit": lambda: None}).lines()


@pytest.mark.parametrize("code", ["def f(:", "(" * 5000 + ")" * 5000, "x = '\x00'", "f = $"])
def test_what_is_no_python_is_a_risk(code: str):
    assert analyse(code).risks == ("cannot be read as Python",)
    assert analyse(code).names is None


# -- the names that a program may touch ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        *("exec(text)", "eval('rows')", "globals()['rows']", "locals()", "vars()", "get_ipython().user_ns['rows']"),
        *("getattr(f, name)", "f.__globals__", "sys.modules['__main__']", "from sys import modules", "import __main__"),
        *("__import__('x')", "%run script.py", "!echo $rows", "%reset -f", "Out[3]", "_", "_12.append(1)", "%mine"),
        *("frame.query('a > @limit')", "frame.eval(text)", "pd.eval('rows.clear()')", "frame.agg('eval', 0, '@f()')"),
        *("frame.agg(how, 0, text)", "frame.apply(how, args=(text,))", "frame.agg(how, expr=text)", "map(eval, texts)"),
        *("pickle.loads(data)", "np.load('a', allow_pickle=True)", "from helpers import *", "inspect.currentframe()"),
    ],
)
def test_a_program_that_can_reach_what_it_does_not_name_may_touch_all(code: str):
    assert analyse(code).names is None


def test_a_program_that_names_what_it_touches_has_these_names():
    for code, names in (
        ("rows.append(len(numbers))", {"rows", "numbers"}),
        ("def f(rows):\n    return rows + word\nf(1)", {"f", "word"}),
        ("frame.query('a > 1')", {"frame"}),
        ("getattr(model, 'coef_')", {"model"}),
        ("for _ in range(3): rows.pop()", {"_", "rows"}),
        ("%time rows.pop()", {"rows"}),
        ("%matplotlib inline", set()),
        ("'df' in dir()", set()),
        ("x = tools.search(word)", {"x", "word"}),
    ):
        assert analyse(code, notebook()).names == names, code


def _globals_of(code: CodeType) -> Iterator[str]:
    """Yield the names of the module that compiled code loads, binds and deletes."""
    for one in dis.get_instructions(code):
        if one.opname.endswith(("_NAME", "_GLOBAL")) and not one.opname.startswith("IMPORT"):
            yield str(one.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _globals_of(inner)


def test_no_name_of_the_notebook_is_left_out():
    namespace = scratch()
    programs = [one for kind in hostile().values() for one in kind] + [one for kind in cells() for one in kind]
    for code in programs:
        names = analyse(code, namespace).names
        if names is not None and not any(line.startswith(("%", "!", "?")) for line in code.splitlines()):
            compiled = compile(code, "<program>", "exec", dont_inherit=True, flags=0x2000)  # with top-level await
            assert names >= set(_globals_of(compiled)) & namespace.keys(), code
            assert (of_code := names_of(compiled)) is None or names & namespace.keys() <= of_code, code


def test_a_large_program_is_read_in_a_moment():
    line = "table{} = table.merge(other, on='a').groupby('b').sum().to_csv('out{}.csv')"
    code = "\n".join(line.format(one, one) for one in range(300))
    began = time.process_time()
    assert len(analyse(code).risks) == 300
    assert time.process_time() - began < 2


def test_an_array_of_objects_runs_the_code_of_their_classes():
    for code in ("print(objects)", "objects.sum()", "max(objects.tolist()).head()"):
        assert READS not in analyse(code, {"objects": np.array([Counter()], dtype=object)}).lines(), code
    assert analyse("print(objects)", {"objects": np.array(["a", 1], dtype=object)}).only_reads


CLASS_BODIES = [
    "class A:\n    rows = rows\n    rows.append(3)",
    "class A:\n    rows.append(3)\n    rows = 3",
    "class A:\n    (rows := rows).append(3)",
    "class A:\n    rows: list = rows\n    rows += [2]",
    "class A:\n    if rows:\n        rows = rows.append(2)",
    "class A:\n    rows[0] = 5\n    rows = 1",
    "class A:\n    rows = 1\n    def add(self): rows.append(1)\nA().add()",
    "class A:\n    rows = 1\n    add = lambda self: rows.append(1)\nA().add()",
    "class A:\n    rows = [rows.append(v) for v in (1, 2)]",
    "class A:\n    x = rows.pop()",
    "class A(base(rows.append(1))): pass",
    "class A(metaclass=Meta): pass",
    "class A(Registered): pass",
    "class A:\n    field = Named()",
    "class A:\n    rows.append(1)",
    "@register\nclass A: pass",
    "@register\ndef f(): pass",
    "@numbered(rows.pop())\ndef f(): pass",
    "def f(x=rows.append(3)): pass",
    "def f(*, x: rows.append(3) = 1) -> rows.append(4): pass",
    "f = lambda x=rows.append(1): x",
    "async def f(x=rows.append(1)): pass",
    "x: rows.append(1) = 2",
    "match rows.pop():\n    case 1: pass",
    "match 3:\n    case x if rows.append(1): pass",
    "s = f'{1:{rows.pop()}}'",
    "def f():\n    x = [rows for rows in (1, 2)]\n    rows.append(x)\nf()",
    "import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: list = dataclasses.field(default_factory=made)\nA()",
]
REGISTRY = """
rows, base, made = [1, 2], lambda x: object, lambda: rows.append(1)
class Meta(type):
    def __new__(meta, *a):
        rows.append(a)
        return super().__new__(meta, *a)
class Registered:
    def __init_subclass__(cls): rows.append(cls)
class Named:
    def __set_name__(self, owner, name): rows.append(name)
def register(it):
    rows.append(it)
    return it
def numbered(number): return register
"""


@pytest.mark.parametrize("program", CLASS_BODIES)
def test_what_a_class_body_a_decorator_or_a_default_changes_is_seen_and_put_back(program):
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(REGISTRY, space)  # noqa: S102
    changes = Changes(space)
    changes.expect(analyse(program, space).names)
    exec(program, space)  # noqa: S102
    assert space["rows"] != [1, 2]
    assert "rows" in changes.settle().touched_names
    assert changes.restore().refused == {}
    assert space["rows"] == [1, 2]


def test_a_name_of_a_class_is_not_shown_as_a_variable():
    program = analyse("class A:\n    rows = []\n    rows.append(1)\n    first = rows[0]\n    del rows", {"rows": [1]})
    assert (program.reads, program.writes, program.removes) == (set(), {"A"}, set())
    assert program.names == {"A", "rows"}
