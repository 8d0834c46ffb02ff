"""Tells looks at the states of packages about imports: a module that is loaded first has its state from then on.

A program often imports a package that is not loaded yet, so that no look before the program could read its states.
While a look listens, a finder at the front of `sys.meta_path` runs code after the first import of a module.
"""

import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast
from weakref import WeakSet

from agentmagic.log import logger
from agentmagic.undo.own import is_own
from agentmagic.undo.package_states import TABLE, PackageLook

_lock = threading.Lock()
_looks: WeakSet[PackageLook] = WeakSet()
"""The looks that listen."""
_WATCHED = frozenset(row.module for row in TABLE)


class _Thread(threading.local):
    """What a thread does now: it runs the code of a package that is imported, or it asks the other finders."""

    is_importing = False
    is_asking = False


_thread = _Thread()


def listen(look: PackageLook) -> None:
    """Tell `look` about imports, until `ignore` is called for it."""
    with _lock:
        _looks.add(look)
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)


def ignore(look: PackageLook) -> None:
    """Tell `look` about imports no more."""
    with _lock:
        _looks.discard(look)
        if not _looks and _FINDER in sys.meta_path:
            sys.meta_path.remove(_FINDER)


class _Finder(MetaPathFinder):
    """Finds what the other finders find, and has the looks told when the module has been loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that another finder has for a module, with a loader that tells the looks, or None."""
        if target is not None or _thread.is_asking or (_thread.is_importing and fullname not in _WATCHED):
            return None  # not the first import, or a part of another one
        _thread.is_asking = True
        try:
            finders = [finder for finder in sys.meta_path if finder is not self]
            found = (cast("Any", finder).find_spec(fullname, path, target) for finder in finders)
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            _thread.is_asking = False
        if spec is None or not spec.has_location or not hasattr(spec.loader, "exec_module"):
            return None  # the import goes on as without this finder
        spec.loader = _TellingLoader(spec)
        return spec


_FINDER = _Finder()


class _TellingLoader(Loader):
    """Loads a module with the loader that another finder has found, and then tells the looks."""

    def __init__(self, spec: ModuleSpec) -> None:
        self._spec, self._loader = spec, cast("Any", spec.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the module that the other loader makes."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the code of the module, and tell the looks. The module keeps the other loader as its own."""
        self._spec.loader = module.__loader__ = self._loader
        with _told(module.__name__):
            self._loader.exec_module(module)


@contextmanager
def _told(module: str) -> Generator[None]:
    """Tell the looks when the import of a module has ended.

    The changes of states that packages set when they are imported belong to the import, if `module` is of a package.
    """
    is_outer = not _thread.is_importing and not is_own(module)
    looks = [(look, look.unchanged_names() if is_outer else ()) for look in list(_looks)]
    _thread.is_importing |= is_outer
    try:
        yield
    finally:
        _thread.is_importing &= not is_outer
        for look, names in looks:
            try:
                look.accept_import(module, names)
            except Exception:  # noqa: BLE001  (the import must not fail because of the look)
                logger.debug("the import of %s could not be followed", module, exc_info=True)
