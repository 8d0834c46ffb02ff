"""Tables of operations that certainly change nothing, for values of known types.

The name of a method or attribute is in a table only if it changes nothing in all data types that have it. Arguments
must be data too, not functions or buffers. Parameters for a path, for the name of a method, or for an object that
receives the result are in no table.
"""

import ast
from collections.abc import Mapping

from agentmagic.undo.data_types import TYPES


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
OF_POLARS = frozenset({"sort", "reverse"})
"""Methods that change nothing in polars, but change values of other types, such as lists."""
OF_POLARS_FRAME = word_set(
    "select filter with_columns group_by head tail limit sort reverse drop rename unique drop_nulls drop_nans lazy "
    "collect join describe clone slice top_k bottom_k explode unpivot with_row_index null_count fill_null fill_nan "
    "shift gather_every pivot cast sum mean median min max std var quantile count unnest"
)
"""Methods of a frame of polars that return a frame of polars, whatever they are given."""
OF_POLARS_SERIES = word_set(
    "sort reverse head tail limit slice filter unique drop_nulls drop_nans is_null is_not_null is_nan is_in is_between "
    "is_duplicated is_unique cast alias rename cum_sum cum_max cum_min cum_count diff shift round abs floor ceil "
    "value_counts fill_null fill_nan rank top_k bottom_k gather_every clone arg_sort rolling_mean rolling_sum "
    "rolling_min rolling_max"
)
"""Methods of a series of polars that return a series or frame of polars, whatever they are given."""
PARTS = word_set(
    "T nlevels index columns dtypes hour minute second microsecond day month year dayofweek weekday quarter "
    "dayofyear days seconds codes categories ordered levels left right mid values iat name names axes shape size "
    "ndim dtype empty nbytes hasnans is_unique is_monotonic_increasing is_monotonic_decreasing inferred_type loc "
    "iloc at str dt cat real imag numerator denominator start stop step strides itemsize date time days_in_month "
    "is_month_end is_month_start is_leap_year tz schema height width list arr struct __name__ __qualname__ "
    "__module__"
)
"""Attributes that hold data. On types where such a name is a method, METHODS contains it."""
NAMESPACES = word_set("str dt cat list arr struct loc iloc at iat")
"""Attributes that hold methods or find parts. Python can go over some of them without an end."""
KEYWORDS = word_set(
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
TAKE_ANY_KEYWORD = word_set("assign select with_columns agg filter format dict timedelta datetime date")
"""Functions and methods that accept any keyword, because their keywords name columns or fields."""
REDUCTIONS = word_set(
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
CONSTANTS = word_set(
    "re.IGNORECASE re.I re.MULTILINE re.DOTALL math.pi math.e math.tau math.inf math.nan numpy.pi numpy.e numpy.inf "
    "numpy.nan numpy.newaxis numpy.euler_gamma pandas.NA pandas.NaT string.ascii_lowercase string.ascii_uppercase "
    "string.ascii_letters string.digits string.punctuation sys.version sys.version_info sys.platform sys.maxsize "
    "sys.byteorder sys.executable os.sep os.linesep os.name numpy.__version__ pandas.__version__ polars.__version__"
)
MODULES = frozenset(path.rpartition(".")[0] for path in (*FUNCTIONS, *CONSTANTS)) | {"sys"}
PATHS = (*FUNCTIONS, *(path for paths in TYPES.values() for path in paths.split()))
REPORTED_MODULES = {
    "os": {"posix", "nt", "posixpath", "ntpath"},
    "os.path": {"posixpath", "ntpath", "genericpath"},
    "builtins": {"IPython"},
}
"""Other modules that the functions of a module report as their `__module__`."""
KEYS = word_set("len str int float abs repr bool ord sum min max")
"""Built-in functions that may be passed to `sorted`, `min`, `max`, `map` and `filter`."""

OPERATORS = (
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.JoinedStr, ast.FormattedValue, ast.Starred,
    ast.Slice, ast.List, ast.Tuple, ast.Set, ast.Dict,
)  # fmt: skip
SIGNS = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
OF_QUERY = (ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.List, ast.Tuple, *SIGNS)
"""Syntax nodes allowed in a text that pandas evaluates: comparisons of and calculations with columns."""

GROUPED = word_set(
    "mean sum median std var min max count size first last nunique any all prod sem skew kurt cumsum cumprod cummin "
    "cummax cumcount ngroup rank quantile nth head tail shift diff fillna ffill bfill value_counts idxmin idxmax "
    "describe corr cov corrwith len n_unique agg over select filter rolling"
)
"""Methods of groups that pandas and polars compute for all groups at once, or whose work is bounded by group."""
