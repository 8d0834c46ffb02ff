"""The magics `%%agent`, `%agent` and `%mcp`: their options, subcommands, completion and printed output."""
