"""The magics and the rest of the extension: the only package that knows IPython."""
