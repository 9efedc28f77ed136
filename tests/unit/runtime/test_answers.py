import numpy as np

from gearshift.request import Request, Sample
from gearshift.runtime.answers import answer_of


def test_an_answer_tells_of_each_row_which_model_it_was_and_where_the_row_left_it():
    request = Request(id=1, operator="o", arrived_ns=0, rows=2)
    samples = [
        Sample(request, row, row, stage=1, model=1, certainty=0.5, exit_segment=leaves, result={"y": np.array([row])})
        for row, leaves in enumerate((3, 0))
    ]
    answer = answer_of(samples, ("small", "large"), gear=2)
    assert answer.outcome == "answered"
    assert [(row.model, row.stage, row.exit_segment) for row in answer.rows] == [("large", 1, 3), ("large", 1, 0)]
    assert answer.outputs["y"].tolist() == [0, 1]
