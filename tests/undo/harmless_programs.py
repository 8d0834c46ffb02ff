# ruff: noqa: E501
"""Cells as data scientists write them, without a risk; those above the line of dashes only read."""

CELLS = r"""
df
df.head()
df.head(10)
df.tail()
df.shape
df.columns
df.columns.tolist()
df.dtypes
df.info()
df.describe()
df.describe(include='all')
df.describe().T
df.isnull().sum()
df.isna().sum().sort_values(ascending=False)
df.isnull().sum() / len(df) * 100
df.isna().mean().round(4) * 100
df.duplicated().sum()
df.nunique()
df['b'].unique()
df['b'].nunique()
df['b'].value_counts()
df['b'].value_counts(normalize=True)
df.b.value_counts(dropna=False).head(10)
df['a'].mean()
df.a.median()
df['a'].quantile([0.25, 0.5, 0.75])
df[['a', 'c']].corr()
df.select_dtypes(include='number').corr()
df[df['a'] > 1]
df[(df.a > 1) & (df.c == 1)]
df[df.b.isin(['x', 'y'])].shape
df.loc[df['a'] > 1, ['a', 'b']]
df.loc[0]
df.iloc[:2]
df.iloc[0, 1]
df.iloc[-1]['b']
df.query('a > 1 and c == 1')
df.query("b == 'x'").head()
df.groupby('b')['a'].mean()
df.groupby('b').a.mean().sort_values(ascending=False).head(10)
df.groupby(['b', 'c']).size()
df.groupby('b').agg({'a': 'mean', 'c': ['min', 'max']})
df.groupby('b').agg(total=('a', 'sum'), number=('c', 'count')).reset_index()
df.groupby('c')['a'].describe()
df.groupby('b')['a'].agg(['mean', 'std', 'count'])
df.groupby('b').sum(numeric_only=True)
df.agg(['min', 'max'])
df['a'].agg('mean')
df.pivot_table(index='b', columns='c', values='a', aggfunc='mean')
pd.pivot_table(df, index='b', values='a', aggfunc='sum')
pd.crosstab(df.b, df.c)
pd.crosstab(df['b'], df['c'], normalize='index')
df.sort_values('a', ascending=False).head(3)
df.sort_values(by=['c', 'a'])
df.nlargest(2, 'a')
df['a'].idxmax()
df.loc[df['a'].idxmax()]
df.a.max() - df.a.min()
df.drop(columns=['c']).head()
df.dropna().shape
df.fillna(0).head()
df.rename(columns={'a': 'x'}).head()
df.assign(z=df.a * 2).head()
df.set_index('b').head()
df.reset_index(drop=True)
df.merge(df, on='b', how='left').shape
pd.merge(df, df, on='b').head()
pd.concat([df, df]).shape
pd.concat([df, df], axis=1)
df['b'].str.upper()
df['b'].str.len().max()
df[df['b'].str.contains('x')]
df['b'].str.startswith('x').sum()
df.b.str.split('x').str[0]
df['a'].astype(int)
df.a.astype('float32').dtype
df['a'].rolling(2).mean()
df['a'].cumsum()
df['a'].diff().fillna(0)
df.a.pct_change()
df.a.shift(1)
df['a'].between(1, 3).sum()
df['b'].map({'x': 1, 'y': 2})
pd.cut(df['a'], bins=3).value_counts()
pd.to_datetime(days).dt.year
days.dt.month.value_counts()
days.dt.day_name()
days.min(), days.max()
df.memory_usage(deep=True).sum() / 1024 ** 2
df.to_dict('records')
df.to_numpy()
df.values
df.values[:2]
print(df.to_string())
print(df.head().to_markdown())
df.to_csv()
df.to_json(orient='records')
df.to_csv(index=False)
df.T
len(df)
len(df[df.a > 1]) / len(df)
df.empty
df.index
df.index.is_unique
df.columns[df.isna().any()].tolist()
[name for name in df.columns if df[name].dtype == 'object']
{name: df[name].nunique() for name in df.columns}
print(df.shape)
print('rows:', len(df), 'columns:', df.shape[1])
print(f"Mean of a: {df['a'].mean():.2f}")
print(f'{len(df):,} rows and {df.shape[1]} columns')
print('Mean: %.2f' % df.a.mean())
print('Mean: {:.2f}'.format(df.a.mean()))
print(df.groupby('b').a.mean().to_string())
print(df['b'].unique()[:10])
df.head(), df.tail()
display(df.head())
display(df.describe().round(2))
print(df.head()); print(df.dtypes)
if df.a.isna().any(): print('missing')
assert df.a.notna().all(), 'missing values'
assert len(df) == 3
import pandas as pd; df.head()
try: len(df)\nexcept (ValueError, KeyError): print('none')
import numpy as np; print(np.mean(df['a']))
s.mean()
s.max() if len(s) else s.sum()
s.sort_values()
s.describe()
s.index
s[s > 1]
s.iloc[0]
s.head(2).tolist()
s.value_counts().index[0]
arr.shape
arr.mean()
arr.mean(axis=0)
m.sum(axis=1)
m.T
m.reshape(9)
m[:, 0]
m[0]
arr[arr > 2]
arr.dtype, arr.ndim
arr.min(), arr.max()
m @ m
arr * 2 + 1
np.mean(arr)
np.std(arr, ddof=1)
np.percentile(arr, 95)
np.unique(df['b'])
np.unique(df.b, return_counts=True)
np.corrcoef(arr, arr)
np.where(arr > 2, 1, 0)
np.sqrt(arr)
np.log1p(df.a).head()
np.isnan(arr).sum()
np.argsort(arr)[::-1]
np.linalg.norm(arr)
np.linalg.inv(m + np.eye(3))
np.array([1, 2, 3]).sum()
np.arange(10)
np.allclose(arr, arr)
np.__version__
pd.__version__
print(pd.__version__, np.__version__)
nums
nums[:2]
len(nums)
sum(nums) / len(nums)
max(nums), min(nums)
sorted(nums)
sorted(nums, reverse=True)[:5]
sorted(rows, key=lambda row: row['n'])
sorted(d.items(), key=lambda item: str(item[1]))
max(rows, key=lambda row: row['n'])
[row['n'] for row in rows]
[row['n'] for row in rows if row['n'] > 1]
sum(row['n'] for row in rows)
any(row['n'] > 1 for row in rows)
{row['n']: row for row in rows}
rows[0]
rows[0]['n']
rows[0].keys()
d
d['k']
d.get('j', 0)
list(d.items())
list(d.keys())
'k' in d
names
sorted(names)
names & {'p'}
text
text.upper()
text.split()
len(text.split())
text[:100]
text.replace('some', 'any')
' '.join(sorted(names))
text.count('e')
text.startswith('some')
'%s and %s' % (text, text)
type(df)
type(rows).__name__
isinstance(df, pd.DataFrame)
list(zip(nums, nums))
list(enumerate(nums))
list(map(str, nums))
round(df.a.mean(), 2)
abs(-3) + 2 ** 10
1 + 1
"hello"
import math; math.sqrt(2) + math.pi
re.findall(r'\w+', text)
re.sub('e', 'a', text)
json.dumps(d, indent=2)
print(json.dumps(rows, indent=2))
os.getcwd()
os.listdir()
os.path.exists('data.csv')
sys.version
pf
pf.head()
pf.shape
pf.columns
pf.schema
pf.describe()
pf.filter(pl.col('a') > 1)
pf.select('a', 'b')
pf.select(pl.col('a').mean())
pf.select(pl.col('a').mean().alias('mean'), pl.len())
pf.group_by('b').agg(pl.col('a').sum())
pf.group_by('b').len().sort('len', descending=True)
pf.with_columns((pl.col('a') * 2).alias('z'))
pf.with_columns(z=pl.col('a') * 2).head(3)
pf.sort('a', descending=True).head()
pf.lazy().filter(pl.col('a') > 1).collect()
pf['a'].mean()
pf['a'].value_counts()
pf.null_count()
pf.to_dicts()
pf.glimpse()
pf.join(pf, on='b', how='left')
pf.select(pl.col('b').str.to_uppercase())
pf.write_csv()
ps.sum()
ps.to_list()
ps.is_null().sum()
------------------------------
import numpy as np\nimport pandas as pd\nimport matplotlib.pyplot as plt\nimport seaborn as sns
import os, sys, re, json, glob, pickle, warnings\nwarnings.filterwarnings('ignore')
%matplotlib inline
%config InlineBackend.figure_format = 'retina'
%load_ext autoreload\n%autoreload 2
%time df.groupby('b').sum(numeric_only=True)
%timeit np.sqrt(arr)
%%time\ntotal = df.a.sum()
%who
?df
import requests\nfrom pathlib import Path\nimport subprocess
from sklearn.model_selection import train_test_split
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=42)
model = LogisticRegression(max_iter=1000)\nmodel.fit(X_train, y_train)
model.score(X_test, y_test)
predictions = model.predict(X_test)\nprint(classification_report(y_test, predictions))
pd.set_option('display.max_columns', None)
df = pd.read_csv('data/titanic.csv')
df = pd.read_csv(path)
df = pd.read_csv('sales.csv', parse_dates=['date'], index_col='id')
df = pd.read_excel('book.xlsx', sheet_name='May')
frame = pl.read_parquet('data.parquet')
data = json.load(open('config.json'))
with open('notes.txt') as file:\n    lines = file.readlines()
text = Path('notes.txt').read_text()
files = glob.glob('data/*.csv')
paths = [os.path.join('data', one) for one in os.listdir('data')]
frames = [pd.read_csv(one) for one in sorted(Path('data').glob('*.csv'))]
df['z'] = df['a'] * 2
df['b'] = df['b'].str.strip().str.lower()
df.columns = [name.lower().replace(' ', '_') for name in df.columns]
df = df.rename(columns={'a': 'x'})
df.rename(columns={'a': 'x'}, inplace=True)
df = df.replace({'x': 'y'})
df = df.drop(columns='c').dropna()
df.drop_duplicates(inplace=True)
df.loc[df.a > 1, 'b'] = 'z'
df['date'] = pd.to_datetime(df['date'])
df = df.sample(frac=1, random_state=0)
df['b'].apply(lambda one: one.upper())
df.apply(lambda row: row.a + row.c, axis=1)
df.groupby('b').apply(len)
df.plot()
df['a'].plot(kind='hist', bins=20)
df.a.hist(bins=30)\nplt.show()
plt.figure(figsize=(8, 4))\nplt.plot(df.a, df.c, label='c')\nplt.legend()\nplt.title('a and c')\nplt.xlabel('a')\nplt.show()
fig, ax = plt.subplots(1, 2)\nax[0].bar(df.b, df.a)\nax[1].scatter(df.a, df.c)\nplt.tight_layout()
sns.heatmap(df.corr(numeric_only=True), annot=True)
sns.boxplot(data=df, x='b', y='a')
sns.set_theme(style='whitegrid')
for name in df.columns:\n    print(name, df[name].nunique())
for name, group in df.groupby('b'):\n    print(name, len(group))
for number, row in df.iterrows():\n    print(number, row['a'])
counts = {}\nfor row in rows:\n    counts[row['n']] = counts.get(row['n'], 0) + 1
last = nums.pop()
nums.append(4)
d.update(z=1)
d.pop('k', None)
rows.remove(rows[0])
names.add('z')
settings = {'path': 'x', 'url': 'https://example.org'}
print('see https://example.org/help')
urls = ['https://example.org/a', 'https://example.org/b']
labels = {'https://example.org': 1}\nlabels['https://example.org']
def clean(frame):\n    frame = frame.copy()\n    frame.columns = frame.columns.str.lower()\n    return frame\ndf = clean(df)
def area(radius: float) -> float:\n    'Return the area.'\n    return 3.14159 * radius ** 2\n\narea(2)
class Account:\n    def __init__(self, owner):\n        self.owner = owner\n    def save(self):\n        return self.owner\n\nAccount('x')
pattern = re.compile(r'\d+')\npattern.findall(text)
'{}: {}'.format('a', 1).replace('a', 'b')
from datetime import datetime\nnow = datetime.now()\nnow.strftime('%Y')
start = time.time()\nresult = model.fit(X, y)\nprint(time.time() - start)
rng = np.random.default_rng(0)\nsample = rng.normal(size=100)
np.random.seed(42)\nx = np.random.rand(10)
x = np.linspace(0, 1, 50)\ny = np.sin(x)
cleaned = [one.strip() for one in text.split(',') if one]
try:\n    value = int(text)\nexcept ValueError:\n    value = 0
from collections import Counter, defaultdict\nCounter(text.split()).most_common(10)
pipe = Pipeline([('scale', StandardScaler()), ('model', Ridge())])\npipe.fit(X, y)
grid = GridSearchCV(pipe, {'model__alpha': [0.1, 1]}, cv=5, n_jobs=-1)\ngrid.fit(X, y)\ngrid.best_params_
cross_val_score(model, X, y, cv=5).mean()
confusion_matrix(y_test, predictions)
model = Sequential([Dense(64, activation='relu')])\nmodel.compile(optimizer='adam', loss='mse')\nmodel.fit(X, y, epochs=5)
model.eval()\nwith torch.no_grad():\n    out = model(batch)
loss.backward()\noptimizer.step()\noptimizer.zero_grad()
device = 'cuda' if torch.cuda.is_available() else 'cpu'
loader = DataLoader(dataset, batch_size=32, shuffle=True)
con = sqlite3.connect(':memory:')\npd.read_sql('SELECT * FROM sales WHERE updated > 1', con)
con.execute('SELECT count(*) FROM drops').fetchall()
duckdb.sql('SELECT b, sum(a) FROM df GROUP BY b').df()
query = "select created, updated from sales where status = 'deleted'"\npd.read_sql_query(query, con)
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
home = os.environ.get('HOME')
os.path.join(os.getcwd(), 'data').replace('data', 'x')
sys.path.append('..')
sys.argv.remove('x')
print(os.name.replace('posix', 'unix'), platform.system())
importlib.reload(helpers)
await asyncio.sleep(0.1)
gc.collect()
del df
del df['c']
threads = [threading.Thread(target=work) for _ in range(2)]
logger = logging.getLogger(__name__)\nlogger.info('done')
dir(df)
help(df.head)
vars(model)
globals().keys()
'df' in globals()
inspect.signature(clean)
getattr(model, 'coef_')
model.get_params()
tree.plot_tree(model)
explainer = shap.TreeExplainer(model)
widgets.interact(draw, k=(1, 10))
from IPython.display import HTML, Image, Markdown\nMarkdown('**done**')
fig = px.scatter(df, x='a', y='c')\nfig.show()
alt.Chart(df).mark_bar().encode(x='a', y='b')
dataset.map(lambda one: {'n': len(one['text'])})
ds = xr.Dataset({'t': ('x', [1, 2])})\nds.t.mean()
frame = spark.sql('select 1')\nframe.show()
df.style.background_gradient()
df.explode('b').head()
df.stack().unstack()
result = df.pipe(clean)
total = sum(map(len, rows))
first, *rest = nums
matrix = [[1, 2], [3, 4]]\nmatrix[0][1] = 5
s.update(pd.Series([1.0]))
s.rename('total')
cell = rows[0]\ncell['n'] = 2
text = text.translate(str.maketrans('a', 'b'))
encoded = text.encode('utf-8').decode()
df.to_dict(orient='list')
json.loads('{"a": 1}')
buffer = io.StringIO()\ndf.to_csv(buffer)\nbuffer.getvalue()
df.b.str.extract(r'(\w)')
df.b.str.extractall(r'(\w)')
df.b.str.replace('x', 'y')
df.index.rename('key')
open_orders = df[df.b == 'open']
"""


def cells() -> tuple[list[str], list[str]]:
    """Return the cells that only read, and the others."""
    reading, _, others = CELLS.strip().partition("-" * 30 + "\n")
    return [one.replace("\\n", "\n") for one in reading.splitlines()], [
        one.replace("\\n", "\n") for one in others.splitlines()
    ]
