"""Keys of before, which people may still have in their files, each with what takes its place."""

from stageb.engines.config import PLACED

FORMER_PRICES = {
    "gate.fp_weight": "write price.missed_failure",
    "gate.fn_weight": "write price.false_alarm",
}
FORMER_MODEL = {"model.device_map": PLACED, "reflection.model.device_map": PLACED}
_LEAVE_OUT = "write split.leave_out, a list of the keys, in a config of its own if it is long"
FORMER_KEYS = {**FORMER_PRICES, **FORMER_MODEL} | {
    "stage_a_paths": "write tickets, which names ticket files",
    "max_token_length": "write sampler.max_prompt_tokens",
    "domain_map": "leave it out: missions have no domains",
    "default_domain": "leave it out: missions have no domains",
    "ticket_filter.exclude_ticket_keys_path": _LEAVE_OUT,
    "ticket_filter.exclude_ticket_keys": _LEAVE_OUT,
    **dict.fromkeys(
        (f"rule_search.{use}_sampler" for use in ("train", "eval", "mining")),
        "write sampler: one for all splits, but for sampler.eval_temperature",
    ),
    "rule_search.reflect_size": "write reflection.batch_size",
    "rule_search.num_candidate_rules": "write reflection.num_proposals",
    "rule_search.train_pool_size": "write runner.tickets_per_epoch",
    "rule_search.eval_pool_size": "write gate.pool_size",
    "rule_search.gate": "write gate.alpha, which bounds the chance of accepting an edit that "
    "does not help; for limits beside it gate.max_false_passes and gate.max_changed_verdicts",
    "rule_search.early_stop": "write early_stop.patience",
    "stage_b_distillation.enabled": "write distill.size, 0 for none",
    "stage_b_distillation.log_chatml_path": "leave it out: distill_chatml.jsonl lies in the "
    "mission's folder",
    "stage_b_distillation.distill_size": "write distill.size",
    "stage_b_distillation.distill_seed": "write seed",
    "stage_b_distillation.distill_temperature": "write distill.temperature",
    "runner.logging_steps": "write runner.log_every_s, in seconds",
    "guidance.reset_on_rerun": "leave it out, and start anew with --fresh",
}
