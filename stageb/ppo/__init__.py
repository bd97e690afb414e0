"""PPO: one agent that learns in any environment, its gradients reduced over ranks. ``loop.py`` is
the table of contents."""

from stageb.cli.commands import Loop, RunCommand

LOOP = Loop(
    summary="Learn to play Snake, or in any environment, by PPO, its gradients reduced over ranks.",
    config="stageb.ppo.config:PpoLoopConfig",
    fit="stageb.ppo.loop:fit",
    check="stageb.ppo.check:main",
    commands={
        "evaluate": RunCommand(
            "Play games that a run's agent did not learn from.", "stageb.ppo.evaluate:main"
        ),
        "play": RunCommand("Watch a game of a run's agent: ppo.", "stageb.ppo.play:main"),
        "export": RunCommand("Write the agent of a run as ONNX: ppo.", "stageb.ppo.export:main"),
    },
    needs=("PIL", "gymnasium"),
)
