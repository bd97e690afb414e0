"""Hosts of a user's own: what ``host.make`` names is called, and tried on two examples before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.func import vmap

from stageb.errors import ConfigError, shown
from stageb.functions import function_named
from stageb.growth.blueprints import Spec
from stageb.growth.kinds import Form, HostKind

MEMBERS, EXAMPLES = 3, 2  # of the trial


def make_own(name: str, form: Form, width: int) -> HostKind:
    """What the function ``name`` builds for examples of this ``form``. Raises ``ConfigError`` where that is no host, or its
    functions do not fit together."""
    found = function_named("host.make", name)(form)
    if not isinstance(found, HostKind):
        raise ConfigError("host.make", name, f"it returned {shown(repr(found), 60)}; return a stageb.growth.kinds.HostKind")
    _try(found, form, width, name)
    return found


def _try(kind: HostKind, form: Form, width: int, name: str) -> None:
    """Run a host through all its functions, as blocks do: several networks at once."""

    def refuse(part: str, why: str) -> ConfigError:
        return ConfigError("host.make", name, f"{part}: {why}")

    def run(part: str, function: Callable[..., Tensor], *given: object, expected: tuple[int, ...]) -> Tensor:
        try:
            result = vmap(function)(*given)
        except Exception as error:  # a user's function may raise anything
            raise refuse(part, shown(f"{type(error).__name__}: {error}", 300)) from error
        shape = tuple(result.shape[1:])
        if shape != expected:
            raise refuse(part, f"it returns {shape} for {EXAMPLES} examples, not {expected}")
        return result

    specs = kind.specs(form, width)
    if not specs or not all(isinstance(spec, Spec) for spec in specs) or len({spec.name for spec in specs}) < len(specs):
        raise refuse("specs", "return a list of Spec, each with a name of its own")
    params: Mapping[str, Tensor] = {spec.name: torch.full((MEMBERS, *spec.shape), 0.1) for spec in specs}
    kinds = torch.int64 if form.vocabulary else torch.float32
    h = torch.zeros((MEMBERS, EXAMPLES, *form.shape), dtype=kinds)
    for slot in range(3):
        part = "body" if slot else "stem"

        def step(params: Mapping[str, Tensor], h: Tensor, slot: int = slot) -> Tensor:
            return kind.body(form, slot, params, h) if slot else kind.stem(form, params, h)

        h = run(part, step, params, h, expected=(EXAMPLES, width, *kind.places(form, slot)))
    places = form.shape if form.vocabulary else ()
    run("head", lambda params, h: kind.head(form, params, h), params, h, expected=(EXAMPLES, *places, form.classes))
    counts = kind.products(form, width)
    if not (isinstance(counts, tuple) and len(counts) == 2 and all(isinstance(each, int) and each >= 0 for each in counts)):
        raise refuse("products", "return two numbers: multiplications of the stem, and of all that comes later")
