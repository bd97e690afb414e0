"""Engines that hand prompts to another process: vLLM, servers that speak OpenAI's chat completions."""
