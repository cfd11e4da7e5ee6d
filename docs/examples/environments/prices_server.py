"""An MCP server with a tool for each thing of a shop, which returns its price of the moment."""

from random import randint

from mcp.server.fastmcp import FastMCP

server = FastMCP("prices")


def offer(thing: str) -> None:
    """Add the tool of a thing."""

    @server.tool(name=thing)
    def price() -> str:
        """The price, which is another at every call."""
        return f"{thing}: ${randint(10, 99)}"


for thing in ("lamp", "vase", "chair", "mug", "clock", "book"):
    offer(thing)

if __name__ == "__main__":
    server.run()
