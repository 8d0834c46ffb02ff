"""Tables of operations that certainly change nothing, for values of known types.

The name of a method or attribute is in a table only if it changes nothing in all data types that have it. Arguments
must be data too, not functions or buffers. Parameters for a path, for the name of a method, or for an object that
receives the result are in no table.
"""

import ast
import re
from collections.abc import Iterator

from agentmagic.text import word_set
from agentmagic.undo.data_types import TYPES

_TABLE = r"""
add: 1 sub div truediv floordiv mod radd rsub rdiv eq ne lt le gt ge align numpy. 2 add subtract divide mod maximum
    minimum hypot arctan2 3 where
arange: numpy. 3 arange
array: 1 to_numpy values numpy. 1 array asarray
bins: 1 value_counts most_common numpy. 2 histogram pandas. 2 cut qcut
bool: builtins. 1 bool any all callable type 2 isinstance issubclass math. 99 isnan isinf isfinite isclose os.path. 99
    exists isfile isdir getsize
bytes: builtins. 1 bytes
calendar: 1 asfreq resample pandas. 2 date_range period_range timedelta_range bdate_range polars. 99 date_range
cells: 1 fillna ffill bfill round abs cumcount assign map combine_first fill_null fill_nan cum_max cum_min cum_count
    replace_strict upper lower title capitalize swapcase casefold strip lstrip rstrip removeprefix removesuffix cat
    to_lowercase to_uppercase strip_chars interpolate 2 clip where mask builtins. 1 abs
compare: numpy. 2 logical_and logical_or isclose allclose array_equal isin
contains: 1 contains fullmatch 2 match
convert: 1 astype
count: 1 count size bit_length len null_count len_chars len_bytes 2 find rfind index rindex
counter: collections. 1 Counter
csv: 0 to_csv write_csv to_json write_json write_ndjson 1 strftime isoformat ctime json. 1 dumps textwrap. 2 dedent
    fill shorten indent
dates: pandas. 1 to_datetime to_timedelta Timestamp Timedelta Period to_numeric
description: 1 describe
dict: builtins. 1 dict
distinct: 1 nunique n_unique
divide: builtins. 2 divmod
dot: 1 dot numpy. 2 dot matmul inner
elements: 1 elements numpy. 2 bincount
enumerate: builtins. 99 enumerate
equal rows: 1 drop_duplicates
expression: 99 select with_columns agg over when then otherwise
extreme: builtins. 99 min max
factorial: math. 99 factorial comb perm
files: os. 1 listdir
fit: numpy. 3 polyfit
float: builtins. 1 float complex hash math. 99 modf frexp sqrt exp log log2 log10 log1p expm1 sin cos tan asin acos
    atan atan2 sinh cosh tanh fabs hypot dist degrees radians fsum pow fmod copysign erf gamma lgamma cbrt exp2
format: builtins. 2 format
frame: pandas. 1 DataFrame MultiIndex
get: 2 get
groups: 1 groupby rolling expanding ewm 99 group_by
hash: 1 unique factorize union intersection difference symmetric_difference rolling_mean rolling_sum rolling_min
    rolling_max pandas. 1 unique factorize
hash truth: 1 isin is_in is_unique
head: 1 head tail limit
items product: 1 prod product math. 99 gcd lcm prod numpy. 2 prod
iterate: builtins. 1 list tuple reversed iter 99 zip map filter
keys: 1 keys
length: builtins. 1 len
loads: json. 1 loads
made: numpy. 1 empty zeros ones 2 full
match: 1 findall extract extractall 2 count_matches extract_all
matrix: numpy.linalg. 1 inv det eig eigh eigvals svd qr pinv matrix_rank cond 2 solve lstsq
members: 1 items
multiply: 1 mul rmul numpy. 2 multiply
next: builtins. 2 next
number: builtins. 1 id ord datetime. 99 datetime date timedelta time datetime.date. 99 today fromisoformat
    fromtimestamp datetime.datetime. 99 now today utcnow strptime fromisoformat fromtimestamp combine pandas.Timestamp.
    1 now today time. 1 time perf_counter monotonic process_time
numbers: numpy. 1 sqrt exp log log2 log10 log1p expm1 abs absolute sin cos tan arcsin arccos arctan sinh cosh tanh
    square sign floor ceil rint deg2rad rad2deg exp2 nan_to_num 2 round around 3 clip
objects: 0 encode decode 1 tolist to_list itertuples to_dict hex to_pandas to_dicts rows row iter_rows to_arrow
pairs: 1 cov corr corrwith numpy. 2 corrcoef cov
parts: 1 implode partition_by
pass: 0 info glimpse 1 rename_axis to_period to_timestamp to_series month_name day_name ngroup ohlc diagonal nonzero
    is_integer bit_count as_integer_ratio to_pydatetime toordinal weekday isoweekday timestamp total_seconds date time
    timetuple quantize floor ceil isocalendar astimezone wrap group groups groupdict span cast alias suffix prefix
    strptime to_date to_datetime to_time year month day hour minute second quarter ordinal_day total_days total_hours
    total_minutes epoch sqrt log exp sign unnest to_struct
polars: polars. 99 col lit len when sum mean max min count first last element date datetime duration concat_str
    coalesce struct all exclude format sum_horizontal max_horizontal min_horizontal mean_horizontal any_horizontal
    all_horizontal median std var n_unique corr
polars frame: polars. 99 DataFrame
polars range: polars. 99 arange int_range
polars series: polars. 99 Series
power: 1 pow builtins. 2 pow numpy. 2 power
print: IPython.display. 99 display builtins. 99 print display
product: 1 merge join numpy. 1 meshgrid 2 polyval outer kron convolve cross pandas. 2 merge
quantile: 1 quantile numpy. 2 percentile quantile nanpercentile
range: builtins. 99 range
rank: 1 mode rank
reduction: 1 memory_usage sum mean median std var sem skew kurt kurtosis min max any all idxmin idxmax argmin argmax
    first last trace ptp arg_max arg_min total numpy. 2 sum mean median std var min max amin amax ptp average nansum
    nanmean nanmedian nanstd nanvar nanmin nanmax argmax argmin nanargmax nanargmin all any count_nonzero trace
    numpy.linalg. 2 norm
regex: re. 4 findall search match fullmatch split
relabel: 1 reset_index to_frame set_index rename with_row_index flatten ravel 2 swapaxes reshape numpy. 1 ndim shape
    size transpose ravel nonzero argwhere 2 reshape squeeze
repeat: 1 zfill expandtabs 2 center ljust rjust pad repeat numpy. 2 split array_split diff tile repeat broadcast_to
replace: 1 translate 2 replace
round: builtins. 2 round
rows: 1 iterrows
running: 1 cummax cummin cumsum cum_sum cumprod numpy. 2 cumsum cumprod
series: pandas. 1 Index Categorical 2 Series
set: builtins. 1 set frozenset
shifted: 1 diff pct_change shift autocorr
shown: builtins. 1 str repr ascii bin hex oct chr os. 1 getcwd os.path. 99 join basename dirname abspath splitext re. 4
    escape time. 1 ctime strftime
slice: builtins. 99 slice
sort: 1 sort_values sort_index argsort searchsorted arg_sort top_k bottom_k 2 nlargest nsmallest numpy. 1 zeros_like
    ones_like empty_like unique sort argsort flip gradient 2 full_like roll searchsorted digitize setdiff1d intersect1d
    union1d delete append expand_dims trapezoid 3 interp insert
sorted: builtins. 1 sorted
spaced: numpy. 3 linspace logspace geomspace
split: 1 splitlines rpartition 2 split rsplit
spread: 1 melt stack explode reindex take 99 unpivot pandas. 2 melt
square: numpy. 1 diag triu tril eye identity
stacked: numpy. 1 vstack hstack column_stack 2 concatenate stack pandas. 1 concat polars. 99 concat
statistic: statistics. 2 mode multimode mean fmean median stdev pstdev variance pvariance quantiles median_low
    median_high harmonic_mean geometric_mean correlation covariance linear_regression
subset: 0 collect lazy 1 item copy dropna drop filter select_dtypes squeeze droplevel get_level_values tz_localize
    tz_convert normalize infer_objects convert_dtypes xs nth get_group slice get_column get_columns drop_nulls
    drop_nans truncate field gather_every n_chunks estimated_size clone keep 2 swaplevel
substitute: re. 4 sub
sum: builtins. 2 sum
text: 0 to_string to_html to_markdown to_latex 99 format pprint. 1 pformat pprint pp
truth: 1 equals isna isnull notna notnull isalpha isdigit isnumeric isdecimal isalnum isspace isupper islower istitle
    isidentifier isascii isprintable issubset issuperset isdisjoint is_null is_not_null is_nan is_first_distinct
    starts_with ends_with is_empty has_nulls 2 startswith endswith between is_between numpy. 1 isnan isfinite isinf
    logical_not pandas. 1 isna isnull notna notnull
truth of rows: 1 duplicated is_duplicated
turned: 1 transpose
whole: builtins. 2 int math. 99 floor ceil trunc isqrt
widened: 1 unstack pivot pivot_table get_dummies pandas. 1 get_dummies 2 crosstab pivot_table
"""
"""All methods and functions that change nothing, by their kind of work, which `workload` bounds.

A word with a point at its end is the module of the functions behind it; methods stand in front of all modules. A number
is the largest number of positional arguments of the names behind it: a further argument can be the place of the result.
"""


def _parsed() -> Iterator[tuple[str, str, int]]:
    """Yield the path of each function or the name of each method, its kind of work and its most arguments."""
    kind = module = most = ""
    for word in re.findall(r"^[\w ]+:|\S+", _TABLE, re.MULTILINE):
        if word.endswith(":"):
            kind, module = word[:-1], ""
        elif word.endswith("."):
            module = word
        elif word.isdigit():
            most = word
        else:
            yield f"{module}{word}", kind, int(most)


_ROWS = tuple(_parsed())
KIND_OF = {path: kind for path, kind, _ in _ROWS}
"""The kind of work of each method, by name, and of each function, by path."""
METHODS = {path: most for path, _, most in _ROWS if "." not in path}
"""Allowed methods, by the largest number of positional arguments."""
FUNCTIONS = {path: most for path, _, most in _ROWS if "." in path}
"""Allowed functions, by the largest number of positional arguments."""
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

GROUPED = word_set(
    "mean sum median std var min max count size first last nunique any all prod sem skew kurt cumsum cumprod cummin "
    "cummax cumcount ngroup rank quantile nth head tail shift diff fillna ffill bfill value_counts idxmin idxmax "
    "describe corr cov corrwith len n_unique agg over select filter rolling"
)
"""Methods of groups that pandas and polars compute for all groups at once, or whose work is bounded by group."""
OPERATORS = (
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.JoinedStr, ast.FormattedValue, ast.Starred,
    ast.Slice, ast.List, ast.Tuple, ast.Set, ast.Dict,
)  # fmt: skip
SIGNS = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
OF_QUERY = (ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.List, ast.Tuple, *SIGNS)
"""Syntax nodes allowed in a text that pandas evaluates: comparisons of and calculations with columns."""
