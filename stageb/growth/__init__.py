"""PPO that grows networks slot by slot: ``loop.py`` is the table of contents."""

from stageb.cli.commands import Loop, RunCommand

LOOP = Loop(
    summary="Learn when and how networks should grow: PPO over many trainings at once.",
    config="stageb.growth.config:GrowthConfig",
    fit="stageb.growth.loop:fit",
    check="stageb.growth.loop:check",
    commands={
        "evaluate": RunCommand(
            "Compare a run's controller with others at equal FLOPs.", "stageb.growth.evaluate:main"
        ),
        "play": RunCommand("Watch an episode of a growth run.", "stageb.growth.play:main"),
    },
    needs=("sklearn",),
)
