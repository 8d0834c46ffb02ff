"""One table of risks: what a call, an IPython line or an SQL text does that a user should know before it runs.

A function is found by its dotted path, such as `os.remove`. A method of an unknown object is found by its name, such as
`.to_csv`, if the name has only one meaning in the libraries that notebooks use. In a path, "()" stands for an object of
a class: `pathlib.Path().unlink`. Each effect, such as "deletes", is called an act.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from agentmagic.secrets import is_secret_name
from agentmagic.text import clip, exact, word_set

LONGEST = 100
"""Largest number of characters shown of an argument."""

OPENS = "opens"
"""The act of a call that only reads a local file, which is not a risk."""

PHRASES = {
    "deletes": ("deletes", "deletes files"),
    "writes": ("writes", "writes files"),
    "moves": ("moves", "moves files"),
    "fetches": ("reads", "uses the network"),
    "sends": ("sends data to", "uses the network"),
    "downloads": ("downloads", "downloads data"),
    "shell": ("runs the shell command", "runs a shell command"),
    "process": ("starts the process", "starts a process"),
    "installs": ("changes packages with", "changes packages"),
    "code": ("runs code from the text", "runs code from text"),
    "script": ("runs the script", "runs a script"),
    "magic": ("runs the magic of IPython", "runs a magic of IPython"),
    "pickle": ("loads a pickle, which can run code:", "loads a pickle, which can run code"),
    "credential": ("reads the credential", "reads credentials"),
    "sql": ("runs SQL that writes:", "runs SQL that writes"),
    "table": ("writes the table", "writes a table"),
    "resets": ("deletes variables with", "deletes variables"),
    "ends": ("", "can end the kernel, with all its variables"),
    "inside": ("", "reaches into the interpreter"),
}
"""What the user is told of each act: the words before a constant argument, and those before the source of the call."""

RUNS_CODE = word_set("code script magic pickle resets inside")
"""Acts through which a program can reach variables that it does not name."""

_ROWS = {
    "deletes": "os.remove os.unlink os.rmdir os.removedirs posix.remove posix.unlink shutil.rmtree "
    "send2trash.send2trash .rmtree pathlib.Path().unlink@self pathlib.Path().rmdir@self .unlink@self .rmdir@self "
    ".delete_many .delete_one .drop_collection .drop_table .drop_database",
    "writes": "os.mkdir os.makedirs os.link@1 os.symlink@1 os.truncate os.mkfifo os.mknod os.chmod os.chown "
    "os.utime os.open shutil.copy@1 shutil.copy2@1 shutil.copyfile@1 shutil.copytree@1 shutil.copyfileobj@1 "
    "shutil.make_archive shutil.unpack_archive shutil.chown numpy.save numpy.savez numpy.savez_compressed "
    "numpy.savetxt torch.save@1 joblib.dump@1 scipy.io.savemat .savemat scipy.io.wavfile.write wavfile.write "
    "soundfile.write cv2.imwrite .imwrite .imsave .savetxt .savez pandas.ExcelWriter .ExcelWriter pandas.HDFStore "
    ".HDFStore logging.FileHandler nbformat.write@1 pandas.to_pickle@1 polars.DataFrame().serialize "
    ".write_text@self .write_bytes@self .symlink_to@self .hardlink_to@self .chmod@self pathlib.Path().touch@self "
    "pathlib.Path().mkdir@self .mkdir@self .makedirs zipfile.ZipFile().extractall zipfile.ZipFile().extract "
    "tarfile.open().extractall tarfile.open().extract tempfile.NamedTemporaryFile tempfile.mkstemp tempfile.mkdtemp "
    "dbm.open .save_pretrained .save_weights .save_model .dump_svmlight_file@2",
    "exports": ".to_csv .to_excel .to_parquet .to_json .to_feather .to_hdf .to_pickle .to_html .to_stata .to_orc "
    ".to_xml .to_latex .to_markdown .to_string .to_file .to_netcdf .to_zarr .write_csv .write_json .write_ndjson "
    ".write_parquet .write_excel .write_ipc .write_ipc_stream .write_avro .write_delta .write_html .write_image "
    ".write_table@1 .write_feather@1 .write_dataset@1 .sink_csv .sink_parquet .sink_ipc .sink_ndjson .sink_delta "
    ".savefig .tofile .save",
    "table": ".to_sql .to_gbq .write_database .write_iceberg .insert_many .insert_one .update_many .update_one",
    "moves": "os.rename os.renames os.replace shutil.move pathlib.Path().rename@self pathlib.Path().replace@self",
    "fetches": "urllib.request.urlopen urllib.urlopen .urlopen requests.get requests.head requests.options "
    "requests.Session().get requests.Session().head httpx.get httpx.head httpx.stream httpx.Client().get "
    "httpx.AsyncClient().get aiohttp.ClientSession().get http.client.HTTPConnection http.client.HTTPSConnection "
    "http.HTTPSConnection http.HTTPConnection urllib3.PoolManager urllib3.request ftplib.FTP ftplib.FTP_TLS "
    "imaplib.IMAP4 imaplib.IMAP4_SSL poplib.POP3 poplib.POP3_SSL telnetlib.Telnet socket.socket "
    "socket.create_connection socket.create_server socketserver.TCPServer http.server.HTTPServer "
    "xmlrpc.client.ServerProxy websockets.connect webbrowser.open paramiko.SSHClient paramiko.Transport "
    "boto3.client boto3.resource boto3.Session pymongo.MongoClient redis.Redis psycopg2.connect psycopg.connect "
    "pymysql.connect mysql.connector.connect fsspec.filesystem s3fs.S3FileSystem gcsfs.GCSFileSystem "
    "google.cloud.storage.Client google.cloud.bigquery.Client .read_gbq openai.OpenAI anthropic.Anthropic "
    "requests.Session httpx.Client httpx.AsyncClient aiohttp.ClientSession",
    "sends": "requests.post requests.put requests.patch requests.delete requests.request@1 requests.Session().post "
    "requests.Session().put requests.Session().patch requests.Session().delete requests.Session().request@1 "
    "httpx.post httpx.put httpx.patch httpx.delete httpx.request@1 httpx.Client().post httpx.Client().put "
    "smtplib.SMTP smtplib.SMTP_SSL .sendmail .send_message wandb.init wandb.log .push_to_hub .upload_file "
    ".upload_fileobj aiohttp.ClientSession().post",
    "downloads": "urllib.request.urlretrieve urllib.urlretrieve .urlretrieve .load_dataset .from_pretrained "
    "nltk.download wget.download gdown.download kagglehub.dataset_download kagglehub.model_download "
    "yfinance.download yf.download torch.hub.load torch.hub.download_url_to_file .hf_hub_download "
    ".snapshot_download .fetch_openml .fetch_california_housing .fetch_20newsgroups .fetch_20newsgroups_vectorized "
    ".fetch_lfw_people .fetch_lfw_pairs .fetch_olivetti_faces .fetch_covtype .fetch_rcv1 .fetch_kddcup99 "
    ".fetch_species_distributions tf.keras.utils.get_file keras.utils.get_file spacy.cli.download .download_file",
    "shell": "os.system os.popen subprocess.run subprocess.call subprocess.check_call subprocess.check_output "
    "subprocess.Popen subprocess.getoutput subprocess.getstatusoutput posix.system get_ipython().system "
    "get_ipython().getoutput get_ipython().getoutput asyncio.create_subprocess_shell asyncio.create_subprocess_exec "
    "asyncio.subprocess.create_subprocess_shell asyncio.subprocess.create_subprocess_exec pexpect.spawn pexpect.run",
    "process": "multiprocessing.Process multiprocessing.Pool multiprocessing.get_context "
    "concurrent.futures.ProcessPoolExecutor concurrent.ProcessPoolExecutor os.fork os.forkpty os.posix_spawn "
    "os.posix_spawnp os.spawnl os.spawnv os.spawnvp os.spawnlp os.spawnle os.spawnve os.startfile pty.spawn pty.fork",
    "installs": "pip.main pip._internal.main micropip.install piplite.install ensurepip.bootstrap",
    "code": "eval exec compile builtins.eval builtins.exec builtins.compile runpy.run_path runpy.run_module "
    "types.FunctionType types.CodeType code.interact timeit.timeit timeit.repeat cProfile.run profile.run "
    "get_ipython().run_cell get_ipython().ex get_ipython().ev .run_cell .run_cell_async .runcode .runsource",
    "pickle": "pickle.load pickle.loads pickle.Unpickler _pickle.load _pickle.loads dill.load dill.loads "
    "cloudpickle.load cloudpickle.loads joblib.load torch.load marshal.load marshal.loads shelve.open shelve.Shelf "
    "jsonpickle.decode .read_pickle yaml.load yaml.load_all yaml.unsafe_load yaml.full_load "
    "sklearn.externals.joblib.load",
    "environment": "os.environ os._Environ() os.getenv os.environ.get os.environ.pop os.environ.setdefault "
    "os.environ.items os.environ.values os.environ.copy os._Environ().get os._Environ().pop os._Environ().items "
    "os._Environ().values",
    "credential": "getpass.getpass getpass.unix_getpass keyring.get_password keyring.get_credential "
    "keyring.set_password dotenv.load_dotenv dotenv.dotenv_values netrc.netrc google.colab.userdata.get os.environb "
    ".get_secret kaggle_secrets.UserSecretsClient huggingface_hub.login huggingface_hub.notebook_login "
    "huggingface_hub.get_token",
    "ends": "os._exit os.abort os.kill os.killpg os.execl os.execle os.execlp os.execlpe os.execv os.execve "
    "os.execvp os.execvpe posix._exit posix.kill posix.abort signal.alarm signal.raise_signal signal.pthread_kill "
    "signal.setitimer signal.signal faulthandler._sigsegv faulthandler._sigabrt .do_shutdown .ask_exit "
    "psutil.Process().kill psutil.Process().terminate resource.setrlimit",
    "inside": "sys._getframe sys._current_frames sys.settrace sys.setprofile gc.get_objects gc.get_referrers "
    "gc.get_referents inspect.currentframe inspect.stack inspect.getmembers_static ctypes.CDLL ctypes.PyDLL "
    "ctypes.cast ctypes.memmove ctypes.memset ctypes.string_at ctypes.pythonapi ctypes.py_object ctypes.cdll "
    "cffi.FFI .__globals__ .__subclasses__ .__builtins__ .__code__ .f_globals .f_locals .f_back .user_ns "
    ".user_global_ns __builtins__ __builtin__ breakpoint sys.addaudithook",
    OPENS: "open io.open codecs.open gzip.open bz2.open lzma.open os.fdopen zipfile.ZipFile tarfile.open h5py.File "
    "builtins.open _io.open .read_csv .read_table .read_json .read_excel .read_parquet .read_html .read_xml "
    ".read_feather .read_fwf .read_orc .read_stata .read_sas .read_spss .read_hdf .read_ipc .read_ndjson .read_avro "
    ".read_delta .read_file .scan_csv .scan_parquet .scan_ndjson .scan_ipc .scan_delta .open_dataset "
    ".open_dataarray .imread .loadtxt .genfromtxt numpy.load .read_text@self .read_bytes@self "
    "pathlib.Path().open@self .fromfile fsspec.open .read_database_uri smart_open.open .memmap",
}  # fmt: skip
"""The functions of each act. "@" and a number name the argument to show; `self` is the object of the method."""


_TABLE = {path: (act, place or "0") for act, row in _ROWS.items() for path, _, place in (
    entry.partition("@") for entry in row.split()
)}  # fmt: skip
ENVIRONMENT = word_set("os.environ os._Environ()")
_MAGICS = {
    "": "time timeit capture prun matplotlib pylab config load_ext reload_ext autoreload precision who whos who_ls "
    "pwd lsmagic magic pinfo pinfo2 pdoc psource psearch history hist colors xmode page alias_magic cd pushd popd "
    "dhist latex markdown agent mcp tb pdb ls ll cat less more pip_list",
    "shell": "bash sh script system sx cmd perl ruby rm rmdir mv cp mkdir ln killbgscripts",
    "installs": "pip conda mamba micromamba uv",
    "writes": "writefile file save notebook logstart",
    "script": "run load loadpy edit",
    "resets": "reset reset_selective xdel",
    "sql": "sql",
    "environment": "env set_env",
}
_MAGIC = {word: act for act, row in _MAGICS.items() for word in row.split()}
TIMERS = ("time", "timeit", "prun")
"""Magics that run the Python code in their line and their cell. The argument of `%%capture` is a name instead."""
_INSTALLS = re.compile(
    r"\b(?:pip3?|conda|mamba|micromamba|uv(?: pip)?|apt|apt-get|brew|npm|poetry|pipx)\b(?: -\S+)* "
    r"(?:install|add|update|remove|uninstall|i|ci)\b"
)
_REMOTE = re.compile(r"(?:https?|ftps?|sftp|ssh|s3a?|gs|gcs|abfss?|az|adl|hdfs|hf|webdavs?|wss?)://", re.IGNORECASE)
_ADDRESS = re.compile(r"://|\w\.\w")
_CREDENTIALS = re.compile(
    r"(?:^|[/\\])\.(?:ssh|aws|azure|gnupg|kube|docker|netrc|pgpass|npmrc|pypirc|git-credentials|env)\b"
    r"|(?:^|[/\\])id_(?:rsa|dsa|ecdsa|ed25519)|/etc/(?:passwd|shadow)|/proc/[^/]+/environ"
    r"|\.(?:pem|key|pfx|p12|kdbx)$|(?:credentials|secrets?|token)\.\w+$"
)
_WRITES_SQL = re.compile(
    r"(?:^|;|\))\s*(?:insert\s+(?:or\s+\w+\s+)?(?:into|overwrite)\b|update\s+\S+(?:\s+(?:as\s+)?\w+)?\s+set\b"
    r"|delete\s+from\b|(?:drop|alter|create(?:\s+or\s+replace)?)\s+(?:\w+\s+){0,3}?(?:table|view|index|schema|database"
    r"|trigger|function|procedure|user|role|sequence|type|extension|secret|macro|column)\b|truncate\s|replace\s+into\b"
    r"|merge\s+into\b|grant\s|revoke\s|attach\s|detach\s|vacuum\b|copy\s.{1,999}?\sto\b|export\s+database\b"
    r"|import\s+database\b|install\s+\w|load\s+'?\w|call\s+\w)"
    r"|\bselect\b[^;]{1,999}?\binto\s+(?:outfile\b|(?:temp\s+|table\s+)?\w+\s+from\b)",
    re.IGNORECASE | re.DOTALL,
)
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_TAKE_SQL = word_set(
    "execute executemany executescript exec_driver_sql sql raw_sql read_sql read_sql_query read_database query text "
    "run_query run_sql query_df"
)
_TAKE_METHODS = word_set("agg aggregate apply transform map pipe getattr methodcaller attrgetter")
"""Functions that call a method named by a text."""
_PATHS = word_set(
    "path path_or_buf buf buffer excel_writer filename file fname filepath filepath_or_buffer io target workbook "
    "dst source url uri command cmd args sql query name repo_id dsn"
)
_FETCHING = word_set("get head options stream")
_SENDING = word_set("post put patch delete request")
_SAFE_LOADERS = word_set("SafeLoader CSafeLoader BaseLoader CBaseLoader")
_BUFFERS = word_set("io.StringIO() io.BytesIO() StringIO() BytesIO() sys.stdout sys.stderr")
_CALLS = re.compile(r"@\s*\w[\w.\[\]'\"]*\(")
"""A call of a function of the notebook, in a text that pandas evaluates with the columns of a frame."""
_CALLS_ANY = re.compile(r"[\w\])]\(")
_LONGEST_SQL = 20_000

Act = tuple[str, str | None]
"""What a call does, as OPENS or a key of PHRASES, and the argument of the call if that is known."""


def phrase(act: str, argument: str | None, source: str) -> str:
    """Return a text for the user about an act, such as "deletes", with its argument or else the source of the call."""
    if act == OPENS:
        return _short_line(argument or source)
    with_argument, without = PHRASES[act]
    return f"{without}: `{_short_line(source)}`" if argument is None else f"{with_argument} `{_short_line(argument)}`"


def _short_line(text: str) -> str:
    """Return a part of a program as one short line, with secrets blanked and invisible characters escaped."""
    return clip(" ".join(exact(text[: 20 * LONGEST]).split()), LONGEST)


def entry(path: str) -> tuple[str, str] | None:
    """Return the act of a function or method, and which argument to show: "0" is the first.

    Return None if the function or method is not in the table.
    """
    return _TABLE.get(path) or (_TABLE.get(f".{path.rpartition('.')[2]}") if "." in path else None)


def of_mention(path: str) -> Act | None:
    """Return the act of a function that a program names but does not call there. It may be called elsewhere."""
    act = (entry(path) or (OPENS,))[0]
    if act == "environment":
        return ("credential", None) if path in ENVIRONMENT else None
    if act == OPENS or (act == "exports" and path.endswith(".save")):
        return None
    return ("writes" if act == "exports" else act), None


@dataclass(frozen=True)
class ProgramCall:
    """A call in a program. It calls a function that has a dotted path.

    `path_of` and `text_of` return the path and the text that an expression stands for, if known.
    """

    path: str
    node: ast.Call
    path_of: Callable[[ast.AST], str]
    text_of: Callable[[ast.AST | None], str | None]

    def acts(self) -> Iterator[Act]:
        """Yield the acts of the call, such as "deletes", each with its argument."""
        if (row := entry(self.path)) is not None:
            yield from self._acts_in_table(*row)
        elif "." in self.path:
            yield from self._acts_by_arguments(self._text())
        text = self._text()
        if self._name in _TAKE_SQL and text is not None and _writes_sql(text):
            yield "sql", text
        if (
            self._name == "load"
            and _constant(self._keywords.get("allow_pickle", ast.Constant(value=False))) is not False
        ):
            yield "pickle", text
        pattern = _CALLS_ANY if self.path == "pandas.eval" else _CALLS
        if self._name in ("eval", "query") and "." in self.path and text is not None and pattern.search(text):
            yield "code", text
        if self._name in _TAKE_METHODS:
            yield from self._acts_of_named_methods()

    @cached_property
    def _name(self) -> str:
        return self.path.rpartition(".")[2]

    @cached_property
    def _keywords(self) -> dict[str, ast.expr]:
        return {keyword.arg: keyword.value for keyword in self.node.keywords if keyword.arg}

    def _argument(self, place: str = "0") -> ast.expr | None:
        """Return the argument at a position, or else a keyword argument that is a path, an address or a command."""
        if place == "self":
            return self.node.func.value if isinstance(self.node.func, ast.Attribute) else None
        at = int(place) if place.isdigit() else 0
        if len(self.node.args) > at:
            return self.node.args[at]
        return next((value for name, value in self._keywords.items() if name in _PATHS), None)

    def _text(self, place: str = "0") -> str | None:
        return self.text_of(self._argument(place))

    def _acts_in_table(self, act: str, place: str) -> Iterator[Act]:
        """Yield the acts of a call of a function that is in the table of risks."""
        text = self._text(place)
        match act:
            case "opens":
                yield from filter(None, [self._of_file(place, text)])
            case "exports":
                node = self._argument(place)
                has_no_target = node is None or (isinstance(node, ast.Constant) and node.value is None)
                if not has_no_target and self.path_of(cast("ast.expr", node)) not in _BUFFERS:
                    yield "writes", text
            case "environment":
                yield from filter(None, [of_environment(text)])
            case "shell" if text is not None:
                yield of_shell(text)
            case "pickle" if self._loads_safely():
                pass
            case "ends" | "inside":
                yield act, None
            case "credential" if not self.path.startswith(("dotenv", "keyring", "google")):
                yield act, None  # leave out the argument: it is only the text of a prompt
            case "fetches" | "sends" if text is not None and not _ADDRESS.search(text):
                yield act, None
            case _:
                yield act, text

    def _loads_safely(self) -> bool:
        loader = self._keywords.get("Loader", self.node.args[1] if len(self.node.args) > 1 else None)
        is_safe = loader is not None and self.path_of(loader).rpartition(".")[2] in _SAFE_LOADERS
        return (self.path.startswith("yaml.") and is_safe) or _constant(self._keywords.get("weights_only")) is True

    def _of_file(self, place: str, path: str | None) -> Act | None:
        """Return the act of a call that opens a file. It depends on the mode and the path of the file."""
        if self._name in ("open", "fdopen", "File", "ZipFile", "memmap"):
            at = 0 if place == "self" else 2 if self._name == "memmap" else 1
            mode_node = self._keywords.get("mode", self.node.args[at] if len(self.node.args) > at else None)
            mode = ("r+" if self._name == "memmap" else "r") if mode_node is None else self.text_of(mode_node)
            if mode is None or (mode not in ("readonly", "copyonwrite") and set(mode) & set("wax+")):
                return "writes", path
        if path is None:
            return None
        return ("fetches" if _REMOTE.match(path) else "credential" if _CREDENTIALS.search(path) else OPENS), path

    def _acts_by_arguments(self, text: str | None) -> Iterator[Act]:
        """Yield what a method of an unknown object does. Its name can mean many things, so the arguments decide."""
        match self._name:
            case name if name in _FETCHING | _SENDING:
                texts = map(self.text_of, [*self.node.args[:2], self._keywords.get("url")])
                if address := next((argument for argument in texts if argument and _REMOTE.match(argument)), None):
                    yield ("fetches" if name in _FETCHING else "sends"), address
            case "extractall" if not self.path.endswith(".str.extractall"):
                yield "writes", text
            case "dump" if text and len(self.node.args) == 1 and not self._keywords:
                yield "writes", text
            case "system" | "popen" | "run_command" if text:
                yield "shell", text
            case "open" if text and set(text) <= set("rwax+bt") and set(text) & set("wax+"):
                yield "writes", self._text("self")
            case "create_engine" if text and "://" in text and not text.startswith(("sqlite", "duckdb")):
                yield "fetches", text
            case "run_line_magic" | "run_cell_magic" | "magic" if text:
                rest = [self.text_of(argument) or "" for argument in self.node.args[1:]]
                yield from of_magic(" ".join([text, *rest]))
            case _:
                pass

    def _acts_of_named_methods(self) -> Iterator[Act]:
        """Yield the acts of methods whose names are texts in the arguments, as in `apply("to_csv")`."""
        for argument in (*self.node.args, *self._keywords.values()):
            for part in (
                ast.walk(argument) if isinstance(argument, (ast.List, ast.Dict, ast.Tuple, ast.Constant)) else ()
            ):
                name = _constant(part)
                if name in ("eval", "query", "pipe", "apply", "system"):
                    yield "code", None
                elif isinstance(name, str) and name.isidentifier() and (act := of_mention(f".{name}")):
                    yield act


def of_shell(command: str) -> Act:
    """Return the act of a shell command: "installs" or "shell"."""
    return ("installs" if _INSTALLS.search(command) else "shell"), command


def of_magic(command: str) -> Iterator[Act]:
    """Yield what an IPython magic does. `command` is the text after the percent signs, in a cell magic all lines."""
    name, rest = (*command.split(maxsplit=1), "", "")[:2]
    match _MAGIC.get(name, "magic"):
        case "":
            pass
        case "sql":
            if _writes_sql(rest):
                yield "sql", rest
        case "shell" | "installs":
            yield of_shell(command)
        case "writes" | "script" as act:
            yield act, rest.partition("\n")[0].strip()
        case "environment" if "=" not in rest:
            yield from filter(None, [of_environment(rest.strip() or None)])
        case "environment":
            pass
        case act:
            yield act, command


def of_environment(name: str | None) -> Act | None:
    """Return the act "credential" if an environment variable is named like a secret, else None.

    `name` is None if the program reads all variables, or one of unknown name. This also counts as "credential".
    """
    return ("credential", name) if name is None or is_secret_name(name) else None


def _writes_sql(text: str) -> bool:
    return bool(_WRITES_SQL.search(_COMMENTS.sub(" ", text[:_LONGEST_SQL])))


def _constant(node: ast.AST | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None
