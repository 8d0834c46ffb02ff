"""An MCP server with one tool, SQL on a small shop in memory: `python servers/shop.py`. The notebook on plans uses it."""

import json
import sqlite3

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

SHOP = """
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, price REAL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, product_id INTEGER REFERENCES products (id), day TEXT, units INTEGER);
INSERT INTO products (name, price) VALUES ('Lamp', 45), ('Desk', 230), ('Chair', 75);
INSERT INTO orders (product_id, day, units) VALUES
    (1, '2026-01-07', 2), (2, '2026-01-12', 1), (3, '2026-01-20', 4), (1, '2026-01-29', 1), (2, '2026-02-03', 2),
    (3, '2026-02-11', 2), (1, '2026-02-16', 5), (3, '2026-02-24', 6), (2, '2026-03-02', 3), (1, '2026-03-09', 2),
    (2, '2026-03-17', 1), (3, '2026-03-30', 3), (2, '2026-04-08', 4), (3, '2026-04-14', 2), (1, '2026-04-27', 3);
"""

server = MCPServer("shop")
database = sqlite3.connect(":memory:", check_same_thread=False)
database.executescript(SHOP)
database.execute("PRAGMA query_only = ON")


@server.tool()
def query(sql: str) -> str:
    """Run one SELECT on the tables products (id, name, price) and orders (id, product_id, day, units).

    A day is a text such as 2026-03-31.

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
