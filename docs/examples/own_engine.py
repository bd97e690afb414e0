"""An engine: a model behind an interface of its own, here a service that takes and gives JSON.

``model.engine: own_engine:build`` with ``model.base_url`` asks it. (One that speaks as OpenAI's API
does needs no code: ``model.engine: openai``.)
"""

import json
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from stageb.engines import Completion, Decode, Prompt, Request
from stageb.engines.config import ModelConfig
from stageb.errors import ConfigError, EngineError
from stageb.job import heartbeat


class Service:
    """Answers by asking the service at ``model.base_url``, several requests at a time."""

    def __init__(self, model: ModelConfig) -> None:
        self.model = model

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """The length of each prompt, for limits such as ``sampler.max_prompt_tokens``. An estimate
        errs on the long side."""
        return [len((prompt.system + prompt.user).encode()) // 3 + 16 for prompt in prompts]

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        """A tuple for each request, in order, with a completion for each of its keys, in order.

        A completion may depend on the prompt, the decode setting and the key, and on nothing else,
        so that equal runs stay equal whatever the number of ranks. At temperature 0 the key makes
        no difference.
        """
        with ThreadPoolExecutor(self.model.concurrency) as pool:
            asked = [
                [pool.submit(self._ask, r.prompt, r.decode, key) for key in r.keys]
                for r in requests
            ]
            answers = []
            for group in asked:
                answers.append(tuple(each.result() for each in group))
                heartbeat.tick()  # a sign of life: many slow answers are no hang
            return answers

    def _ask(self, prompt: Prompt, decode: Decode, key: int) -> Completion:
        question = {
            "system": prompt.system,
            "user": prompt.user,
            "seed": key if decode.temperature else 0,
        }
        limits = {
            "temperature": decode.temperature,
            "max_tokens": decode.max_new_tokens,
            "stop": decode.stop,
        }
        body = json.dumps(question | limits).encode()
        # errors travel: what cannot be answered ends the run, which goes on from its last commit
        try:
            with urllib.request.urlopen(
                str(self.model.base_url), body, timeout=self.model.timeout_s
            ) as response:
                answer = json.load(response)
            return Completion(
                answer["text"], answer["tokens"], "length" if answer["cut"] else "stop"
            )
        except (OSError, ValueError, KeyError) as error:
            raise EngineError(f"{self.model.base_url}: no answer: {error!r}") from error


def build(model: ModelConfig, device: str) -> Service:
    """What ``model.engine`` names: called once on every rank, with the section ``model`` of the
    config and a device."""
    if model.base_url is None:
        raise ConfigError("model.base_url", None, "say where the service is")
    return Service(model)
