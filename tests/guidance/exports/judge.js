// Decision tables and JSON Logic, judged by libraries for Node: reads {form, document, rows} as JSON, writes the rulings.
const { readFileSync } = require("fs");
const { form, document, rows } = JSON.parse(readFileSync(0, "utf8"));

function judgeByLogic() {
  const { apply } = require("json-logic-js");
  const logic = JSON.parse(document).missions.m.logic;
  return rows.map((row) => apply(logic, row));
}

// The table by dmn-moddle, its expressions by feelin; the hit policy FIRST is the loop.
async function judgeByTable() {
  const { DmnModdle } = await import("dmn-moddle");
  const { evaluate, unaryTest } = await import("@bpmn-io/feelin");
  const { rootElement } = await new DmnModdle().fromXML(document);
  const table = rootElement.drgElement.find((each) => each.$type === "dmn:Decision").decisionLogic;
  if (table.hitPolicy !== "FIRST") throw new Error(`hit policy ${table.hitPolicy}`);
  const plain = (found) => (found !== null && typeof found === "object" && "value" in found ? found.value : found);
  const known = new Map(); // a cell asks for the value of its column alone
  const fits = (text, value) => {
    const key = JSON.stringify([text, value]);
    if (!known.has(key)) known.set(key, text === "-" || plain(unaryTest(text, { "?": value })) === true);
    return known.get(key);
  };
  return rows.map((row) => {
    const inputs = table.input.map((each) => plain(evaluate(each.inputExpression.text, row)));
    const hit = table.rule.find((rule) => rule.inputEntry.every(({ text }, at) => fits(text, inputs[at])));
    return hit.outputEntry.map(({ text }) => plain(evaluate(text, row)));
  });
}

Promise.resolve(form === "logic" ? judgeByLogic() : judgeByTable()).then((found) => process.stdout.write(JSON.stringify(found)));
