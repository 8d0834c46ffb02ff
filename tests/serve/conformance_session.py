"""A session with the tools that the MCP project's conformance suite calls, as a user would write them."""

import asyncio
import base64

from agentmagic import Agent, Media, Resource, Session, Text, ToolContext, ToolError, tool
from agentmagic.messages import ToolDef
from agentmagic.serve.desk import Page
from agentmagic.tools.base import Tool, result

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
)
IMAGE = Media("image/png", PIXEL)
SOUND = Media(
    "audio/wav", b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00"
)
SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

HEADER = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}


@tool
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@tool
def test_image_content():
    """Return an image."""
    return IMAGE


@tool
def test_audio_content():
    """Return a sound."""
    return SOUND


@tool
def test_embedded_resource():
    """Return a resource."""
    return Resource("test://embedded-resource", "", "text/plain", "This is an embedded resource content.")


@tool
def test_multiple_content_types():
    """Return a text, an image and a resource."""
    mixed = Resource("test://mixed-content-resource", "", "application/json", '{"test":"data","value":123}')
    return [Text("Multiple content types test:"), IMAGE, mixed]


@tool
def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


@tool
async def test_tool_with_progress(context: ToolContext) -> str:
    """Report progress."""
    for done in (0, 50, 100):
        context.progress(done, 100)
        await asyncio.sleep(0.05)  # as the suite asks
    return "Done."


@tool
async def test_elicitation(message: str, context: ToolContext) -> str:
    """Ask the client's user."""
    return f"User response: {await context.ask(message)}"


def asking(name, *questions):
    """Return a tool of this name that asks these questions, one after the other."""

    @tool(name=f"test_input_required_result_{name}")
    async def ask(context: ToolContext) -> str:
        """Ask the client's user."""
        return " ".join([await context.ask(question) for question in questions])

    return ask


async def answer(call, context):
    return result(call, "Done.")


NAME = "What is your name?"
TOOLS = [
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_multiple_content_types,
    test_error_handling,
    test_tool_with_progress,
    test_elicitation,
    *(asking(name, NAME) for name in ("elicitation", "request_state", "tampered_state")),
    asking("multi_round", NAME, "What is your favorite color?"),
    Tool(ToolDef("test_header", "A tool with a parameter that is a header too", HEADER), answer),
    Tool(ToolDef("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", SCHEMA_2020), answer),
]


async def static_text() -> str:
    return "This is the content of the static text resource."


STATIC = Page("test://static-text", "Static text", "A text.", "text/plain", static_text)


def serve_tools():
    """Serve the session. Its own tools are a session's; the resource of the suite stands beside the notebook's."""
    session = Session(Agent(tools=TOOLS, permission="allow"))
    serving = session.serve(tools=True)
    serving._desk.pages = (*serving._desk.pages, STATIC)
    return session, serving
