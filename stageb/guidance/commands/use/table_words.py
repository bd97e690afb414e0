"""Words by which columns and cells of a table are known: verdicts, names of columns of labels,
missions, groups, people and times, marks of missing values. To know one more, add it here."""

from __future__ import annotations

import re

# Words for verdicts, folded. Those that only say yes or no mean what their column's name makes of
# them.
PASSES = {
    "pass",
    "passed",
    "ok",
    "okay",
    "good",
    "go",
    "accept",
    "accepted",
    "approved",
    "conforming",
    "合格",
    "通过",
}
PASSES |= {"i.o."}
FAILS = {
    "fail",
    "failed",
    "ng",
    "nok",
    "not ok",
    "bad",
    "no go",
    "nogo",
    "reject",
    "rejected",
    "defect",
    "defective",
}
FAILS |= {"nonconforming", "n.i.o.", "不合格", "不通过"}
NO_YES = [("no", "yes"), ("n", "y"), ("false", "true"), ("0", "1"), ("0.0", "1.0")]
NO_YES += [("nein", "ja"), ("nee", "ja"), ("non", "oui"), ("no", "si"), ("no", "sí")]
NO_YES += [("否", "是"), ("无", "有")]
# columns of which yes means fail, and of the others those of which it means pass
FAULTS = re.compile(
    r"fail|fault|defect|reject|scrap|anomal|broken|non.?conform|fehler|mangel|defekt|ausschuss|"
    r"缺陷|不良|不合格|故障",
    re.I,
)
MERITS = re.compile(
    r"(?<![^\W_])(?:pass(?:ed|es)?|ok|okay|accepted|approved|conform(?:s|ing)?|compliant|bestanden|"
    r"freigegeben)(?![^\W_])|合格|通过",
    re.I,
)
LABELS = re.compile(
    r"label|verdict|result|outcome|checked|status|decision|judge?ment|class|target|结果|结论", re.I
)
# Columns of labels, or of what tells them.
TOPICS = re.compile(
    r"queue|categor|priorit|department|rout|team|topic|intent|severity|rating|type", re.I
)
REASONS = re.compile(r"reasons?|why|justification|rationale|原因|理由", re.I)
MISSIONS = re.compile(r"mission|inspection|programme", re.I)
GROUPS = re.compile(
    r"(.*[ _.-])?(id|group|case|ticket|serial|no|nr|number|key)|group_?id|编号", re.I
)
ROWS = re.compile(r"#|no\.?|nr\.?|lfd\.?( ?nr\.?)?|row|index|pos|unnamed: \d+|序号", re.I)
JUDGED = (
    "(annotat|label|labell|rat|inspect|review|check|judg|assess|approv|verifi|examin|complet|creat|"
    "updat|submitt)ed"
)
PEOPLE = re.compile(
    "(annotator|labell?er|rater|inspector|reviewer|judge|grader|evaluator|assessor|prüfer)s?"
    rf"([ _.-]?(id|name|e?mail))?|worker[ _.-]?id|{JUDGED}[ _.-]?by|评审人|检验员|标注员|标注人",
    re.I,
)
TIMES = re.compile(rf"lead[ _.-]?time|{JUDGED}[ _.-]?(at|on|date|time)|time[ _.-]?stamp", re.I)
# marks of a missing value in a column of numbers
MISSING = re.compile(r"n\.?/?a\.?|#n/a|nan|null|k\.? ?a\.?|[?/.-]|--+", re.I)
