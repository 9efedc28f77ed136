import json

from gearshift.observability.journal import Journal


def test_a_full_journal_makes_room_and_keeps_the_one_before(tmp_path):
    journal = Journal(tmp_path / "a" / "journal.jsonl", rotate_at_bytes=200)
    for i in range(20):
        journal.write("shift", number=i)
    journal.close()
    journal.close()
    paths = [tmp_path / "a" / "journal.jsonl.1", tmp_path / "a" / "journal.jsonl"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["journal.jsonl", "journal.jsonl.1"]
    assert all(path.stat().st_size <= 200 for path in paths)
    kept = [json.loads(line)["number"] for path in paths for line in path.read_text().splitlines()]
    assert kept == list(range(20 - len(kept), 20))
