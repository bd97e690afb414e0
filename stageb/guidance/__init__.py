"""The training-free loop, which learns written guidance: ``loop.py`` is the table of contents."""

from dataclasses import replace

from stageb.cli.commands import Loop, RunCommand, Tool


def _judging(name: str, summary: str) -> Tool:
    """A command that judges tickets by guidance; the keys that it is not given, it takes from the
    guidance's run."""
    use = "stageb.guidance.commands.use"
    return Tool(
        summary,
        f"{use}.{name}:main",
        f"{use}.config:{name.title()}Config",
        True,
        f"{use}.source:inherit_keys",
    )


LOOP = Loop(
    summary="Learn written guidance for the missions of your tickets; no weight changes.",
    config="stageb.guidance.config:LoopConfig",
    fit="stageb.guidance.start:fit",
    check="stageb.guidance.commands.use.validate:main",
    score="stageb.guidance.commands.fit.accuracies:find_score",
    commands={
        "report": RunCommand(
            "Write what a run did and learnt on one page: HTML for a browser.",
            "stageb.guidance.commands.report.write:main",
        ),
        "stop": RunCommand(
            "End a run's learning at its next step, and keep what it has learnt.",
            "stageb.guidance.start:stop",
        ),
    },
    tools={
        "predict": _judging("predict", "Judge new tickets by the rules that a run has learnt."),
        "evaluate": _judging("evaluate", "Say how good guidance is on labelled tickets."),
        "automate": replace(
            _judging(
                "automate",
                "Find which tickets need no person, under a proven bound on the errors among them.",
            ),
            operand="guidance",
        ),
        "serve": Tool(
            summary="Judge tickets by rules as code, for programs that ask over HTTP.",
            run="stageb.guidance.commands.serve.main:main",
            config="stageb.guidance.commands.use.config:ServeConfig",
            beneath="stageb.guidance.commands.use.source:inherit_keys",
            operand="guidance",
            needs=("starlette", "uvicorn"),
            extra="serve",
        ),
        "summarize": Tool(
            summary="Have a model that can see write what the images of tickets show.",
            run="stageb.guidance.commands.use.summarize:main",
            config="stageb.guidance.commands.use.config:SummarizeConfig",
            fresh=True,
        ),
        "new": Tool(
            summary="Write a config for a table of your tickets: which columns say what, and "
            "which words mean pass.",
            run="stageb.guidance.commands.use.new:main",
        ),
        "tickets": Tool(
            summary="Have people correct labels that a run doubts: list them, and write a "
            "ticket file with their words.",
            run="stageb.guidance.commands.use.relabel:main",
        ),
        "audit": Tool(
            summary="Watch whether what automate promised still holds, by a sample that people "
            "look at.",
            run="stageb.guidance.commands.audit.main:main",
        ),
        "guidance": Tool(
            summary="Show learnt rules; compare, export and promote them, roll them back.",
            run="stageb.guidance.commands.govern.main:main",
        ),
    },
)
