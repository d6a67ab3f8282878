"""The environments ludus ships: id -> "module:attribute", imported when first asked for."""

BUILTIN: dict[str, str] = {
    "ludus/arithmetic-v0": "ludus.envs.families.arithmetic:Arithmetic",
    "ludus/calls-v0": "ludus.envs.families.calls:Calls",
    "ludus/coding-tools-v0": "ludus.envs.families.coding:CodingTools",
    "ludus/coding-v0": "ludus.envs.families.coding:Coding",
    "ludus/files-v0": "ludus.envs.families.files:Files",
    "ludus/functions-v0": "ludus.envs.families.functions:Functions",
    "ludus/image-prompt-v0": "ludus.envs.families.image_prompt:ImagePrompt",
    "ludus/ledger-v0": "ludus.envs.families.ledger:LedgerRelay",
    "ludus/maths-v0": "ludus.envs.families.maths:Maths",
    "ludus/number-quiz-v0": "ludus.envs.families.number_quiz:NumberQuiz",
    "ludus/repair-v0": "ludus.envs.families.repair:CodeRepair",
    "ludus/research-v0": "ludus.envs.families.research:Research",
    "ludus/search-v0": "ludus.envs.families.search:Search",
    "ludus/shapes-v0": "ludus.envs.families.shapes:ShapesQuiz",
    "ludus/sql-v0": "ludus.envs.families.sql:Sql",
    "ludus/tally-v0": "ludus.envs.families.tally:Tally",
    "ludus/textworld-v0": "ludus.envs.families.textworld:TextWorld",
    "ludus/twenty-questions-v0": "ludus.envs.families.twenty_questions:TwentyQuestions",
    "ludus/verilog-v0": "ludus.envs.families.verilog:Verilog",
    "ludus/wikigame-v0": "ludus.envs.families.wikigame:WikiGame",
}
