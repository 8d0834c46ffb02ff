"""An MCP server with one tool, SQL on a small shop in memory: `python servers/shop.py`. The notebook on plans uses it."""

import json
import sqlite3

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

SHOP = """
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE orders (id INTEGER PRIMARY KEY, product_id INTEGER REFERENCES products (id), amount REAL);
INSERT INTO products (name) VALUES ('Lamp'), ('Desk'), ('Chair');
INSERT INTO orders (product_id, amount) VALUES (1, 45), (2, 230), (1, 90), (3, 75), (2, 230), (3, 150);
"""

server = MCPServer("shop")
database = sqlite3.connect(":memory:", check_same_thread=False)
database.executescript(SHOP)
database.execute("PRAGMA query_only = ON")


@server.tool()
def query(sql: str) -> str:
    """Run one SELECT on the tables products (id, name) and orders (id, product_id, amount).

    Example: How many orders are there? -> {"sql": "SELECT COUNT(*) FROM orders"}
    """
    try:
        found = database.execute(sql)
        names = [column[0] for column in found.description or ()]
        return json.dumps([dict(zip(names, row, strict=True)) for row in found.fetchmany(100)])
    except sqlite3.Error as error:
        raise ToolError(str(error)) from None


if __name__ == "__main__":
    server.run()
