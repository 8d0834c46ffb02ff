"""The lessons in Pyodide, the Python of JupyterLite, which runs under Node.js here."""
