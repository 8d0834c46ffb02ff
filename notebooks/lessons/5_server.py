"""An MCP server with two tools, for lesson 5: `python 5_server.py` waits for requests on its standard input."""  # noqa: INP001  (a program beside its notebook)

from mcp.server import MCPServer

server = MCPServer("library")
SHELVES = {"Dune": "A3", "Emma": "B1", "Ulysses": "C7"}


@server.tool()
def find_book(title: str) -> str:
    """Look up on which shelf of the library a book stands.

    Example: Where can I find Ulysses? -> {"title": "Ulysses"}
    """
    return f"{title} stands on shelf {SHELVES[title]}." if title in SHELVES else f"There is no {title} here."


@server.tool()
def list_books() -> list[str]:
    """List the titles of all books of the library.

    Example: What do you have to read? -> {}
    """
    return list(SHELVES)


if __name__ == "__main__":
    server.run()
