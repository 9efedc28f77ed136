import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.hardware import identical_devices
from gearshift.measuring.recorded.language import language_profile_from_records
from gearshift.measuring.recorded.vllm_bench import engine_from_results
from gearshift.planner.language.layouts import layouts
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.store import read_language_profile
from gearshift.reporting.language.words import sharing_in_words
from tests.unit.cli.little import run


def write_rows(folder: Path, model: str, rows: list[dict[str, Any]]) -> None:
    (folder / f"{model}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def plain_rows(right: list[float]) -> list[dict[str, Any]]:
    return [
        {
            "id": i,
            "score": score,
            "logprobs": [-0.1 if score else -1.0, -0.5],
            "top_logprobs": [{"a": -0.1, "b": -3.0}, {"c": -0.5, "d": -0.9}],
            "prompt_tokens": 20 + i,
        }
        for i, score in enumerate(right)
    ]


def write_engine(folder: Path, model: str, *, tensor_parallel: int = 1, name: str = "") -> None:
    curve = StepCurve(tokens=(1, 64), step_s=(0.01, 0.05))
    engine = EngineProfile(
        model=model, device_kind="cuda", prefill=curve, decode=curve, kv_blocks=100, largest_batched_tokens=64,
        largest_running=8, tensor_parallel=tensor_parallel,
    )  # fmt: skip
    (folder / f"{name or model}.engine.json").write_bytes(msgspec.json.encode(engine))


def test_rows_with_logprobs_and_a_score_make_a_profile(tmp_path: Path) -> None:
    write_rows(tmp_path, "large", plain_rows([1.0] * 8))
    write_rows(tmp_path, "small", plain_rows([1.0, 0.0] * 4))
    write_engine(tmp_path, "large")
    write_engine(tmp_path, "small")
    made = language_profile_from_records(tmp_path, operator="chat")
    assert made.models == ("small", "large")
    assert made.answers.certainty[0, :2, 3].tolist() == pytest.approx([-0.3, -0.75])
    assert made.answers.prompt_tokens[0].tolist() == [20 + i for i in range(8)]
    assert made.answers.output_tokens[1].tolist() == [2] * 8
    assert made.ranks == ("small",)


def test_how_engines_slow_each_other_may_be_declared(tmp_path: Path) -> None:
    for model, right in (("small", [1.0, 0.0] * 2), ("large", [1.0] * 4)):
        write_rows(tmp_path, model, plain_rows(right))
        write_engine(tmp_path, model)
    declared = {"model": "small", "beside": "large", "device_kind": "cuda", "factor": 1.25}
    (tmp_path / "sharing.json").write_text(json.dumps([declared]))
    made = language_profile_from_records(tmp_path, operator="chat")
    assert made.factor_of(*made.engines) == 1.25
    assert made.factor_of(*made.engines[::-1]) is None
    assert sharing_in_words(made) == ["a step of small beside large takes 2.5 times as long as alone (declared)"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"factor": 0}, "the factor of 'small' beside 'large' is 0"),
        ({"beside": "huge"}, r"how \['huge'\] share devices"),
        ({"times": 2}, "times"),
    ],
)
def test_a_bad_declaration_of_sharing_is_a_sentence(tmp_path: Path, more: dict[str, Any], sentence: str) -> None:
    for model, right in (("small", [1.0, 0.0] * 2), ("large", [1.0] * 4)):
        write_rows(tmp_path, model, plain_rows(right))
        write_engine(tmp_path, model)
    declared = {"model": "small", "beside": "large", "device_kind": "cuda", "factor": 1.25} | more
    (tmp_path / "sharing.json").write_text(json.dumps([declared]))
    with pytest.raises(InvalidInput, match=sentence):
        language_profile_from_records(tmp_path, operator="chat")


def test_prompts_without_all_answers_are_left_out_and_told(tmp_path: Path) -> None:
    write_rows(tmp_path, "small", plain_rows([1.0, 0.0, 1.0, 0.0]))
    write_rows(tmp_path, "large", plain_rows([1.0, 1.0, 1.0]))
    write_engine(tmp_path, "large")
    write_engine(tmp_path, "small")
    made = language_profile_from_records(tmp_path, operator="chat")
    assert len(made.answers.part) == 3
    assert made.warnings[0] == "1 prompts were left out, as not every model has an answer"


def harness_row(i: int) -> dict[str, Any]:
    return {
        "doc_id": i,
        "target": "1",
        "arguments": [["x" * 40, " yes"], ["x" * 40, " no"]],
        "resps": [[["-1.0", "False"]], [["-2.0", "False"]]],
        "filtered_resps": [["-1.0", "False"], ["-2.0", "False"]],
        "acc": float(i % 2),
    }


def test_the_sample_log_of_the_harness_is_read(tmp_path: Path) -> None:
    write_rows(tmp_path, "small", [harness_row(i) for i in range(4)])
    write_engine(tmp_path, "small")
    made = language_profile_from_records(tmp_path, operator="chat", certainty="first_logprob")
    best = -1.0 - math.log(math.exp(-1.0) + math.exp(-2.0))
    assert made.answers.certainty[0, :, 3].tolist() == pytest.approx([best] * 4)
    assert made.answers.quality.tolist() == [[0.0, 1.0, 0.0, 1.0]]
    assert made.answers.output_tokens.tolist() == [[1] * 4]


PAIRS = [["x" * 40, " yes"], ["x" * 40, " no"]]


@pytest.mark.parametrize(
    "arguments",
    [PAIRS, {f"gen_args_{i}": {"arg_0": context, "arg_1": choice} for i, (context, choice) in enumerate(PAIRS)}],
    ids=["as pairs", "by name"],
)
def test_the_context_of_a_row_of_the_harness_counts_once_however_many_choices_have_it(
    tmp_path: Path, arguments: object
) -> None:
    rows = [{**harness_row(i), "arguments": arguments} for i in range(2)]
    write_rows(tmp_path, "small", rows)
    write_engine(tmp_path, "small")
    assert language_profile_from_records(tmp_path, operator="chat").answers.prompt_tokens.tolist() == [[10, 10]]


def test_rows_of_several_tasks_of_the_harness_are_told_apart(tmp_path: Path) -> None:
    rows = [{**harness_row(i), "doc_hash": task} for task in ("ab", "cd") for i in range(2)]
    write_rows(tmp_path, "small", rows)
    write_engine(tmp_path, "small")
    assert len(language_profile_from_records(tmp_path, operator="chat").answers.part) == 4


@pytest.mark.parametrize(
    ("top", "margin"),
    [
        ({"a": -0.2, "b": -2.0}, math.exp(-0.2) - math.exp(-2.0)),
        ({"b": -0.1, "a": -0.2}, math.exp(-0.2) - math.exp(-0.1)),
        ({"b": -0.1, "c": -0.15}, math.exp(-0.2) - math.exp(-0.1)),
        ({"b": -0.1}, math.exp(-0.2) - math.exp(-0.1)),
        ({"a": -0.2}, math.exp(-0.2)),
    ],
    ids=["likeliest", "less likely", "not among them", "one other alone", "itself alone"],
)
def test_a_margin_is_to_the_likeliest_other_token(tmp_path: Path, top: dict[str, float], margin: float) -> None:
    rows = [{"id": i, "score": i, "logprobs": [-0.2], "top_logprobs": [top], "prompt_tokens": 9} for i in range(2)]
    write_rows(tmp_path, "small", rows)
    write_engine(tmp_path, "small")
    made = language_profile_from_records(tmp_path, operator="chat", certainty="margin")
    assert made.answers.certainty[0, :, -1] == pytest.approx(margin)


def test_the_score_of_a_row_of_the_harness_is_of_the_likeliest_choice(tmp_path: Path) -> None:
    write_rows(tmp_path, "small", [{**harness_row(i), "acc": 1.0, "acc_norm": 0.0} for i in range(2)])
    write_engine(tmp_path, "small")
    assert language_profile_from_records(tmp_path, operator="chat").answers.quality.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"id": 1, "score": 8, "logprobs": [-1.0]}, "score is 8"),
        ({"id": 1, "logprobs": [-1.0]}, "the row has no score"),
        ({"id": 1, "score": 1}, "the row has no field 'logprobs'"),
        ({"id": 1, "score": 1, "logprobs": []}, "logprobs is empty"),
        ({"id": 1, "score": 1, "logprobs": [-1.0], "top_logprobs": []}, "differ in length"),
        ({"doc_id": 1, "acc": 1, "resps": [["a text"]]}, "keeps none of generated answers"),
        ({**harness_row(1), "arguments": "a text"}, "its arguments are a text"),
    ],
)
def test_a_bad_row_is_a_sentence(tmp_path: Path, row: dict[str, Any], sentence: str) -> None:
    write_rows(tmp_path, "small", [row])
    with pytest.raises(InvalidInput) as caught:
        language_profile_from_records(tmp_path, operator="chat")
    assert sentence in str(caught.value)
    assert "small.jsonl, line 1" in str(caught.value)


def test_an_engine_without_times_and_an_unknown_certainty_are_sentences(tmp_path: Path) -> None:
    write_rows(tmp_path, "small", plain_rows([1.0, 0.0]))
    with pytest.raises(InvalidInput, match=r"has no times of model 'small'.*small\.bench-1\.json"):
        language_profile_from_records(tmp_path, operator="chat")
    with pytest.raises(InvalidInput, match="certainty is 'entropy'; use one of mean_logprob"):
        language_profile_from_records(tmp_path, operator="chat", certainty="entropy")


BENCHED = 16


def bench(concurrency: int, step_s: float) -> dict[str, Any]:
    lengths = [100, 400] * (BENCHED // 2)
    return {
        "backend": "vllm",
        "model_id": "org/model",
        "max_concurrency": concurrency,
        "input_lens": lengths,
        "output_lens": [11] * BENCHED,
        "ttfts": [0.02 + length * 1e-4 + 0.01 * (i > 1) for i, length in enumerate(lengths)],
        "itls": [[step_s] * 10] * BENCHED,
    }


def test_engines_on_several_devices_are_files_of_their_own_and_reach_the_plan(tmp_path: Path) -> None:
    write_rows(tmp_path, "llama.1", plain_rows([1.0, 0.0] * 4))
    write_engine(tmp_path, "llama.1")
    write_engine(tmp_path, "llama.1", tensor_parallel=2, name="llama.1.tp2")
    made = language_profile_from_records(tmp_path, operator="chat")
    assert [one.tensor_parallel for one in made.engines] == [1, 2]
    placed = layouts(made, identical_devices(2, kind="cuda"), memory_share=0.9)
    assert {tuple(one.tensor_parallel for one in each.replicas) for each in placed} == {(1, 1), (2,)}
    write_engine(tmp_path, "llama.1", tensor_parallel=2, name="llama.1.tp4")
    with pytest.raises(InvalidInput, match=r"llama.1.tp4.engine.json: has tensor_parallel 2; mend it"):
        language_profile_from_records(tmp_path, operator="chat")


FACTS: dict[str, Any] = {
    "weights_bytes": 8_000_000_000,
    "kv_bytes_per_token": 131_072,
    "memory_bytes": 80_000_000_000,
    "bandwidth_bytes_per_s": 1.6e12,
}


def write_steps(
    folder: Path, name: str = "small", text: str = "batch_size,runtime_ms\n32,10.5\n64,12\n", **facts: Any
) -> None:
    (folder / f"{name}.steps.csv").write_text(text)
    (folder / "small.steps.json").write_text(json.dumps(FACTS | facts))


def test_times_of_steps_alone_make_an_engine_and_what_is_assumed_is_told(tmp_path: Path) -> None:
    write_rows(tmp_path, "small", plain_rows([1.0, 0.0] * 4))
    write_steps(tmp_path)
    write_steps(tmp_path, "small.tp4", largest_running=48)
    made = language_profile_from_records(tmp_path, operator="chat")
    one, four = made.engines
    assert (one.tensor_parallel, four.tensor_parallel) == (1, 4)
    assert one.decode.seconds(48) == pytest.approx(0.01125)  # between two points
    assert (one.largest_batched_tokens, one.largest_running) == (64, 48)  # and never beyond the last
    assert four.per_kv_token_s == pytest.approx(131_072 / 6.4e12)
    assert one.kv_blocks == int((72e9 - 8e9) // (131_072 * 16))
    assert made.warnings[0].startswith("assumed for model 'small', as small.steps.csv has times of steps alone")
    assert "steps of fewer than 32 tokens take as long as one of 32" in made.warnings[0]


@pytest.mark.parametrize(
    ("text", "facts", "sentence"),
    [
        ("tokens,ms\n1,2\n", {}, "has no rows with its columns; write the columns batch_size,runtime_ms"),
        ("batch_size,runtime_ms\n1\n", {}, "a row is no pair of numbers"),
        ("batch_size,runtime_ms\n1,2\n1,3\n", {}, "the tokens of a step curve are [1, 1]"),
        ("batch_size,runtime_ms\n8,2\n", {"memory_bytes": 8_000_000_000}, "holds the weights and no context"),
        ("batch_size,runtime_ms\n8,2\n", {"bandwidth_bytes_per_s": 0}, "bandwidth_bytes_per_s is 0.0, needs more"),
        ("batch_size,runtime_ms\n8,2\n", {"bandwith": 1}, "unknown field `bandwith`"),
    ],
)
def test_bad_times_of_steps_are_a_sentence(tmp_path: Path, text: str, facts: dict[str, Any], sentence: str) -> None:
    write_rows(tmp_path, "small", plain_rows([1.0, 0.0]))
    write_steps(tmp_path, text=text, **facts)
    with pytest.raises(InvalidInput) as caught:
        language_profile_from_records(tmp_path, operator="chat")
    assert sentence in str(caught.value)
    assert "small.steps." in str(caught.value)


def test_results_of_vllms_benchmark_give_the_times_of_an_engine(tmp_path: Path) -> None:
    write_rows(tmp_path, "small", plain_rows([1.0, 0.0]))
    for concurrency, step_s in ((1, 0.010), (4, 0.012), (16, 0.020)):
        (tmp_path / f"small.bench-{concurrency}.json").write_text(json.dumps(bench(concurrency, step_s)))
    made = language_profile_from_records(tmp_path, operator="chat")
    engine = made.engines[0]
    assert made.overhead_s + engine.prefill.seconds(100) == pytest.approx(0.03, rel=0.01)  # as a client waits
    assert any("kv_tokens" in warning for warning in made.warnings)
    assert engine.decode.tokens == (1, 4, 16)
    assert engine.decode.step_s == pytest.approx((0.010, 0.012, 0.020))
    assert engine.largest_batched_tokens == 400
    between = np.subtract(engine.prefill.seconds(400), engine.prefill.seconds(100))
    assert between == pytest.approx(0.03, rel=0.01)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"max_concurrency": 4}, "are of concurrency [4], and 1 is needed"),
        ({"itls": [[]] * BENCHED}, "has no inter-token time"),
        ({"ttfts": [0.1]}, "its lists differ in length"),
        ({"ttfts": "none"}, "bench-1.json"),
        ({"max_concurrency": 0}, "bench-1.json: max_concurrency is 0"),
        ({"input_lens": [-1] * len(bench(1, 0.01)["input_lens"])}, "a length makes no sense"),
        ({"ttfts": [0.0] * BENCHED}, "at concurrency 1 have no answer"),
    ],
)
def test_a_bad_result_is_a_sentence(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    write_rows(tmp_path, "small", plain_rows([1.0, 0.0]))
    (tmp_path / "small.bench-1.json").write_text(json.dumps(bench(1, 0.01) | change))
    with pytest.raises(InvalidInput) as caught:
        language_profile_from_records(tmp_path, operator="chat")
    assert sentence in str(caught.value)


@pytest.mark.parametrize("duration", [{}, {"duration": 100.0}], ids=["too few prompts", "too slow"])
def test_a_benchmark_that_kept_fewer_requests_open_than_it_says_is_refused(
    tmp_path: Path, duration: dict[str, float]
) -> None:
    write_rows(tmp_path, "small", plain_rows([1.0, 0.0]))
    concurrency = 8 if duration else 2 * BENCHED + 1
    for count in (1, concurrency):
        (tmp_path / f"small.bench-{count}.json").write_text(json.dumps(bench(count, 0.01) | duration))
    with pytest.raises(
        InvalidInput, match=rf"were open at a time, and max_concurrency is {concurrency}; .*num-prompts"
    ):
        language_profile_from_records(tmp_path, operator="chat")


def test_facts_beside_results_say_what_the_engine_holds(tmp_path: Path) -> None:
    write_rows(tmp_path, "small", plain_rows([1.0, 0.0]))
    for concurrency in (1, 4):
        (tmp_path / f"small.bench-{concurrency}.json").write_text(json.dumps(bench(concurrency, 0.01)))
    facts = {"kv_tokens": 64_000, "context_tokens": 8192, "device_kind": "cuda", "largest_batched_tokens": 256}
    (tmp_path / "small.facts.json").write_text(json.dumps(facts))
    made = language_profile_from_records(tmp_path, operator="chat")
    (engine,) = made.engines
    assert (engine.held_tokens, engine.context_tokens, engine.device_kind) == (64_000, 8192, "cuda")
    assert engine.largest_batched_tokens == 256
    assert not any("kv_tokens" in warning for warning in made.warnings)


@pytest.mark.parametrize("facts", [{"kv_tokens": 1}, {"memory": 1}, {"context_tokens": "much"}])
def test_bad_facts_beside_results_are_a_sentence(tmp_path: Path, facts: dict[str, Any]) -> None:
    write_rows(tmp_path, "small", plain_rows([1.0, 0.0]))
    (tmp_path / "small.bench-1.json").write_text(json.dumps(bench(1, 0.01)))
    (tmp_path / "small.facts.json").write_text(json.dumps(facts))
    with pytest.raises(InvalidInput, match=r"small.facts.json: .*; mend the file"):
        language_profile_from_records(tmp_path, operator="chat")


def test_facts_beside_times_that_take_none_are_refused(tmp_path: Path) -> None:
    write_rows(tmp_path, "small", plain_rows([1.0, 0.0]))
    write_engine(tmp_path, "small")
    (tmp_path / "small.facts.json").write_text('{"kv_tokens": 64000}')
    with pytest.raises(InvalidInput, match=r"small.facts.json: goes with results of vLLM's benchmark"):
        language_profile_from_records(tmp_path, operator="chat")


def test_the_command_line_imports_them(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    write_rows(records, "small", plain_rows([1.0, 0.0] * 3))
    write_engine(records, "small")
    done = run("profile", "--from-records", records, "--operator", "chat", "--out", tmp_path / "profile")
    assert done.exit_code == 0, done.output
    assert "Engines of chat, 6 prompts" in done.output
    again = run(
        *("profile", "--from-records", records, "--operator", "chat", "--out", tmp_path / "p", "--certainty", "margin")
    )
    assert again.exit_code == 0, again.output
    assert read_language_profile(tmp_path / "p").certainty == "margin"


def test_a_certainty_without_records_is_refused(tmp_path: Path) -> None:
    done = run("profile", tmp_path, "--certainty", "margin")
    assert done.exit_code == 2
    assert "write certainty into the project file" in done.output


ROW = {"id": "a", "score": 1, "logprobs": [-0.1, -0.5], "prompt_tokens": 20}
CHOICES = {"doc_id": 1, "acc": 1.0, "resps": [[[-math.inf, False]], [[-math.inf, False]]]}


def imported(folder: Path, *lines: str, certainty: str = "mean_logprob") -> LanguageProfile:
    """Of model `small` with these lines, beside a `large` one."""
    (folder / "small.jsonl").write_text("\n".join(lines), encoding="utf-8")
    for model in ("small", "large"):
        write_engine(folder, model)
    write_rows(folder, "large", [ROW, {**ROW, "id": "b"}])
    return language_profile_from_records(folder, operator="chat", certainty=certainty)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"prompt_tokens": -5}, "prompt_tokens is -5"),
        ({"prompt_tokens": 0}, "prompt_tokens is 0"),
        ({"prompt_tokens": 10**30}, "prompt_tokens is 1000"),
        ({"output_tokens": -1}, "output_tokens is -1"),
        ({"logprobs": [10**400]}, "too large"),
        ({"logprobs": [math.nan]}, "is NaN"),
        ({"logprobs": [None]}, "cannot be used"),
        ({"logprobs": [math.inf]}, "is Infinity"),
        ({"prompt_tokens": None}, "neither prompt_tokens nor a prompt"),
        ({"score": math.nan}, "score is nan"),
        ({"id": None}, "the id is None"),
        (CHOICES, "no likely choice"),
    ],
)
def test_a_row_that_makes_no_sense_is_named_by_its_line(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        imported(tmp_path, json.dumps({**ROW, "id": "b"}), json.dumps({**ROW, **fields}))
    assert "small.jsonl, line 2" in str(caught.value)


@pytest.mark.parametrize(("line", "said"), [("[" * 100_000, "cannot be used"), ("{}", "has no field 'logprobs'")])
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        imported(tmp_path, json.dumps(ROW), line)
    assert "small.jsonl, line 2" in str(caught.value)


def test_numbers_of_tokens_that_are_null_are_those_of_the_text_and_the_logprobs(tmp_path: Path) -> None:
    null = {"prompt_tokens": None, "output_tokens": None, "prompt": "x" * 40}
    made = imported(tmp_path, json.dumps({**ROW, **null}), json.dumps({**ROW, "id": "b"}))
    small = made.models.index("small")
    assert made.answers.prompt_tokens[small].tolist() == [10, 20]
    assert made.answers.output_tokens[small].tolist() == [2, 2]


def test_an_id_comes_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="the id 'a' comes twice"):
        imported(tmp_path, json.dumps(ROW), json.dumps(ROW))


def test_a_mark_of_the_byte_order_and_pythons_infinity_are_read(tmp_path: Path) -> None:
    rows = ROW, {**ROW, "id": "b", "logprobs": [-math.inf]}
    made = imported(tmp_path, "\ufeff" + json.dumps(rows[0]), json.dumps(rows[1]))
    assert np.isfinite(made.answers.certainty).all()


OTHERS = [{"token": "x", "logprob": -0.1}, {"token": "y", "logprob": -3}]
TOKEN = {"token": "x", "logprob": -0.1, "top_logprobs": OTHERS}
TOPS = [{"x": -0.1, "y": -3}]


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": {"content": [TOKEN]}},
        {"logprobs": [TOKEN]},
        {"logprobs": {"content": None, "token_logprobs": [-0.1], "top_logprobs": TOPS}},
        {"logprobs": {"token_logprobs": [-0.1], "tokens": ["x"], "top_logprobs": TOPS}},
    ],
)
def test_log_probabilities_may_be_as_openai_gives_them(tmp_path: Path, fields: dict[str, Any]) -> None:
    plain = {"logprobs": [-0.1], "top_logprobs": TOPS}
    made = imported(tmp_path, *(json.dumps({**ROW, "id": id, **fields}) for id in "ab"), certainty="margin")
    same = imported(tmp_path, *(json.dumps({**ROW, "id": id, **plain}) for id in "ab"), certainty="margin")
    assert np.array_equal(made.answers.certainty, same.answers.certainty)
    assert made.answers.certainty[made.models.index("small")].max() < 1


def test_requests_of_a_benchmark_that_failed_count_for_nothing(tmp_path: Path) -> None:
    def engine(**more: Any) -> EngineProfile:
        result = bench(1, 0.01)
        path = tmp_path / "small.bench-1.json"
        path.write_text(json.dumps(result | {name: result[name] + value for name, value in more.items()}))
        return engine_from_results("small", [path])[0]

    failed = {"input_lens": [10_000], "output_lens": [0], "ttfts": [0.0], "itls": [[]]}
    assert engine(**failed) == engine()
