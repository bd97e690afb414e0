"""The engine that hands prompts to a server which speaks OpenAI's chat completions."""
