"""The Jupyter extension: magics, cells, chat panel. No other package of agentmagic depends on IPython."""

import sys

OLDEST_IPYTHON = "8.30"
"""The oldest supported IPython, as in `pyproject.toml`. A kernel started before an upgrade still runs the older one."""


def check_ipython() -> None:
    """If this kernel's IPython is too old, raise IPython's UsageError, which IPython shows in one line."""
    import IPython
    from IPython.core.error import UsageError

    if IPython.version_info[:2] >= tuple(map(int, OLDEST_IPYTHON.split("."))):
        return
    prefix = f"agentmagic needs IPython {OLDEST_IPYTHON} or newer, and "
    if "google.colab" in sys.modules:
        message = (
            f"{prefix}the runtime of Colab is made for {IPython.__version__} and would not start with another one. "
            "Connect Colab to a Jupyter of your own (Connect to a local runtime), or open the notebook in JupyterLab."
        )
        raise UsageError(message)
    command = f"pip install --upgrade 'ipython>={OLDEST_IPYTHON}' ipykernel"
    message = f"{prefix}this kernel runs {IPython.__version__}. Run this, and restart the kernel: {command}"
    raise UsageError(message)
