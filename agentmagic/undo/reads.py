"""Tables of operations that certainly change nothing, for values of known types.

A program only reads if all its operations are in these tables, and all its data have types of Python, NumPy, pandas or
polars, so that no code of the user runs. The name of a method or attribute is in a table only if it changes nothing in
all of these types that have it. Arguments must be data too, not functions or buffers. Parameters for a path, for the
name of a method, or for an object that receives the result are in no table.
"""

import ast
import builtins
import operator
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from string import Formatter
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, cast

_MOST_CELLS = 250_000
"""Largest number of values checked inside a variable, which takes about 5 ms."""
_MOST_CONTAINERS = 2000

_SCALARS = frozenset({int, float, complex, bool, str, bytes, type(None), type(...), range, object})
_TYPES = {
    "list": "builtins.list builtins.tuple builtins.set builtins.frozenset collections.deque",
    "dict": "builtins.dict collections.OrderedDict collections.Counter",
    "slice": "builtins.slice",
    "scalar": "pandas.Timestamp pandas.Timedelta pandas.Period pandas.Interval pandas.NaT pandas.NA datetime.date "
    "datetime.time datetime.datetime datetime.timedelta datetime.timezone decimal.Decimal fractions.Fraction",
    "array": "numpy.ndarray numpy.bool_ numpy.int8 numpy.int16 numpy.int32 numpy.int64 numpy.uint8 numpy.uint16 "
    "numpy.uint32 numpy.uint64 numpy.float16 numpy.float32 numpy.float64 numpy.longdouble numpy.complex64 "
    "numpy.complex128 numpy.str_ numpy.bytes_ numpy.datetime64 numpy.timedelta64",
    "frame": "pandas.DataFrame",
    "series": "pandas.Series pandas.Index pandas.RangeIndex pandas.MultiIndex pandas.DatetimeIndex "
    "pandas.TimedeltaIndex pandas.PeriodIndex pandas.IntervalIndex pandas.CategoricalIndex pandas.Categorical",
    "polars": "polars.DataFrame polars.Series",
    "made": "polars.LazyFrame polars.Expr pandas.api.typing.DataFrameGroupBy pandas.api.typing.SeriesGroupBy "
    "pandas.api.typing.Rolling pandas.api.typing.Resampler",
}
"""Types of data, by the way in which their contents are checked.

Values of types in the last row can hold functions: a program may create them, but not read them from a variable.
"""


@cache
def _kinds(_modules: frozenset[str]) -> Mapping[type, str]:
    """Return the kind ("list", "frame" ...) of each data type of loaded libraries. `_modules` is only the cache key."""
    kinds: dict[type, str] = dict.fromkeys(_SCALARS, "scalar")
    for kind, paths in _TYPES.items():
        for path in paths.split():
            module, _, name = path.rpartition(".")
            member = _member(module, name)
            data_type = member if isinstance(member, type) else type(member)
            if member is not None and _root(data_type.__module__) in (_root(module), "builtins"):
                kinds[data_type] = kind
    return kinds


def _known_kinds() -> Mapping[type, str]:
    return _kinds(frozenset({"pandas", "numpy", "polars", "decimal", "fractions"} & sys.modules.keys()))


def _member(module: str, name: str) -> object:
    """Return the value of a name in a loaded module, or None. The module's own `__getattr__` is not called."""
    return vars(sys.modules[module]).get(name) if module in sys.modules else None


@lru_cache(4096)
def _root(module: object) -> str:
    return str(module).partition(".")[0]


# -- values ----------------------------------------------------------------------------------------------


def is_data(value: object) -> bool:
    """Return whether reading a value runs no code of the user: all types in it are Python's or a data library's own."""
    kinds, cells, pending = _known_kinds(), _MOST_CELLS, [value]
    for _ in range(_MOST_CONTAINERS):
        if not pending:
            return True
        container = pending.pop()
        if type(container) not in kinds or (inner := _inside(container, kinds[type(container)])) is None:
            return False
        cells -= len(inner)
        if cells < 0:
            return False
        if not _SCALARS.issuperset(map(type, inner)):
            pending += [item for item in inner if type(item) not in _SCALARS]
    return False


def is_container(value: object) -> bool:
    """Return whether a value is a container of Python or an array."""
    return isinstance(value, (list, dict, set, deque, bytearray)) or _known_kinds().get(type(value)) == "array"


def _inside(value: Any, kind: str) -> list[Any] | None:  # noqa: PLR0911  (one arm for each kind)
    """Return those values inside a value that must still be checked, or None if the value is not only data."""
    match kind:
        case "list":
            return list(value)
        case "dict":
            return [*value, *value.values()]
        case "polars":
            dtypes = value.dtypes if hasattr(value, "dtypes") else [value.dtype]
            return None if any("Object" in str(one) for one in dtypes) else []
        case "array":
            return [] if not value.dtype.hasobject else None if value.dtype.names else value.ravel().tolist()
        case "frame" if _has_only_data(value):  # no attributes set by the user, because they look like columns
            columns = [value.iloc[:, place] for place, dtype in enumerate(value.dtypes) if not _is_plain(dtype)]
            return [value.index, value.columns, value.attrs, *columns]  # pandas copies `attrs` with the frame
        case "series":
            return _inside_series(value)
        case "slice":
            return [value.start, value.stop, value.step]
        case "scalar" if _is_known_zone(getattr(value, "tzinfo", None)):
            return []
        case _:
            return None


def _has_only_data(value: object) -> bool:
    return vars(value).keys() <= {"_mgr", "_item_cache", "_attrs", "_flags", "_name", "_is_copy", "_cacher"}


def _inside_series(value: Any) -> list[Any] | None:
    kind = cast("type[Any]", type(value))
    inner = [value.name] if hasattr(kind, "name") else []
    if hasattr(kind, "_constructor_expanddim"):  # a series, whose labels look like attributes
        if not _has_only_data(value):
            return None
        inner += [value.index, value.attrs]
    if hasattr(kind, "levels"):
        return [*inner, *value.names, *value.levels]
    if _is_plain(value.dtype):
        return inner
    if hasattr(value.dtype, "categories"):
        return [*inner, value.dtype.categories]
    return [*inner, *value.tolist()] if str(value.dtype) == "object" and len(value) <= _MOST_CELLS else None


def _is_plain(dtype: Any) -> bool:
    """Return whether a column of this dtype holds no objects, and the dtype is one of NumPy or pandas."""
    is_own = _root(type(dtype).__module__) in ("numpy", "pandas")
    is_own &= not getattr(dtype, "hasobject", False) and not hasattr(dtype, "categories")
    return is_own and _is_known_zone(getattr(dtype, "tz", None))


def _is_known_zone(zone: object) -> bool:
    return zone is None or _root(type(zone).__module__) in ("datetime", "zoneinfo", "pytz", "dateutil")


# -- the tables ------------------------------------------------------------------------------------------


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, such as a row of a table of names, as a set."""
    return frozenset(text.split())


def _limits(rows: Mapping[int, str], prefix: str = "") -> dict[str, int]:
    return {f"{prefix}{name}": most for most, names in rows.items() for name in names.split()}


METHODS = _limits({
    0: "to_string to_csv to_json to_html to_markdown to_latex info write_csv write_json write_ndjson collect "
    "glimpse encode decode lazy",
    1: "sum mean median mode std var sem skew kurt kurtosis min max prod product count any all idxmin idxmax argmin "
    "argmax item first last autocorr cov corr corrwith nunique equals head tail copy describe value_counts unique "
    "sort_values sort_index reset_index set_index dropna fillna ffill bfill isna isnull notna notnull isin "
    "duplicated drop_duplicates drop rename rename_axis round abs cumsum cumprod cummax cummin cumcount diff "
    "pct_change shift rank quantile astype reindex melt stack unstack explode pivot pivot_table merge assign sub "
    "mul div truediv floordiv mod pow radd rsub rmul rdiv eq ne lt le gt ge dot map to_frame filter transpose "
    "select_dtypes squeeze droplevel get_level_values tz_localize tz_convert normalize to_period to_timestamp "
    "to_series union intersection difference symmetric_difference infer_objects convert_dtypes memory_usage argsort "
    "searchsorted factorize combine_first align take xs month_name day_name asfreq interpolate groupby rolling "
    "expanding ewm resample to_numpy tolist to_list items iterrows itertuples keys to_dict size nth ngroup ohlc "
    "get_group trace ptp flatten ravel diagonal nonzero is_integer bit_count as_integer_ratio to_pydatetime upper "
    "lower title capitalize swapcase casefold strip lstrip rstrip join zfill removeprefix removesuffix expandtabs "
    "translate hex splitlines rpartition isalpha isdigit isnumeric isdecimal isalnum isspace isupper islower "
    "istitle isidentifier isascii isprintable bit_length toordinal weekday isoweekday timestamp total_seconds date "
    "time timetuple quantize floor ceil isocalendar strftime isoformat ctime astimezone values most_common elements "
    "total issubset issuperset isdisjoint contains len findall get_dummies wrap group groups groupdict span cat "
    "slice fullmatch extract extractall to_pandas to_dicts rows row iter_rows get_column get_columns to_arrow "
    "n_unique null_count drop_nulls drop_nans is_null is_not_null is_nan fill_null fill_nan top_k bottom_k cum_sum "
    "cum_max cum_min cum_count limit cast alias suffix prefix is_in is_duplicated is_unique is_first_distinct "
    "len_chars len_bytes to_lowercase to_uppercase strip_chars starts_with ends_with strptime to_date to_datetime "
    "to_time year month day hour minute second quarter ordinal_day truncate total_days total_hours total_minutes "
    "epoch field implode arg_max arg_min arg_sort sqrt log exp sign gather_every n_chunks estimated_size is_empty "
    "has_nulls clone partition_by unnest keep with_row_index to_struct rolling_mean rolling_sum rolling_min "
    "rolling_max replace_strict",
    2: "get split rsplit replace find rfind index rindex startswith endswith center ljust rjust pad count_matches "
    "between clip nlargest nsmallest where mask repeat swapaxes reshape is_between extract_all match swaplevel",
    99: "format select with_columns group_by agg over when then otherwise unpivot",
})  # fmt: skip
"""Allowed methods, by the largest number of positional arguments. A further argument can be the place of the result."""
_OF_POLARS = frozenset({"sort", "reverse"})
"""Methods that change nothing in polars, but change values of other types, such as lists."""
_TO_PYTHON = word_set(
    "to_dicts to_dict to_list to_numpy to_pandas to_arrow rows row iter_rows get_columns item columns dtypes schema"
)
"""Methods and attributes of polars that return a value of another library."""
PARTS = word_set(
    "T nlevels index columns dtypes hour minute second microsecond day month year dayofweek weekday quarter "
    "dayofyear days seconds codes categories ordered levels left right mid values iat name names axes shape size "
    "ndim dtype empty nbytes hasnans is_unique is_monotonic_increasing is_monotonic_decreasing inferred_type loc "
    "iloc at str dt cat real imag numerator denominator start stop step strides itemsize date time days_in_month "
    "is_month_end is_month_start is_leap_year tz schema height width list arr struct __name__ __qualname__ "
    "__module__"
)
"""Attributes that hold data. On types where such a name is a method, METHODS contains it."""
_KEYWORDS = word_set(
    "axis skipna left_index right_index keys label before after numeric_only ascending by n sep end flush default "
    "start reverse strict ndigits base dtype columns index values on left_on right_on how suffixes level keep "
    "subset normalize dropna bins sort as_index observed group_keys frac include exclude percentiles orient periods "
    "freq decimals lower upper value labels fill_value names drop mapper min_periods window center closed span "
    "alpha com halflife ddof keepdims q pat regex case na flags expand maxsplit id_vars value_vars var_name "
    "value_name margins ignore_index na_position limit interpolation deep descending maintain_order nulls_last "
    "strategy separator every period header na_rep float_format justify max_rows max_cols line_width date_format "
    "decimal indent sort_keys ensure_ascii separators verbose memory_usage show_counts k literal length offset unit "
    "format utc dayfirst yearfirst order kind right retbins precision duplicates left validate indicator other cond "
    "to_replace return_counts return_index return_inverse num endpoint step rowvar bias density weights range ord "
    "rcond equal_nan rtol atol tz schema named min_samples errors"
)
"""Keyword arguments that accept data, for the functions and methods in the tables."""
_TAKE_ANY_KEYWORD = word_set("assign select with_columns agg filter format dict timedelta datetime date")
"""Functions and methods that accept any keyword, because their keywords name columns or fields."""
_REDUCTIONS = word_set(
    "sum mean median std var min max count size nunique first last any all prod sem skew idxmin idxmax cumsum "
    "cummax cummin cumprod rank diff shift pct_change describe"
)
"""Methods that a text can name in `agg`, `transform` and `aggfunc`."""

FUNCTIONS = {
    **_limits({
        1: "len abs str float bool complex hash id any all repr ascii chr ord bin hex oct list tuple reversed iter "
        "sorted dict set frozenset type callable bytes",
        2: "int round pow divmod isinstance issubclass format sum next",
        99: "range enumerate zip map filter min max print display slice",
    }, "builtins."),
    "IPython.display.display": 99,
    **_limits({
        1: "DataFrame Index MultiIndex to_datetime to_numeric to_timedelta get_dummies isna isnull notna notnull "
        "unique concat Categorical factorize Timestamp Timedelta Period",
        2: "Series merge crosstab cut qcut date_range period_range timedelta_range bdate_range pivot_table melt",
    }, "pandas."),
    **_limits({
        1: "array asarray empty zeros ones eye identity zeros_like ones_like empty_like vstack hstack column_stack "
        "unique sort argsort sqrt exp log log2 log10 log1p expm1 abs absolute sin cos tan arcsin arccos arctan sinh "
        "cosh tanh square sign floor ceil rint isnan isfinite isinf logical_not deg2rad rad2deg exp2 nan_to_num "
        "meshgrid diag ndim shape size transpose ravel nonzero argwhere flip triu tril gradient",
        2: "full full_like concatenate stack round around cumsum cumprod diff dot matmul outer inner cross kron "
        "histogram percentile quantile nanpercentile corrcoef cov polyval reshape tile repeat roll searchsorted "
        "digitize bincount isin setdiff1d intersect1d union1d logical_and logical_or add subtract multiply divide "
        "power mod maximum minimum isclose convolve hypot arctan2 sum mean median std var min max amin amax prod "
        "ptp average nansum nanmean nanmedian nanstd nanvar nanmin nanmax argmax argmin nanargmax nanargmin all any "
        "count_nonzero trace allclose array_equal delete append split array_split broadcast_to expand_dims squeeze "
        "trapezoid",
        3: "where clip arange linspace logspace geomspace interp polyfit insert",
    }, "numpy."),
    **_limits({1: "inv det eig eigh eigvals svd qr pinv matrix_rank cond", 2: "norm solve lstsq"}, "numpy.linalg."),
    **_limits({
        99: "DataFrame Series col lit len when concat sum mean max min count first last element date datetime "
        "duration concat_str coalesce struct all exclude date_range arange int_range format sum_horizontal "
        "max_horizontal min_horizontal mean_horizontal any_horizontal all_horizontal median std var n_unique corr",
    }, "polars."),
    **_limits({
        99: "sqrt exp log log2 log10 log1p expm1 sin cos tan asin acos atan atan2 sinh cosh tanh floor ceil trunc "
        "fabs factorial gcd lcm comb perm hypot dist degrees radians isnan isinf isfinite isclose fsum prod pow "
        "fmod modf frexp isqrt copysign erf gamma lgamma cbrt exp2",
    }, "math."),
    **_limits({
        2: "mean fmean median mode stdev pstdev variance pvariance quantiles median_low median_high harmonic_mean "
        "geometric_mean multimode correlation covariance linear_regression",
    }, "statistics."),
    **_limits({99: "datetime date timedelta time"}, "datetime."),
    **_limits({99: "now today utcnow strptime fromisoformat fromtimestamp combine"}, "datetime.datetime."),
    **_limits({99: "today fromisoformat fromtimestamp"}, "datetime.date."),
    **_limits({1: "now today"}, "pandas.Timestamp."),
    **_limits({1: "dumps loads"}, "json."),
    **_limits({4: "findall split sub escape search match fullmatch"}, "re."),
    "collections.Counter": 1,
    **_limits({1: "time perf_counter monotonic process_time ctime strftime"}, "time."),
    **_limits({1: "getcwd listdir"}, "os."),
    **_limits({99: "join basename dirname abspath splitext exists isfile isdir getsize"}, "os.path."),
    **_limits({1: "pformat pprint pp"}, "pprint."),
    **_limits({2: "dedent fill shorten indent"}, "textwrap."),
}  # fmt: skip
"""Allowed functions, by the largest number of positional arguments."""
_CONSTANTS = word_set(
    "re.IGNORECASE re.I re.MULTILINE re.DOTALL math.pi math.e math.tau math.inf math.nan numpy.pi numpy.e numpy.inf "
    "numpy.nan numpy.newaxis numpy.euler_gamma pandas.NA pandas.NaT string.ascii_lowercase string.ascii_uppercase "
    "string.ascii_letters string.digits string.punctuation sys.version sys.version_info sys.platform sys.maxsize "
    "sys.byteorder sys.executable os.sep os.linesep os.name numpy.__version__ pandas.__version__ polars.__version__"
)
_MODULES = frozenset(path.rpartition(".")[0] for path in (*FUNCTIONS, *_CONSTANTS)) | {"sys"}
_PATHS = (*FUNCTIONS, *(path for paths in _TYPES.values() for path in paths.split()))
_REPORTED_MODULES = {
    "os": {"posix", "nt", "posixpath", "ntpath"},
    "os.path": {"posixpath", "ntpath", "genericpath"},
    "builtins": {"IPython"},
}
"""Other modules that the functions of a module report as their `__module__`."""
_CAN_BE_CHANGED = 1 << 9
"""The flag of classes whose attributes can be set, Py_TPFLAGS_HEAPTYPE."""
_KEYS = word_set("len str int float abs repr bool ord sum min max")
"""Built-in functions that may be passed to `sorted`, `min`, `max`, `map` and `filter`."""

_OPERATORS = (
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.JoinedStr, ast.FormattedValue, ast.Starred,
    ast.Slice, ast.List, ast.Tuple, ast.Set, ast.Dict,
)  # fmt: skip
_SIGNS = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
_OF_QUERY = (ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.List, ast.Tuple, *_SIGNS)
"""Syntax nodes allowed in a text that pandas evaluates: comparisons of and calculations with columns."""


# -- programs --------------------------------------------------------------------------------------------


class _UnknownOperation(Exception):
    """Raised at the first operation of a program that is not in the tables of operations that change nothing."""


def only_reads(tree: ast.Module, namespace: Mapping[str, Any], is_exit: Callable[[str], bool]) -> bool:
    """Return whether a program that binds no names certainly changes nothing.

    `is_exit` returns whether a call of a name ends the program.
    """
    try:
        _ReadCheck(namespace, is_exit).block(tree.body)
    except _UnknownOperation:
        return False
    return not any(name.startswith("_") or name in METHODS or name in PARTS for name in _foreign_names())


def keeps_binding(value: object, path: str, module_name: str) -> bool:
    """Return whether an import from a loaded module would leave a name bound to `value`, its present value.

    `path` is the dotted path of what is imported.
    """
    module, _, name = path.rpartition(".")
    return (
        module_name in sys.modules and value is not None and value is (sys.modules.get(path) or _member(module, name))
    )


def _require(condition: object) -> None:
    if not condition:
        raise _UnknownOperation


class _ReadCheck:
    """Checks that all operations of a program are in the tables. Methods raise _UnknownOperation if one is not."""

    def __init__(self, namespace: Mapping[str, Any], is_exit: Callable[[str], bool]) -> None:
        self._namespace = namespace
        self._is_exit = is_exit
        self._local = frozenset[str]()
        self._places = _places()
        self._of_polars: dict[str, bool] = {}
        """The variables that hold data. True if their data belong to polars."""

    def block(self, body: Iterable[ast.stmt]) -> None:
        """Check that statements change nothing. Raises _UnknownOperation if a part of one is not in the tables."""
        for node in body:
            match node:
                case ast.Pass():
                    pass
                case ast.Import(names=names) | ast.ImportFrom(names=names):  # the caller checks the bound names
                    _require(names[0].name != "*")
                case ast.Expr(value=value):
                    self.data(value)
                case ast.If():
                    self.data(node.test)
                    self.block([*node.body, *node.orelse])
                case ast.Assert():
                    self._all(node.test, node.msg)
                case ast.Try() if not any(handler.name for handler in node.handlers):
                    self.block([*node.body, *node.orelse, *node.finalbody])
                    self.block(inner for handler in node.handlers for inner in handler.body)
                case _:
                    raise _UnknownOperation

    def data(self, node: ast.AST) -> bool:  # noqa: PLR0911  (one arm for each kind)
        """Check that an expression changes nothing and its value is data. Return whether the value is of polars."""
        match node:
            case ast.Constant():
                return False
            case ast.Name(id=name) if name in self._local:
                return False
            case ast.Name() | ast.Attribute() if path := self._path(node):
                member = _member(*path.rpartition(".")[::2])
                _require(path in _CONSTANTS or (isinstance(member, type) and member in _known_kinds()))
                return False
            case ast.Name(id=name):
                return self._variable(name)
            case ast.Attribute(value=of, attr=name):
                _require(name in PARTS or _is_column(name))
                return self.data(of) and name not in _TO_PYTHON
            case ast.Call():
                return self._call(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
            case ast.Subscript():
                self.data(node.slice)
                return self.data(node.value)
            case _:
                _require(isinstance(node, _OPERATORS))
                flags = [self.data(child) for child in ast.iter_child_nodes(node) if not isinstance(child, _SIGNS)]
                return isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)) and any(flags)

    def _all(self, *nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                self.data(node)

    def _variable(self, name: str) -> bool:
        if name not in self._of_polars:
            value = self._namespace.get(name, self)
            _require(is_data(value))
            self._of_polars[name] = _known_kinds()[type(value)] == "polars"
        return self._of_polars[name]

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> bool:
        outer = self._local
        for loop in node.generators:
            self.data(loop.iter)
            _require(not loop.is_async and not any(map(_is_part, ast.walk(loop.target))))
            self._local |= {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
            self._all(*loop.ifs)
        self._all(*((node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)))
        self._local = outer
        return False

    # -- calls ---------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> bool:
        path, func, args = self._path(node.func), node.func, node.args
        name = path.rpartition(".")[2]
        if (isinstance(func, ast.Name) and self._is_exit(func.id)) or path == "sys.exit":
            self._all(*args, *(argument.value for argument in node.keywords))
            return False
        if path:
            most, of_polars = FUNCTIONS.get(path), path.startswith("polars.")
            _require(path.startswith("builtins.") or not any(isinstance(argument, ast.Starred) for argument in args))
            if path in ("builtins.map", "builtins.filter") and args:
                self._key(args[0])
                args = args[1:]
        else:
            _require(
                isinstance(func, ast.Attribute) and not any(isinstance(argument, ast.Starred) for argument in args)
            )
            of, name = (func.value, func.attr) if isinstance(func, ast.Attribute) else (func, "")
            of_polars = self.data(of)
            _require(name != "format" or _is_plain_format(of))
            if not of_polars and name in ("agg", "aggregate", "transform", "query", "eval"):
                self._query(node) if name in ("query", "eval") else self._aggregate(node)
                return False
            most = 99 if of_polars and name in _OF_POLARS else METHODS.get(name)
            of_polars &= name not in _TO_PYTHON
        _require(most is not None and len(args) <= most)
        self._all(*args)
        for argument in node.keywords:
            if argument.arg == "key" and path in ("builtins.sorted", "builtins.min", "builtins.max"):
                self._key(argument.value)
            elif argument.arg == "aggfunc":
                self._reductions(argument.value)
            else:
                _require(argument.arg and (argument.arg in _KEYWORDS or name in _TAKE_ANY_KEYWORD))
                self.data(argument.value)
        return of_polars

    def _aggregate(self, node: ast.Call) -> None:
        """Check the arguments of a pandas method, such as `agg`, that calls the methods named in its arguments."""
        _require(len(node.args) + bool(node.keywords) == 1)
        for argument in node.args:
            self._reductions(argument)
        for argument in node.keywords:
            match argument.value:
                case ast.Tuple(elts=[ast.Constant(), method]) if argument.arg:
                    self._reductions(method)
                case _:
                    raise _UnknownOperation

    def _reductions(self, node: ast.expr) -> None:
        match node:
            case ast.List(elts=inner) | ast.Tuple(elts=inner):
                for item in inner:
                    self._reductions(item)
            case ast.Dict():
                self._all(*node.keys)
                for item in node.values:
                    self._reductions(item)
            case _:
                _require(isinstance(node, ast.Constant) and node.value in _REDUCTIONS)

    def _query(self, node: ast.Call) -> None:
        """Check the text that pandas evaluates in `query` or `eval`."""
        match node:
            case ast.Call(args=[ast.Constant(value=str(text))], keywords=[]):
                try:
                    inner = ast.walk(ast.parse(text.strip(), mode="eval").body)
                except (SyntaxError, ValueError):
                    raise _UnknownOperation from None
                _require(all(isinstance(part, _OF_QUERY) for part in inner))
            case _:
                raise _UnknownOperation

    def _key(self, node: ast.expr) -> None:
        """Check a function that a built-in function calls with data, such as the key of `sorted`."""
        match node:
            case ast.Constant(value=None):
                pass
            case ast.Attribute(value=ast.Name(id="str") as of, attr=name) if self._path(of) == "builtins.str":
                _require(name in METHODS)
            case ast.Lambda(args=ast.arguments([], parameters, None, [], [], None, [])):
                outer = self._local
                self._local |= {parameter.arg for parameter in parameters}
                self.data(node.body)
                self._local = outer
            case _:
                _require(isinstance(node, ast.Name) and node.id in _KEYS and self._path(node) == f"builtins.{node.id}")

    # -- names ---------------------------------------------------------------------------------

    def _path(self, node: ast.AST) -> str:
        """Return the dotted path of the known module or member that an expression names, or "" if it names none."""
        match node:
            case ast.Name(id=name) if name not in self._local:
                value = self._namespace.get(name, vars(builtins).get(name, self))
                path = self._places.get(id(value), "")
                return path if path in _MODULES or _is_own(path) else ""
            case ast.Attribute(value=of, attr=name) if (base := self._path(of)) in _MODULES:
                return path if _is_own(path := f"{base}.{name}") else ""
            case _:
                return ""


def _places() -> dict[int, str]:
    """Return the dotted paths of all loaded modules, functions and types that the tables have, by object id."""
    members = ((_member(*path.rpartition(".")[::2]), path) for path in _PATHS)
    modules = ((sys.modules[module], module) for module in _MODULES if module in sys.modules)
    return {id(value): path for value, path in (*members, *modules) if value is not None}


def _is_own(path: str) -> bool:
    """Return whether a module's member is still the library's own, and was not replaced by the user."""
    module, _, name = path.rpartition(".")
    if module not in sys.modules:  # `module` is the path of a class, such as `datetime.date`
        return module in _MODULES
    member: Any = _member(module, name)
    if type(member) is ModuleType:
        owner = member.__name__
    elif _root(type(member).__module__) in (_root(module), "builtins"):
        owner = getattr(member, "__module__", None) or module
    else:
        return False
    return _root(owner).lstrip("_") in {_root(module), *_REPORTED_MODULES.get(module, ())}


def _is_part(node: ast.AST) -> bool:
    return isinstance(node, (ast.Attribute, ast.Subscript))


def _is_column(name: str) -> bool:
    """Return whether an attribute of this name can only be a column, because no data type has such an attribute."""
    return not (name.startswith("_") or any(hasattr(kind, name) for kind in _known_kinds()))


def _is_plain_format(node: ast.expr) -> bool:
    """Return whether an expression is a constant format text that reads no attributes or items of its arguments."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return False
    try:
        parts = list(Formatter().parse(node.value))
    except ValueError:
        return False
    return all((field or "a").isalnum() and "{" not in (spec or "") for _, field, spec, _ in parts)


_own_parts: dict[type, tuple[object, ...]] = {}
"""The attributes of data types that were all the libraries' own when checked.

Comparing a type with this record takes a tenth of the time of a full check.
"""


def _foreign_names() -> frozenset[str]:
    """Return the names of functions that were put into data types, such as DataFrame, by code outside the libraries.

    `__repr__` is included if pandas or NumPy call a function of the user for each number that they show.
    """
    foreign_names = set[str]()
    parts = {part for kind in _known_kinds() for part in kind.__mro__ if part.__flags__ & _CAN_BE_CHANGED}
    own = {_root(part.__module__) for part in parts} | {"functools"}
    for part in parts:
        now, before = tuple(vars(part).values()), _own_parts.get(part, ())
        if len(now) != len(before) or not all(map(operator.is_, now, before)):
            names = {name for name, member in vars(part).items() if not _is_of(own, member)}
            _own_parts.update({} if names else {part: now})
            foreign_names |= names
    pandas: Any = sys.modules.get("pandas")
    numpy: Any = sys.modules.get("numpy")
    has_formatter = pandas and isinstance(pandas.get_option("display.float_format"), FunctionType)
    has_formatter = has_formatter or (numpy and numpy.get_printoptions()["formatter"])
    return frozenset(foreign_names | {"__repr__"} if has_formatter else foreign_names)


def _is_of(own: set[str], member: Any) -> bool:
    """Return whether a member of a class is a plain value, or a function of one of the packages in `own`."""
    member = member.fget if type(member) is property else member
    match member:
        case FunctionType():
            return _root(member.__module__) in own
        case BuiltinFunctionType():  # `__new__` of a type, or a bound method that the user put into a class
            return isinstance(member.__self__, type)
        case _:
            return type(member) is not MethodType and _root(type(member).__module__) != "__main__"
