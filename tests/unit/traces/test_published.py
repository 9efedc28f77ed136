from pathlib import Path

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.traces.read import read_trace, write_trace

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:00.061930+00:00,9,7\n"
)
MOONCAKE = "timestamp_ms,input_tokens,output_tokens\n27000,6758,500\n27052,7322,490\n"
MOONCAKE_LINES = (
    '{"timestamp": 27000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n'
    '{"timestamp": 27052, "input_length": 7322, "output_length": 490, "hash_ids": [0, 2]}\n'
)
BURST = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n118,GPT-4,417,276,693,API log\n"
)
BURST_2 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5.5,a,2.1,ChatGPT,30,60,90,Conversation log\n18.0,,3.0,ChatGPT,40,70,110,API log\n"
)


@pytest.mark.parametrize(
    ("text", "arrivals_s", "prompts", "outputs"),
    [
        (AZURE, [0.0, 0.052], [4808, 3180], [10, 8]),
        (AZURE_2024, [0.0, 0.052], [2162, 9], [5, 7]),
        (MOONCAKE, [0.0, 0.052], [6758, 7322], [500, 490]),
        (MOONCAKE_LINES, [0.0, 0.052], [6758, 7322], [500, 490]),
        (BURST, [0.0, 113.0], [472, 417], [18, 276]),  # one had no answer
        (BURST_2, [0.0, 12.5], [30, 40], [60, 70]),
    ],
)
def test_published_traces_are_read_with_their_tokens(
    text: str, arrivals_s: list[float], prompts: list[int], outputs: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    trace = read_trace(path)
    np.testing.assert_allclose(trace.arrivals_ns / 1e9, arrivals_s, atol=1e-6)
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == (prompts, outputs)


def test_copies_of_requests_keep_their_tokens_and_files_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(MOONCAKE)
    trace = read_trace(path, rate_scale=3)
    assert trace.prompt_tokens is not None
    assert sorted(trace.prompt_tokens.tolist()) == [6758] * 3 + [7322] * 3
    write_trace(trace, tmp_path / "again.csv")
    again = read_trace(tmp_path / "again.csv")
    assert again.prompt_tokens is not None
    np.testing.assert_array_equal(again.prompt_tokens, trace.prompt_tokens)
    np.testing.assert_array_equal(again.arrivals_ns, trace.arrivals_ns)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,3,4\n", "line 2: 'yesterday,3,4' is no request"),
        (MOONCAKE_LINES + '{"timestamp": 1, "input_length": 4}\n', "line 3: '1,4,None' is no request"),
        (MOONCAKE_LINES + "cut {off\n", "line 3: 'cut {off' is no request"),
        ("arrival_s,prompt_tokens,output_tokens\n0,0,5\n", "line 2, field 'prompt_tokens': 0 is no number of tokens"),
        ("arrival_s,prompt_tokens,output_tokens\n0,3,2.5\n", "2.5 is no number of tokens"),
    ],
)
def test_a_malformed_request_is_named_by_its_line(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=problem):
        read_trace(path)


def test_a_trace_whose_requests_have_no_answers_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(AZURE.replace(",10", ",0").replace(",8\n", ",0\n"))
    with pytest.raises(InvalidInput, match="none of its 2 requests has tokens of both prompt and answer"):
        read_trace(tmp_path / "trace.csv")


def test_a_negative_number_of_tokens_is_no_missing_answer(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(AZURE.replace(",8\n", ",-8\n"))
    with pytest.raises(InvalidInput, match="3180,-8' is no request"):
        read_trace(tmp_path / "trace.csv")
