"""Programs that look like reads and are not, a notebook to run them in, and its state before and after."""

import decimal
import io
import json
import math
import operator
import os
import random
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
from IPython.display import display


class Meter:
    """An object that is changed by whatever is done with it."""

    def __init__(self) -> None:
        self.__dict__["seen"] = [0]

    def _count(self, *_: object) -> int:
        self.__dict__["seen"][0] += 1
        return 1

    def __repr__(self) -> str:
        return f"meter {self._count()}"

    def __eq__(self, other: object) -> bool:
        return bool(self._count())

    def __hash__(self) -> int:
        return self._count()

    def __format__(self, spec: str) -> str:
        return str(self._count())

    def __iter__(self):
        return iter([self._count()])

    def __getattr__(self, name: str) -> int:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._count()

    __len__ = __bool__ = __int__ = __index__ = __getitem__ = __contains__ = __lt__ = __gt__ = __add__ = __radd__ = (
        _count
    )
    __neg__ = __call__ = __abs__ = __round__ = __float__ = __mul__ = __rmul__ = _count


class Frame(pd.DataFrame):
    """A frame of the user."""


class Words(str):
    """A text of the user."""

    __slots__ = ()
    seen: ClassVar[list[int]] = []

    def __str__(self) -> str:
        self.seen.append(1)
        return "words"


class Zone(tzinfo):
    """A time zone of the user."""

    def __init__(self, seen: list[int]) -> None:
        self.seen = seen

    def utcoffset(self, dt):
        self.seen.append(1)


def notebook() -> dict[str, Any]:
    """Return a fresh namespace."""
    rows, nums, meter, zoned = [{"n": 2}, {"n": 1}], [3, 1, 2], Meter(), list[int]()

    def bump(*_: object) -> int:
        rows.append({"n": 0})
        return 1

    extra = pd.DataFrame({"a": [1.0, 2.0]})
    object.__setattr__(extra, "extra", meter)
    return {
        "df": pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": ["x", "y", "x"], "c": [1, 1, 2]}),
        "odf": pd.DataFrame({"o": [[1], [2], [3]], "k": [1, 2, 2]}),
        "mdf": pd.DataFrame({"o": [meter, meter]}),
        "fdf": Frame({"a": [1.0, 2.0]}),
        "extra": extra,
        "s": pd.Series([3.0, 1.0, 2.0], name="s"),
        "ms": pd.Series([1, 2], index=pd.Index([meter, 1], dtype=object)),
        "cs": pd.Series(pd.Categorical([meter, 1], categories=[meter, 1])),
        "days": pd.Series(pd.date_range("2024-01-01", periods=3)),
        "arr": np.array([4.0, 1.0, 9.0]),
        "m": np.arange(9.0).reshape(3, 3),
        "whole": np.array([2, 0, 1]),
        "flags": np.array([True, False, True]),
        "oarr": np.array([[1], [2], None], dtype=object)[:2],
        "marr": np.array([meter, 1], dtype=object),
        "rows": rows, "nums": nums, "d": {"k": [1], "j": 2}, "names": {"p", "q"}, "text": "some text", "pair": (1, [2]),
        "meter": meter, "boxed": [meter], "keyed": {1: meter}, "words": Words("a"), "part": slice(meter, None),
        "moment": datetime(2024, 1, 1, tzinfo=Zone(zoned)), "zoned": zoned, "word_list": Words.seen,
        "gen": iter([1, 2, 3]), "groups": defaultdict(list), "buf": io.StringIO(), "bump": bump,
        "np": np, "pd": pd, "os": os, "io": io, "math": math, "json": json, "re": re, "sys": sys, "op": operator,
        "random": random, "display": display, "Path": Path, "decimal": decimal, "warnings": warnings,
        "pl": pl,
        "pf": pl.DataFrame({"a": [3, 1, 2], "b": ["x", "y", "z"]}),
        "ps": pl.Series("p", [3, 1, 2]),
        "po": pl.Series("po", [meter, meter], dtype=pl.Object),
        "lazy": pl.DataFrame({"a": [1, 2]}).lazy().with_columns(pl.col("a").map_elements(bump, return_dtype=pl.Int64)),
        "expr": pl.col("a").map_elements(bump, return_dtype=pl.Int64),
    }  # fmt: skip


@contextmanager
def same_settings() -> Generator[None]:
    """Put back the settings of the process and of the libraries that a program has changed, and remove its files."""
    folder, environ, path, filters = Path.cwd(), dict(os.environ), list(sys.path), list(warnings.filters)
    drawn, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    errors, printed = np.geterr(), np.get_printoptions()
    rows, digits, mean, head = pd.get_option("display.max_rows"), decimal.getcontext().prec, np.mean, pd.DataFrame.head
    try:
        yield
    finally:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environ)
        sys.path[:], warnings.filters = path, filters
        random.setstate(drawn)
        np.random.set_state(of_numpy)  # noqa: NPY002
        np.seterr(**errors)
        np.set_printoptions(**printed)
        pd.set_option("display.max_rows", rows)
        decimal.getcontext().prec, np.mean, pd.DataFrame.head = digits, mean, head
        for place in folder.iterdir():
            place.rmdir() if place.is_dir() else place.unlink()


def state(namespace: dict[str, Any]) -> dict[str, Any]:
    """Return what a program that only reads leaves as it is, in values that can be compared."""
    found = {name: _content(value) for name, value in namespace.items() if not name.startswith("__")}
    of_numpy = np.random.get_state()[1].tobytes(), np.geterr(), str(np.get_printoptions()), np.mean  # noqa: NPY002
    of_pandas = pd.get_option("display.max_rows"), pd.DataFrame.head
    of_python = dict(os.environ), list(sys.path), random.getstate(), str(warnings.filters), decimal.getcontext().prec
    return {**found, " files": sorted(Path.cwd().iterdir()), " settings": (Path.cwd(), of_numpy, of_pandas, of_python)}


def _content(value: Any) -> Any:  # noqa: C901, PLR0911  (one arm for each kind)
    kind = type(value)
    match value:
        case pd.DataFrame():
            extras = [name for name in vars(value) if not name.startswith("_")]
            names = str(value.columns.names), str(value.index.names), str(value.attrs), str(value.flags), extras
            columns = [_contents(value.iloc[:, place]) for place in range(value.shape[1])]
            labels = _contents(value.columns), _contents(value.index), str(value.index.dtype)
            return id(value), names, labels, columns, list(map(str, value.dtypes))
        case pd.Series():
            return id(value), str(value.name), _contents(value), _contents(value.index), str(value.dtype)
        case np.ndarray():
            return id(value), value.shape, str(value.dtype), str(value.flags), _contents(value.ravel())
        case list() | tuple() | dict():
            inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value
            return id(value), list(map(_content, inner))
        case set():
            return id(value), sorted(value)
        case io.StringIO():
            return value.getvalue(), value.tell()
        case Meter():
            return list(value.__dict__.get("seen", ()))
        case _ if kind.__module__ == "builtins" and hasattr(kind, "__length_hint__"):
            return id(value), value.__length_hint__()
        case _ if kind.__name__ == "Series" and str(value.dtype) != "Object":
            return id(value), value.name, value.to_list(), str(value.dtype)
        case _ if kind.__module__.startswith("polars") and kind.__name__ == "DataFrame":
            return id(value), value.columns, value.to_dicts(), str(value.dtypes)
        case _ if kind in (float, int, str, bool, pd.Timestamp):
            return repr(value)
        case _:
            return id(value)


def _contents(values: Any) -> list[Any]:
    return list(map(_content, values.tolist()))


OF_IPYTHON = ("!", "%", "get_ipython")
"""Beginnings of programs that need IPython."""

HOSTILE = r"""
# texts that name methods
df.agg('eval', 0, '@inspect.os.mkdir("f")')
df.agg('insert', 0, 0, 'z', 1)
df.agg('pop', 0, 'a')
df.agg('to_csv', 0, 'f.csv')
df.aggregate('pop', 0, 'a')
df.apply('pop', args=('a',))
df.apply('to_pickle', args=('f',))
df.apply('insert', args=(0, 'z', 1))
df.transform('pop', 0, 'a')
df.agg(['sum', bump])
df.agg({'a': bump})
df.agg('to_string', 0, 'f.txt')
df.agg(func='pop', item='a')
s.agg('update', 0, [9, 9, 9])
s.agg('to_csv', 0, 'f.csv')
s.apply('update', args=([9, 9, 9],))
df.groupby('c').agg(z=('a', bump))
df.groupby('c').agg(bump)
df.groupby('c').apply(bump)
df.groupby('c').pipe(bump)
df.groupby('c').transform(bump)
df.groupby(bump).sum()
df.pivot_table(index='b', values='a', aggfunc=bump)
df.rolling(2).a.apply(bump)
df.a.map(bump)
df.a.rolling(2).agg(bump)
pd.crosstab(df.b, df.c, df.a, aggfunc=bump)
pd.pivot_table(df, index='b', values='a', aggfunc=bump)
df.agg({'a': ['sum', bump]})
df.agg(z=('a', bump))
df.agg('sum') is df.agg('update', 0, df * 2)
df.pivot_table(index='b', aggfunc={'a': bump})
pd.crosstab(df.b, df.c, values=df.a, aggfunc=lambda one: nums.append(1))
# text that pandas evaluates
df.eval('a = 3', inplace=True)
df.eval('z = a + 1', inplace=True)
df.query('@bump()')
df.query('a > @bump()')
df.query('a > 1', inplace=True)
df.eval('@bump()')
df.eval('@rows.clear()')
df.query('@rows.pop()["n"] < a')
odf.query('o.values[0].append(4)')
pd.eval('bump()', engine='python', parser='pandas', target=None, local_dict={'bump': bump})
df.query('@os.system("touch f")')
df.query("a > @nums.pop()")
# where a method puts its result
df.to_string('f.txt')
df.to_string(buf)
df.to_string(buf=buf)
df.to_csv('f.csv')
df.to_csv(buf)
df.to_csv(path_or_buf=buf)
df.to_json('f.json')
df.to_html('f.html')
df.to_html(buf)
df.to_pickle('f.pkl')
df.info(True, buf)
df.info(buf=buf)
df.a.to_csv('f.csv')
s.to_string('f.txt')
s.to_json('f.json')
df.head().to_csv('f.csv')
df.groupby('c').a.sum().to_csv('f.csv')
df.style.to_html('f.html')
df.describe().to_string(buf)
pd.DataFrame(rows).to_csv('f.csv')
pd.to_pickle(df, 'f.pkl')
arr.tofile('f')
arr.dump('f')
np.save('f', arr)
np.savetxt('f', arr)
np.savez('f', arr)
arr.astype(int).tofile('f')
json.dump(rows, open('f', 'w'))
print('x', file=buf)
print('x', file=open('f', 'w'))
open('f', 'w').write('x')
Path('f').write_text('x')
Path('f').touch()
os.mkdir('f')
os.open('f', os.O_CREAT)
pf.write_csv('f.csv')
pf.write_json(buf)
pf.write_ndjson('f')
pf.lazy().sink_csv('f.csv')
pf.serialize('f')
buf.write('x')
df.T.to_csv('f')
df.to_latex('f')
pf.write_json('f')
pf.write_csv(buf)
pl.DataFrame.write_csv(pf, 'f')
pd.DataFrame.to_csv(df, 'f')
# arguments that take the result
np.sqrt(arr, arr)
np.add(arr, 1, arr)
np.add(arr, 1, out=arr)
np.abs(arr - 5, arr)
np.negative(arr, arr)
np.power(arr, 2, arr)
np.maximum(arr, 5, arr)
np.logical_not(flags, flags)
np.clip(arr, 0, 1, arr)
np.round(arr / 3, 0, arr)
np.cumsum(arr, 0, None, arr)
np.sum(m, 0, None, arr)
np.mean(m, 0, None, arr)
np.std(m, 0, None, arr)
np.nanmean(m, 0, None, arr)
np.median(m, 0, arr)
np.percentile(m, 50, 0, arr)
np.argmax(m, 0, whole)
np.ptp(m, 0, arr)
np.take(arr, [1, 1, 1], 0, arr)
np.concatenate([[7.0], [8.0, 9.0]], 0, arr)
np.dot(m, [1.0, 1.0, 1.0], arr)
np.matmul(m, [1.0, 1.0, 1.0], arr)
np.nan_to_num(np.log(arr, arr), False)
np.copyto(arr, 0)
np.put(arr, [0], 7)
np.place(arr, arr > 2, 7)
np.putmask(arr, arr > 2, 7)
np.fill_diagonal(m, 7)
np.exp.at(arr, [0])
np.add.at(arr, [0], 1)
np.add.reduce(m, 0, None, arr)
np.add.accumulate(arr, 0, None, arr)
np.multiply.outer(arr, arr, out=m)
np.modf(arr / 2, arr, arr)
np.einsum('ij->i', m, out=arr)
np.floor(arr / 2, arr)
arr.cumsum(0, None, arr)
arr.round(0, arr / 1) is arr.clip(0, 1, arr)
arr.clip(0, 1, arr)
arr.clip(0, 1, out=arr)
arr.take([0, 0, 0], 0, arr)
m.sum(0, None, arr)
m.mean(0, None, arr)
m.max(0, arr)
m.dot([1.0, 1.0, 1.0], arr)
m.argmin(0, whole)
arr.sort()
arr.fill(0)
arr.put([0], 7)
arr.partition(1)
arr.resize(2, refcheck=False)
arr.setflags(write=False)
arr.byteswap(True)
arr[:2].fill(7)
arr.reshape(3, 1).sort(0)
arr.T.sort()
np.ndarray.sort(arr)
np.ndarray.fill(arr, 0)
np.random.shuffle(arr)
np.random.seed(1)
np.random.rand(2)
np.seterr(divide='raise')
np.set_printoptions(precision=3)
np.vectorize(bump)(arr)
np.apply_along_axis(bump, 0, arr)
np.frompyfunc(bump, 1, 1)(arr)
np.fromfunction(bump, (2,))
np.piecewise(arr, [arr > 1], [bump])
arr.flat = 0
arr.shape = (3, 1)
arr[0] = 7
arr += 1
np.sign(arr, arr)
np.around(arr / 3, 0, arr)
np.median(m, 0, arr, True)
np.percentile(arr, 50, None, None, True)
np.sqrt(*[arr, arr])
np.add(*[arr, 1, arr])
# objects in objects
odf.max()['o'].append(3)
[names][0].add('z')
{'a': names}['a'].update('z')
[df][0].pop('a')
odf.o[0].append(3)
odf.o.iloc[0].append(3)
odf.o.tolist()[0].append(3)
odf.to_dict()['o'][0].append(3)
odf.loc[0, 'o'].clear()
odf.at[0, 'o'].append(3)
odf.iat[0, 0].append(3)
odf.values[0, 0].append(3)
odf.o.max().sort(reverse=True) or odf.o.max().append(1)
odf.iloc[0].o.extend([1])
odf.groupby('k').o.first().iloc[0].append(3)
next(iter(odf.o)).append(3)
[one.append(3) for one in odf.o]
list(map(list.clear, odf.o))
oarr[0].append(3)
oarr.item(0).append(3)
oarr.tolist()[0].clear()
oarr.max().append(3)
min(oarr).insert(0, 9)
rows[0].update(z=1)
rows[0].setdefault('z', 1)
rows[-1].pop('n')
max(nums, default=nums) and nums.remove(max(nums))
d['k'].append(3)
d.get('k').append(3)
d.get('k', []).clear()
d.pop('k')
d.popitem()
d.setdefault('z', 1)
d.update(z=1)
d.copy()['k'].append(3)
pair[1].append(3)
names.add('z')
names.discard('p')
sorted(names) and names.clear()
nums.sort()
nums.reverse()
nums.pop()
nums.append(1) or print(nums)
print(nums.append(1))
f'{nums.append(1)}'
f'{1:{nums.pop()}}'
[nums.pop() for _ in range(2)]
{nums.pop() for _ in range(2)}
sum(nums.pop() for _ in range(2))
nums.pop() if nums else 0
nums and nums.pop()
assert nums.append(1) is None
if nums.pop(): pass
nums[nums.pop()]
df.loc[nums.pop()]
df[nums.append(1) or 'a']
nums.__iadd__([1])
nums.__setitem__(0, 9)
d.__ior__({'z': 1})
d.__delitem__('k')
names.__ior__({'z'})
names.update('z')
(pf if 0 else nums).sort()
[pf, nums][1].sort()
(pf, nums)[1].reverse()
{'a': nums}['a'].sort()
(nums or pf).sort()
[one for one in [nums]][0].sort()
[pf.sort() for pf in [nums]]
[pl.sort() for pl in [nums]]
next(iter([nums])).sort()
max([nums], default=pf).sort()
nums[::nums.pop()]
f'{text:>{nums.pop()}}'
print(end=str(nums.pop()))
df.filter(items=[nums.pop()])
dict(a=nums.pop())
json.dumps({'a': rows.pop()})
# functions that travel
list(map(nums.append, [1]))
any(map(nums.append, [1]))
print(*map(nums.append, [1]))
list(filter(d.pop, ['k']))
sorted([1, 2], key=nums.append)
sorted(rows, key=bump)
max(nums[:], key=nums.remove)
min(rows, key=lambda row: row.pop('n'))
sorted(rows, key=lambda row: row.setdefault('z', 1))
list(map(lambda one: nums.append(one), [1]))
list(map(bump, [1]))
max([1], [2], key=d.update and nums.append)
next(iter(bump, 0))
(nums.append)(1)
(lambda: nums.append(1))()
[f(1) for f in [nums.append]]
{0: nums.append}[0](5)
(nums.append if nums else print)(1)
getattr(nums, 'append')(1)
nums.append.__call__(1)
list.append(nums, 1)
type(nums).append(nums, 1)
nums.__class__.append(nums, 1)
[list][0].append(nums, 1)
op.methodcaller('append', 1)(nums)
op.setitem(nums, 0, 9)
op.iadd(nums, [1])
op.attrgetter('append')(nums)(1)
re.sub('s', bump, text)
re.sub('s', lambda found: str(nums.append(1)), text)
json.dumps({1: meter}, default=bump)
json.loads('[1]', object_hook=bump, parse_int=bump)
df.rename(columns=bump)
df.rename(columns=lambda one: str(nums.append(1)))
df.loc[lambda one: nums.append(1) or [0]]
df.where(lambda one: nums.append(1) or one.notna())
df.assign(z=lambda one: nums.append(1))
df.sort_values('a', key=lambda one: nums.append(1) or one)
df.filter(items=map(nums.append, ['a']))
df.isin(map(nums.append, [1]))
df.combine(df, bump)
df.map(bump)
df.groupby('c').filter(bump)
df.groupby('c')['a'].agg(lambda one: nums.append(1))
s.where(bump)
s.reindex(map(nums.append, [1]))
s.sort_values(key=bump)
s.combine(s, bump)
df.b.str.replace('x', bump, regex=True)
df.to_csv(float_format=bump)
df.to_string(formatters=[bump, bump, bump])
pd.Series([1]).map(nums.append)
pf.map_rows(bump)
pf.select(pl.col('a').map_elements(bump, return_dtype=pl.Int64))
pf.select(expr)
pf.pipe(bump)
lazy.collect()
ps.map_elements(bump, return_dtype=pl.Int64)
pf.with_columns(z=expr)
pf.filter(expr > 0)
[print for print in [nums.append]][0](1)
[len(5) for len in [nums.append]]
[np.append(5) for np in [nums]]
iter(nums.pop, 1).__next__()
sorted(nums, key=lambda one=nums.pop(): 1)
sorted([1, 2], key=lambda one, *more: nums.append(1))
df.rename(columns=nums.append)
df.groupby(d.setdefault).size()
s.map(d.setdefault)
s.map(nums.append)
df.apply(nums.append)
re.sub('s', nums.append, text)
pf.select(pl.col('a').map_batches(bump))
pf.group_by('b').map_groups(bump)
# objects of the user
print(meter)
len(meter)
str(meter)
f'{meter}'
f'{meter!r}'
meter
meter.value
meter == 1
meter[0]
meter + 1
1 + meter
not meter
meter and 1
1 if meter else 2
1 in meter
-meter
list(meter)
sorted([meter, meter])
{meter}
{meter: 1}
[1, 2][meter]
abs(meter)
hash(meter)
round(meter)
math.floor(meter)
boxed
print(boxed)
boxed[0] + 1
str(keyed)
keyed[1].value
print(mdf)
mdf.head()
mdf.sum()
mdf.describe()
mdf.o.unique()
mdf == 1
mdf.o[0].value
ms
print(ms)
cs
cs.value_counts()
marr
marr.sum()
marr == 1
print(extra.extra)
extra.extra.value
print(words)
f'{words}'
str(moment)
moment.isoformat()
[1, 2][part]
repr(part)
print(po)
po.to_list()[0].value
next(gen)
list(gen)
sum(gen)
2 in gen
max(gen)
print(*gen)
dict(zip(gen, gen))
sorted(gen)
[one for one in gen]
groups['z']
print(groups['z'])
[groups[one] for one in 'ab']
bump()
print(bump())
[bump() for _ in range(2)]
"{0.value}".format(meter)
"{0[z]}".format(groups)
"{:{}}".format(1, meter)
text.join(map(str, boxed))
pd.Series(meter)
np.asarray(boxed)
pd.DataFrame(gen)
# names
made = 1
rows = 1
[rows := 3]
(made := 3)
for made in nums: pass
for rows[0] in nums: pass
for d['k'] in nums: pass
with open('f', 'w') as made: pass
import collections as rows
from math import pi as rows
def made(): pass
def made(one=nums.append(1)): pass
class made: pass
class made: nums.append(1)
del rows
del rows[0]
del d['k']
del df['a']
rows, nums = nums, rows
made: nums.append(1)
made: int = 1
nums += [1]
d |= {'z': 1}
d['k'] = 2
rows[0]['n'] = 9
rows[0]['n'] += 9
nums[:] = []
s[0] = 9
df['z'] = 1
df.a = 0
df.z = 0
df.loc[0, 'a'] = 9
df.iat[0, 0] = 9
df.columns = ['p', 'q', 'r']
df.index.name = 'z'
df.attrs['z'] = 1
df.attrs.update(z=1)
df.flags.allows_duplicate_labels = False
df.insert(0, 'z', 1)
df.pop('a')
df.update(df[['a']] * 2)
df.isetitem(0, 9)
df.drop(columns='a', inplace=True)
df.drop(columns='a', **{'inplace': True})
df.fillna(0, inplace=True) is df.rename(columns={'a': 'z'}, inplace=True)
df.sort_values('a', ascending=False, inplace=True)
df.reset_index(inplace=True)
df.set_index('a', inplace=True)
df.mask(df.c > 0, 0, inplace=True)
df.index.set_names('z', inplace=True)
df.rename_axis('z', inplace=True)
df.a.array[0] = 9
df.__setitem__('z', 1)
df.loc.__setitem__((0, 'a'), 9)
pd.DataFrame.insert(df, 0, 'z', 1)
pd.DataFrame.pop(df, 'a')
s.update([9, 9, 9])
s.pop(0)
s.replace(3, 9, inplace=True)
s.clip(0, 1, inplace=True)
s.sort_values(inplace=True)
pf.extend(pf)
pf.insert_column(0, pl.Series('z', [1, 1, 1]))
pf.replace_column(0, pl.Series('z', [1, 1, 1]))
pf.drop_in_place('a')
pf.hstack([pl.Series('z', [1, 1, 1])], in_place=True)
pf.vstack(pf, in_place=True)
pf.columns = ['p', 'q']
pf[0, 'a'] = 9
ps.append(ps)
ps.extend(ps)
ps.sort(in_place=True)
ps.scatter(0, 9)
ps[0] = 9
try: nums.pop()
finally: pass
try: 1 / 0
except bump(): pass
try: 1 / 0
except (KeyError, bump() and ValueError, ZeroDivisionError): pass
match 5:
    case made: pass
try: 1 / 0
except ZeroDivisionError as rows: pass
from math import *
import math as np; np.pi
from numpy import pi as text
list.sort(nums)
(pd.DataFrame if nums else list).pop(df, 'a')
df.iloc.obj.pop('a')
df.dropna(**{'inplace': True}) or df.drop(columns='a', inplace=True)
# methods of polars on what is not certainly of polars
([nums] * pf.width)[0].sort()
(pf.width * [nums])[0].reverse()
([nums] * ps.len())[0].sort()
([nums] * pl.DataFrame({'a': [1]}).width)[0].sort()
(pf if not nums else nums).sort()
(pf.is_empty() or nums).sort()
[one for one in [nums] * pf.width][0].sort()
dict(z=nums, y=pf)['z'].reverse()
[pf, nums][pf.width - 1].sort()
max([pf.width], key=lambda one: nums.sort())
pf.get_column('z', default=nums).sort()
list(map(lambda one: nums.reverse(), ps))
# the interpreter and the machine
globals()['made'] = 1
globals().update(made=1)
locals()['made'] = 1
vars()['made'] = 1
exec('made = 1')
eval('nums.append(1)')
eval('(made := 1)')
compile('1', '', 'exec') and exec(compile('made = 1', '', 'exec'))
setattr(df, 'z', 1)
delattr(meter, 'seen')
object.__setattr__(df, 'z', 1)
sys.modules['__main__'] and sys.path.append('z')
sys.path.append('z')
os.system('touch f')
os.popen('touch f').read()
__import__('os').system('touch f')
__import__('subprocess').run(['touch', 'f'])
import subprocess; subprocess.run('touch f', shell=True)
getattr(os, 'mkdir')('f')
getattr(os, 'mk' + 'dir')('f')
vars(os)['mkdir']('f')
os.__dict__['mkdir']('f')
os.environ['MADE'] = '1'
os.environ.update(MADE='1')
os.environ.setdefault('MADE', '1')
os.putenv('MADE', '1') or os.environ.__setitem__('MADE', '1')
os.chdir('..')
!touch f
%cd ..
%%writefile f
get_ipython().system('touch f')
pd.set_option('display.max_rows', 5)
pd.options.display.max_rows = 5
pd.DataFrame.head = print
np.mean = print
random.seed(1)
random.random()
random.shuffle(nums)
df.sample(1)
s.sample(1)
warnings.filterwarnings('ignore')
decimal.getcontext().prec = 3
__builtins__['print'](nums.append(1))
print.__self__.exec('nums.append(1)')
(lambda f=nums.append: f(1))()
[c for c in ().__class__.__base__.__subclasses__() if nums.append(1)]
type('made', (), {'x': nums.append(1)})
type(meter)('a' and nums.append(1))
exit(nums.append(1))
"""


def hostile() -> dict[str, list[str]]:
    """Return the programs by their kind; one whose further lines are indented or follow a `try` goes on over them."""
    kinds: dict[str, list[str]] = {}
    for line in HOSTILE.strip().splitlines():
        if line.startswith("# "):
            kinds[line[2:]] = []
        elif line.startswith(("    ", "finally", "except")):
            kinds[next(reversed(kinds))][-1] += f"\n{line}"
        else:
            kinds[next(reversed(kinds))].append(line)
    return kinds
