import pytest

from tests.unit.serving.test_http import Server, samples, serve


@pytest.mark.parametrize(("slo_ms", "late"), [("0.001", True), ("60000", False)])
def test_an_answer_after_its_deadline_counts_as_late(slo_ms, late):
    async def use(server: Server) -> str:
        assert (await server.infer(samples(0), {"x-slo-ms": slo_ms})).status == 200
        return (await server.ask("GET", "/metrics")).body.decode()

    assert ('gearshift_late_total{operator="sums"} 1.0' in serve(use)) == late


def test_a_request_that_fails_is_not_late_too():
    async def use(server: Server) -> str:
        assert (await server.infer(samples(10), {"x-slo-ms": "0.001"})).status == 500
        return (await server.ask("GET", "/metrics")).body.decode()

    assert "gearshift_late_total{" not in serve(use)


def test_readiness_and_the_last_gear_are_metrics():
    async def use(server: Server) -> list[bool]:
        ready = (await server.ask("GET", "/metrics")).body.decode()
        server.service.stop_accepting()
        ending = (await server.ask("GET", "/metrics")).body.decode()
        assert "gearshift_last_gear 0.0" in ready
        assert "gearshift_predicted_accuracy 0.8" in ready
        return ["gearshift_ready 1.0" in ready, "gearshift_ready 0.0" in ending]

    assert serve(use, service={"accuracies": [0.8]}) == [True, True]
