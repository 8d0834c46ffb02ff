# ruff: noqa: E501
"""Programs that change nothing and do not end soon, by the kind of their work; and looks at large data that do."""

import collections
import pprint
import statistics
import textwrap
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

from tests.undo.hostile_programs import notebook

LONG = r"""
# powers and whole numbers
9**9**9
2 ** 10**10
(10**8) ** (10**8)
nums[0] ** whole_numbers[0]
pow(7, 10**10)
(-3) ** 10**9
1 << 10**11
1 << nums[0] * 10**12
math.factorial(10**8)
math.perm(10**9, 10**8)
math.comb(10**9, 10**8)
round(5, -10**10)
len(str(7 ** 10**7))
str(3 ** 10**8)
[n ** 10**7 for n in nums]
list(map(lambda n: n ** 10**8, nums))
df.c.astype('object') ** 10**9
np.array(nums, dtype='object') ** 10**9
np.array([10**400]) ** 10**7
df.eval('9 ** 9 ** 9')
df.query('a > 9 ** 9 ** 9')
# repetitions
'x' * 10**11
len([0] * 10**11)
rows * 10**10
b'ab' * 10**12
(1, 2) * 10**11
[[0] * 10**6 for _ in range(10**5)]
' '.join(['x' * 10**6] * 10**6)
','.join(names) * 10**10
'x'.ljust(10**11)
'x'.rjust(10**11)
text.center(10**11)
'7'.zfill(10**11)
'\t'.expandtabs(10**11)
'a'.replace('a', 'b' * 10**8)
('a' * 10**6).replace('', 'b' * 10**6)
('a' * 10**5).translate({97: 'b' * 10**6})
df.b.str.ljust(10**10)
df.b.str.pad(10**10)
df.b.str.zfill(10**10)
df.b.str.repeat(10**10)
df.b * 10**10
s.repeat(10**10)
bytes(10**11)
np.tile(arr, 10**10)
np.repeat(arr, 10**10)
('a' * 10**6).strip('b' * 10**6 + 'a')
('a' * 10**5).rfind('b' + 'a' * 50_000)
# whole numbers with the same hash, numbers that no range has
{n * (2**61 - 1): n for n in range(10**5)}
set(n * (2**61 - 1) for n in range(10**5))
dict([(n * (2**61 - 1), 1) for n in range(10**5)])
collections.Counter([n * (2**61 - 1) for n in range(10**5)])
0.5 in far
sorted(pl.col('a').list)
[one for one in pf['a'].list]
list(big.iloc)
max(pl.col('a').struct, key=str)
far.count(0.5)
far.index('x')
[one for one in {1: far}.values()][0].count('x')
# formats
f'{1:>{far.stop}}'
f"{1:{'9' * 9}}"
f'{1:10000000000}'
f'{text:>{10**10}}'
'%10000000000d' % 1
'%.10000000000f' % 1.5
'%*d' % (10**10, 1)
'{:10000000000}'.format(1)
format(1, '10000000000')
# ranges and loops
sum(range(10**11))
list(range(10**11))
max(range(10**11))
len([n for n in range(10**10)])
any(n < 0 for n in range(10**11))
[a for a in range(10**5) for b in range(10**5)]
{a: b for a in range(10**5) for b in range(10**5)}
sorted(range(10**9), key=lambda n: -n)
list(zip(range(10**10), range(10**10)))
list(enumerate(range(10**10)))
list(map(str, range(10**10)))
list(filter(None, range(10**10)))
set(range(10**10))
list(reversed(range(10**10)))
10**12 in [n for n in range(10**10)]
sum(n * n for n in range(nums[0] * 10**9))
range(10**12)[5] in list(range(10**12))
sum(far)
list(far)
sum([nums] * 10**5, [])
sum(([n] for n in range(10**6)), [])
print(*range(10**9))
print(*['x'] * 10**4, sep='y' * 10**5)
collections.Counter(range(10**10))
# regular expressions
re.match('(a+)+b', 'a' * 40)
re.match('(a|a)*b', 'a' * 40)
re.match('(a|aa)+$', 'a' * 60 + 'b')
re.match(r'(\w+\s?)*$', 'a' * 50 + '!')
re.search('(x+x+)+y', 'x' * 50)
re.fullmatch('(a?){40}a{40}', 'a' * 40)
re.match('a?' * 40 + 'a' * 40, 'a' * 40)
re.findall('a*a*a*a*b', 'a' * 10**4)
re.sub('(.*)*x', '', 'a' * 40)
re.sub('a', r'\g<0>' * 10**4, 'a' * 10**6)
re.split('(,+)+;', ',' * 40)
re.search(r'(?=(a+))*b', 'a' * 40)
re.search('((a+))+#', text, 64)
df.b.str.contains('(a+)+b')
df.b.str.match('(a|a)*b')
df.b.str.replace('(a+)+b', '', regex=True)
df.b.str.extract('((a+)+b)')
df.b.str.findall('(a+)+b')
df.b.str.split('(a+)+b')
df.b.str.count('(a+)+b')
df.replace('(a+)+b', '', regex=True)
df.replace(regex='(a+)+b', value='')
re.findall(r'\d+-\d+-\d+', '1' * 10**5)
# new arrays and ranges of libraries
np.zeros(10**11)
np.ones((10**6, 10**6))
np.full(10**11, 1)
np.empty([10**5, 10**5])
np.arange(10**11)
np.arange(0, 1, 1e-12)
np.linspace(0, 1, 10**11)
np.linspace(0, 1, num=10**11)
np.eye(10**6)
np.identity(10**6)
np.bincount(far_numbers)
np.histogram(arr, bins=10**11)
np.broadcast_to(arr, (10**10, 3)).sum()
np.diag(np.arange(10**6))
pd.date_range('1700', '2200', freq='s')
pd.date_range('2024-01-01', periods=10**10)
pd.period_range('1700', '2200', freq='min')
pd.timedelta_range('0s', '10000D', freq='ms')
pd.Series(range(10**10))
pd.DataFrame({'a': range(10**10)})
pd.Series(0, index=range(10**10))
pd.cut(df.a, bins=10**9)
pd.qcut(df.a, q=10**9)
df.a.value_counts(bins=10**9)
series_of_days.resample('ms').mean()
series_of_days.asfreq('us')
df.reindex(range(10**10))
pf.select(pl.int_range(0, 10**11))
pf.select(pl.date_range(pl.date(1, 1, 1), pl.date(9999, 1, 1), '1us'))
np.zeros(100, dtype='S1000000000')
np.array(['a'], dtype='U1000000000')
np.array_split(long, 10**9)
np.triu(long)
np.polyval(long, long)
np.isin(long.astype('object'), long.astype('object'))
np.cov(big.town)
np.inner(series_of_texts, 100000)
big.x0.pct_change(big.n)
big.x0.autocorr(big.n)
big.iloc[:20000].groupby('x0').diff(100000)
np.isin(big.town, big.town)
big.rank()
big.mode()
big.cummax(1)
# products
big.stack()
big @ arr
arr[big]
pl.sum_horizontal(long)
statistics.multimode(line)
big.melt(id_vars='n')
big.duplicated()
big.values[:5]
np.average(big)
sorted(big.axes, key=lambda labels: pl.sum_horizontal(labels))
pl.when(big.n)
[name for name, group in big.groupby('x0')]
list(big.groupby('x0'))
big.groupby('x0').n.unique()
big.groupby('x0').n.nlargest(2)
big_pf.partition_by('n')
big_pf.select(pl.col('x0').implode().over('n'))
big_pf.select(pl.col('x0').rolling_mean(10**5, weights=[1.0] * 10**5))
wide.set_index('k').v.align(wide.set_index('k').v * 2)
textwrap.fill('x' * 10**6, 1)
wide.merge(wide, how='cross')
pd.merge(wide, wide, on='k')
wide.join(wide, how='left')
wide.set_index('k').v + wide.set_index('k').v
wide.pivot_table(index='v', columns='k')
pd.crosstab(wide.v, wide.v)
pd.get_dummies(wide.v)
wide.set_index(['v', 'k']).unstack()
wide.T.corr()
wide.to_html()
wide.to_string()
wide.to_markdown()
list(wide.iterrows())
wide_pf.join(wide_pf, how='cross')
wide_pf.join(wide_pf, on='k')
np.outer(long, long)
np.kron(long, long)
np.convolve(long, long)
long[:, None] - long
long.reshape(1, -1) * long.reshape(-1, 1)
np.cov(np.ones((3000, 3)) @ np.ones((3, 3000)))
np.corrcoef(long.reshape(-1, 1))
np.linalg.inv(np.eye(3000))
np.linalg.svd(big_matrix)
big_matrix @ big_matrix
np.dot(big_matrix, big_matrix)
wide.set_index('k').loc[[0] * 10**5]
[one for one in long.tolist() for two in long.tolist()]
[pf.sort('a').width for _ in article]
[df.a.mean() for _ in range(10**5)]
[np.mean(nums) for _ in range(10**6)]
[pd.Series(nums) for _ in range(10**5)]
[sum(nums) for nums in [long.tolist()] * 10**4]
sorted([long.tolist()] * 10**4, key=sum)
statistics.quantiles(nums, n=10**10)
json.dumps(rows, indent=10**10)
pprint.pformat(rows, indent=10**10)
textwrap.indent('a\n' * 10**5, 'b' * 10**5)
series_of_texts.sum()
wide.assign(z='x' * 10**7).z.str.upper()
wide.groupby('v').describe()
wide.groupby('v').agg('describe')
"""

LOOKS = r"""
big
big.head()
big.tail(3)
big.shape, len(big), big.columns, big.dtypes
big.info()
big.describe()
big.describe().T
big.describe().round(2).to_string()
big.describe(include='all')
big.isna().sum()
big.isnull().sum().sort_values(ascending=False)
big.isna().mean().round(4) * 100
big.nunique()
big.x0.sum()
big.x0.mean()
big['x0'].median()
big.x0.quantile([0.05, 0.5, 0.95])
big['town'].unique()
big['town'].value_counts()
big.town.value_counts(normalize=True).head(10)
big.town.str.upper().head()
big.town.str.contains('or').sum()
big[big.town.str.startswith('n')].shape
big.day.dt.year.value_counts()
big.day.min(), big.day.max()
big[big.x0 > 0]
big[(big.x0 > 0) & (big.n == 3)]
big[big.x0 > 0].x1.mean()
big.loc[big.x0 > 0, ['x0', 'x1']].describe()
big.loc[big.x0 > 0, 'x1'].mean()
big.iloc[:1000].describe()
big.iloc[0]
big.query('x0 > 0 and n == 3').head()
big.groupby('town').x0.mean()
big.groupby('town')['x0'].mean().sort_values(ascending=False).head(10)
big.groupby('n').mean(numeric_only=True)
big.groupby(['town', 'n']).size()
big.groupby('town').agg({'x0': 'mean', 'x1': ['min', 'max']})
big.groupby('town').agg(total=('x0', 'sum'), number=('x1', 'count'))
big.select_dtypes(include='number').corr()
big.corr(numeric_only=True)
big[['x0', 'x1']].corr()
big.x0.corr(big.x1)
(big.x0 - big.x1).abs().mean()
(big.x0 * 2 + big.x1) / big.x2
((big.x0 - big.x0.mean()) / big.x0.std()).head()
(big.x0 - big.x1) ** 2
big.sort_values('x0', ascending=False).head(10)
big.nlargest(5, 'x0')
big.loc[big.x0.idxmax()]
big.dropna().shape
big.fillna(0).head()
big.assign(z=big.x0 * 2).head()
big.rename(columns={'x0': 'z'}).head()
big.drop(columns=['x0']).head()
big.drop_duplicates(subset=['n']).shape
big.x0.rolling(20).mean()
big.x0.cumsum().tail()
big.memory_usage(deep=True).sum() / 1024 ** 2
pd.cut(big.x0, bins=10).value_counts()
pd.concat([big, big]).shape
{name: big[name].nunique() for name in big.columns}
[name for name in big.columns if big[name].dtype == 'object']
print(f"{len(big):,} rows, mean {big.x0.mean():.2f}")
print(big.head().to_markdown())
print(big.groupby('town').x0.mean().head(20).to_string())
big.head(100).to_dict('records')
big.x0.to_numpy()[:5]
np.mean(big.x0), np.std(big.x0)
np.percentile(big.x0, [5, 50, 95])
np.sqrt(np.abs(big.x0)).mean()
np.where(big.x0 > 0, 1, 0).sum()
matrix.mean(axis=0)
(matrix - matrix.mean(axis=0)).std(axis=0)
np.corrcoef(matrix[:, 0], matrix[:, 1])
matrix[:5]
matrix.T @ matrix
np.linalg.norm(matrix, axis=1).mean()
line - line.mean()
np.sum((line - line * 2) ** 2)
big_pf.head()
big_pf.describe()
big_pf.group_by('n').agg(pl.col('x0').mean(), pl.col('x1').max())
big_pf.filter(pl.col('x0') > 0).select('x0', 'n').head()
big_pf.sort('x0').head()
big_pf['n'].value_counts().sort('count', descending=True)
big_pf.null_count()
words[:10]
len(words)
sorted(words)[:5]
collections.Counter(words).most_common(5)
[word for word in words if len(word) > 3][:5]
max(words, key=len)
sum(len(word) for word in words)
sum(n % 7 for n in numbers) / len(numbers)
[n ** 2 for n in numbers][:5]
' '.join(words)[:100]
re.findall(r'\w+', article)[:10]
len(re.findall('the', article))
article.lower().split()[:10]
json.dumps(records)[:200]
sum(record['price'] for record in records)
sorted(records, key=lambda record: record['price'])[:3]
{record['name'] for record in records}
2 ** 100, 10 ** 6, 3 ** 0.5, 2 ** -1
math.factorial(20), math.comb(52, 5)
'-' * 40
print('=' * 80)
f'{3.14159:10.3f}', f'{len(words):>{len(numbers[:9])}}', '%8.2f' % 3.0, '{:>12}'.format('x')
sum(range(10**6))
[n * n for n in range(1000)]
np.linspace(0, 1, 101), np.arange(0, 10, 0.5), np.zeros((100, 100))
np.eye(100), np.linalg.inv(np.eye(100))
pd.date_range('2024-01-01', '2024-12-31'), pd.date_range('2024', periods=12, freq='MS')
"""


def long_programs() -> list[str]:
    """Return the programs that do not end soon."""
    return [line for line in LONG.strip().splitlines() if not line.startswith("# ")]


def looks() -> list[str]:
    """Return ordinary looks at large data."""
    return [*LOOKS.strip().splitlines()]


def large_notebook() -> dict[str, Any]:
    """Return a namespace with data of usual large sizes."""
    random, rows = np.random.default_rng(0), 1_000_000
    big = pd.DataFrame({f"x{place}": random.normal(size=rows) for place in range(17)})
    big["n"] = random.integers(0, 50, rows)
    big["town"] = random.choice(["north", "south", "east"], rows)
    big["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 10**7, rows), unit="s")
    wide = pd.DataFrame({"k": np.arange(50_000) % 5, "v": np.arange(50_000)})
    return {
        **notebook(),
        "big": big, "big_pf": pl.from_pandas(big[["x0", "x1", "n"]]), "wide": wide, "wide_pf": pl.from_pandas(wide),
        "matrix": random.normal(size=(100_000, 20)), "line": random.normal(size=rows), "long": np.arange(50_000),
        "big_matrix": np.ones((3000, 3000)), "far": range(10**12), "far_numbers": np.array([10**12]),
        "whole_numbers": [10**12], "series_of_days": pd.Series([1, 2], pd.to_datetime(["1700-01-01", "2200-01-01"])),
        "series_of_texts": pd.Series(["some text"] * 200_000, dtype=object),
        "words": ["some", "words", "to", "count"] * 10_000, "numbers": [*range(50_000)], "article": "the cat and the dog " * 2500,
        "records": [{"name": f"n{place}", "price": place / 7, "tags": ["a", "b"]} for place in range(600)],
        "collections": collections, "pprint": pprint, "statistics": statistics, "textwrap": textwrap,
    }  # fmt: skip
