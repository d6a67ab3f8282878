"""Evaluations of inspect_ai, for tests: one question, choices, two turns, and what is refused."""

from inspect_ai import Task, task  # pyright: ignore
from inspect_ai.dataset import Sample  # pyright: ignore
from inspect_ai.model import ChatMessageUser  # pyright: ignore
from inspect_ai.scorer import choice, match, model_graded_qa  # pyright: ignore
from inspect_ai.solver import generate, multiple_choice, solver, system_message  # pyright: ignore


@task
def sums():
    samples = [Sample(input=f"{n}+{n}?", target=str(2 * n)) for n in range(1, 41)]
    return Task(dataset=samples, solver=[system_message("Be brief."), generate()], scorer=match())


@task
def choices():
    samples = [
        Sample(input=f"{n}: pick {letter}", choices=["x", "y", "z"], target=letter)
        for n in range(10)
        for letter in "ABC"
    ]
    return Task(dataset=samples, solver=multiple_choice(), scorer=choice())


@solver
def asks_again():
    async def solve(state, ask):
        state = await ask(state)
        state.messages.append(ChatMessageUser(content="Are you sure?"))
        return await ask(state)

    return solve


@task
def twice():
    return Task(dataset=[Sample(input="7?", target="7")], solver=asks_again(), scorer=match())


@task
def graded():
    samples = [Sample(input="Why?", target="because")]
    return Task(dataset=samples, solver=generate(), scorer=model_graded_qa())


@task
def boxed():
    samples = [Sample(input="Run it.", target="ok")]
    return Task(dataset=samples, solver=generate(), scorer=match(), sandbox="docker")
