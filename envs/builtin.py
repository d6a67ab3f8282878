"""The environments ludus ships: id -> "module:attribute", imported when first asked for."""

BUILTIN: dict[str, str] = {
    "ludus/arithmetic-v0": "ludus.envs.arithmetic:Arithmetic",
    "ludus/calls-v0": "ludus.envs.calls:Calls",
    "ludus/coding-tools-v0": "ludus.envs.coding:CodingTools",
    "ludus/coding-v0": "ludus.envs.coding:Coding",
    "ludus/files-v0": "ludus.envs.files:Files",
    "ludus/functions-v0": "ludus.envs.functions:Functions",
    "ludus/ledger-v0": "ludus.envs.ledger:LedgerRelay",
    "ludus/maths-v0": "ludus.envs.maths:Maths",
    "ludus/repair-v0": "ludus.envs.repair:CodeRepair",
    "ludus/research-v0": "ludus.envs.research:Research",
    "ludus/search-v0": "ludus.envs.search:Search",
    "ludus/sql-v0": "ludus.envs.sql:Sql",
    "ludus/tally-v0": "ludus.envs.tally:Tally",
    "ludus/textworld-v0": "ludus.envs.textworld:TextWorld",
    "ludus/twenty-questions-v0": "ludus.envs.twenty_questions:TwentyQuestions",
    "ludus/verilog-v0": "ludus.envs.verilog:Verilog",
    "ludus/wikigame-v0": "ludus.envs.wikigame:WikiGame",
}
