"""The schedule of a run: channel, images, random streams and learning rate of each step, as
functions of the step alone."""

from __future__ import annotations

from dataclasses import dataclass

from stageb import seeds
from stageb.training.schedules import is_due, share_done, warmed_cosine
from stageb.two_channel.config import Channel, TwoChannelConfig


@dataclass(frozen=True)
class DetectorSchedule:
    """The schedule of a run, the same on every rank. Steps count from 0."""

    config: TwoChannelConfig
    samples: int  # number of training samples

    @property
    def steps(self) -> int:
        """Number of steps of the run."""
        return self.config.schedule.steps

    def channel(self, step: int) -> Channel:
        """The channel of a step."""
        pattern = self.config.schedule.pattern
        return pattern[step % len(pattern)]

    def answers(self, step: int) -> bool:
        """Whether the model answers the images of a step."""
        return self.channel(step) != "A"

    def size(self, step: int) -> int:
        """Images of a step, over all ranks."""
        return self._sizes[self.channel(step)]

    def chosen(self, step: int) -> list[int]:
        """The indices of a step's images in the training set. Every epoch goes through all images
        once, in an order drawn from its own stream."""
        begins, found = self._begins(step), list[int]()
        for place in range(begins, begins + self.size(step)):
            epoch, within = divmod(place, self.samples)
            if not found or not within:
                order = seeds.shuffled(
                    range(self.samples),
                    seeds.stream(self.config.seed, "two_channel", "epoch", epoch),
                )
            found.append(order[within])
        return found

    def epoch(self, step: int) -> float:
        """Epochs before a step."""
        return self._begins(step) / self.samples

    def learning_rate(self, step: int) -> float:
        """Learning rate at a step: linear warm-up from 0, then half a cosine."""
        config = self.config.schedule
        return warmed_cosine(
            config.learning_rate, config.learning_rate_end, step, self.steps, config.warmup_steps
        )

    def key(self, step: int, sample: str) -> int:
        """The random stream of the answer to ``sample`` in a step."""
        return seeds.stream(self.config.seed, "two_channel", "rollout", step, sample)

    def done(self, step: int) -> float:
        """The fraction of the run before a step, from 0 at the first to 1 at the last."""
        return share_done(step, self.steps)

    def view_key(self, step: int, number: int) -> int:
        """The random stream of the view in which the image ``number`` of a step is shown."""
        return seeds.stream(self.config.seed, "two_channel", "view", step, number)

    def commits(self, step: int) -> bool:
        """Whether a commit follows a step. It does after every evaluation, whose weights may be the
        best."""
        return is_due(step, self.config.schedule.commit_every, self.steps) or self.evaluates(step)

    def evaluates(self, step: int) -> bool:
        """Whether an evaluation follows a step."""
        return is_due(step, self.config.evaluation.every, self.steps)

    @property
    def _sizes(self) -> dict[Channel, int]:
        config = self.config
        return {"A": config.channel_a.samples_per_step, "B": config.channel_b.rollouts_per_step}

    def _begins(self, step: int) -> int:
        """Number of images of all steps before a step."""
        pattern = [self._sizes[channel] for channel in self.config.schedule.pattern]
        rounds, rest = divmod(step, len(pattern))
        return rounds * sum(pattern) + sum(pattern[:rest])
